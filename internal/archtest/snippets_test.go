package archtest

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/internal/snippets"
)

// snippetsIn returns all blocks of a language, of all pages.
func snippetsIn(t *testing.T, language string) (all []snippets.Snippet) {
	t.Helper()
	for _, page := range files(t, ".md") {
		text := string(read(t, page))
		require.NoError(t, snippets.Form(page, text))
		all = append(all, snippets.Find(page, text, language)...)
	}
	require.Greater(t, len(all), 10, language)
	return all
}

// A whole program in a page compiles. Any other Go code in a page has no error of types.
func TestGoSnippetsOfPages(t *testing.T) {
	checker := snippets.NewChecker(root)
	programs := 0
	for _, s := range snippetsIn(t, "go") {
		if s.Program() {
			programs++
		}
		if err := checker.Check(t.Context(), s); err != nil {
			t.Error(err)
		}
	}
	require.GreaterOrEqual(t, programs, 2, "programs in pages")
}

// bash reads the commands in pages without an error of syntax.
func TestShellSnippetsOfPages(t *testing.T) {
	bash, err := exec.LookPath("bash")
	require.NoError(t, err, "make needs bash too")
	for _, s := range snippetsIn(t, "sh") {
		check := exec.CommandContext(t.Context(), bash, "-n")
		check.Stdin = strings.NewReader(s.Text)
		out, err := check.CombinedOutput()
		assert.NoError(t, err, "%s: %s", s, out)
	}
}
