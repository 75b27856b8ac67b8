package archtest

import (
	"fmt"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A snippet is a block of code of a page.
type snippet struct {
	page string
	line int
	text string
}

func (s snippet) String() string { return fmt.Sprintf("%s:%d", s.page, s.line) }

var fenced = regexp.MustCompile("(?m)^( *)```(\\w+)\n((?s:.*?)\n) *```$")

// snippets returns all blocks of a language, of all pages, without the indentation of a list.
func snippets(t *testing.T, language string) (all []snippet) {
	t.Helper()
	for _, page := range files(t, ".md") {
		src := string(read(t, page))
		for _, m := range fenced.FindAllStringSubmatchIndex(src, -1) {
			if src[m[4]:m[5]] != language {
				continue
			}
			indent, text := src[m[2]:m[3]], src[m[6]:m[7]]
			text = strings.ReplaceAll("\n"+text, "\n"+indent, "\n")[1:]
			all = append(all, snippet{page: page, line: 1 + strings.Count(src[:m[0]], "\n"), text: text})
		}
	}
	require.Greater(t, len(all), 10, language)
	return all
}

// A whole program in a page compiles. Any other Go code in a page has the form of Go code.
func TestGoSnippetsOfPages(t *testing.T) {
	programs := 0
	for _, s := range snippets(t, "go") {
		if strings.HasPrefix(s.text, "package main\n") {
			programs++
			compiles(t, s)
			continue
		}
		if err := parses(s.text); err != nil {
			t.Errorf("%s: %v\n%s", s, err, s.text)
		}
	}
	require.GreaterOrEqual(t, programs, 2, "programs in pages")
}

// compiles lets the compiler check a program, in the module that has what it imports.
func compiles(t *testing.T, s snippet) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "main.go")
	require.NoError(t, os.WriteFile(file, []byte(s.text), 0o600))
	vet := exec.CommandContext(t.Context(), "go", "vet", file)
	vet.Dir = root
	if strings.Contains(s.text, module+"/dedup/sqlstore") {
		vet.Dir = filepath.Join(root, "examples")
	}
	vet.Env = append(os.Environ(), "GOWORK=off")
	out, err := vet.CombinedOutput()
	assert.NoError(t, err, "%s: %s", s, out)
}

// An ellipsis in a page stands for code of the reader.
var (
	ellipses    = regexp.MustCompile(`(?m)^\s*\.\.\.(?:\s*//.*)?$|([({]) ?\.\.\. ?([)}])`)
	declaration = regexp.MustCompile(`(?m)^(?:func|type|var|const) (?:.*[({,](?:\n.*)*?\n[})]|.*)$`)
)

// parses returns an error if a piece of code is none of these: declarations and statements, or
// fields of a literal.
func parses(text string) error {
	text = ellipses.ReplaceAllString(text, "$1$2")
	declarations := strings.Join(declaration.FindAllString(text, -1), "\n")
	statements := declaration.ReplaceAllString(text, "")
	err := parsesFile(declarations + "\nfunc _() {\n" + statements + "\n}\n")
	if err != nil && parsesFile("var _ = T{\n"+text+"\n}\n") == nil {
		return nil
	}
	return err
}

func parsesFile(body string) error {
	_, err := parser.ParseFile(token.NewFileSet(), "", "package p\n"+body, parser.SkipObjectResolution)
	return err
}

func TestParses(t *testing.T) {
	for _, good := range []string{
		"a := 1\nf(a)",
		"func f() {\n}\n",
		"r.Use(f)\n\nfunc f() error {\n\treturn nil\n}\n",
		"type t struct {\n\tn int\n}\n\nfunc (t) f() {\n}\n\nuse(t{})",
		"Auth: f,\nName: \"x\",",
		"x, err := f()\n...\ng(func() error {...})",
		"var m = f(1)\n\nfunc g() int { return m }",
	} {
		require.NoError(t, parses(good), good)
	}
	for _, bad := range []string{"a := ", "func f( {\n}\n", "if x {\n", "f(a b)", "Auth: f,\nName \"x\","} {
		require.Error(t, parses(bad), bad)
	}
}

// bash reads the commands in pages without an error of syntax.
func TestShellSnippetsOfPages(t *testing.T) {
	bash, err := exec.LookPath("bash")
	require.NoError(t, err, "make needs bash too")
	for _, s := range snippets(t, "sh") {
		check := exec.CommandContext(t.Context(), bash, "-n")
		check.Stdin = strings.NewReader(s.text)
		out, err := check.CombinedOutput()
		assert.NoError(t, err, "%s: %s", s, out)
	}
}
