package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const root = "../.."

// modulesOf returns the modules that the Makefile releases.
func modulesOf(t *testing.T) []string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "Makefile"))
	require.NoError(t, err)
	line := regexp.MustCompile(`(?m)^LIBRARIES := (.*)$`).FindSubmatch(text)
	require.NotNil(t, line)
	folders := strings.Fields(string(line[1]))
	return slices.DeleteFunc(folders, func(folder string) bool { return folder == "examples" })
}

// copied makes a copy of the files of this repository that git knows.
func copied(t *testing.T) repo {
	t.Helper()
	list, err := exec.CommandContext(t.Context(), "git", "-C", root, "ls-files", "-z").Output()
	require.NoError(t, err)
	r := repo{root: t.TempDir(), modules: modulesOf(t)}
	for name := range strings.SplitSeq(strings.TrimSuffix(string(list), "\x00"), "\x00") {
		text, err := os.ReadFile(filepath.Join(root, name))
		if os.IsNotExist(err) { // deleted, and not committed yet
			continue
		}
		require.NoError(t, err)
		require.NoError(t, put(filepath.Join(r.root, name), text))
	}
	git(t, r.root, "init", "-q")
	git(t, r.root, "add", "-A")
	return r
}

// git runs git in a folder, and returns the output.
func git(t *testing.T, dir string, args ...string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "git", append([]string{"-C", dir}, args...)...).CombinedOutput()
	require.NoError(t, err, "git %s: %s", args, out)
	return string(out)
}

// hidePrograms marks the sound programs of pages as plain text. They would compile all packages
// anew, in their other folder.
func hidePrograms(t *testing.T, r repo) {
	t.Helper()
	for _, page := range []string{"README.md", "docs/getting-started.md"} {
		text, err := os.ReadFile(filepath.Join(r.root, page))
		require.NoError(t, err)
		require.NoError(t, put(filepath.Join(r.root, page), bytes.ReplaceAll(text, []byte("```go"), []byte("```text"))))
	}
}

// Each fault is planted in a copy of this repository. `make release-check` then fails, and its
// message names the remedy.
func TestPlantedFaults(t *testing.T) {
	r := copied(t)
	hidePrograms(t, r)
	for name, c := range map[string]struct {
		check, file, old, planted string
		says                      []string
	}{
		"a local replace line": {
			"replace", "dedup/sqlstore/go.mod", "\nrequire (", "\nreplace github.com/jackc/pgx/v5 => ../../../pgx\n\nrequire (",
			[]string{"dedup/sqlstore/go.mod replaces github.com/jackc/pgx/v5", "Remove the line, and require a released version"},
		},
		"a local replace line, in the tree": {
			"tree", "dedup/sqlstore/go.mod", "\nrequire (", "\nreplace github.com/jackc/pgx/v5 => ../../../pgx\n\nrequire (",
			[]string{"dedup/sqlstore/go.mod replaces github.com/jackc/pgx/v5", "Remove the line, and require a released version"},
		},
		"a changed signature": {
			"api", "id.go", "func StandardID() ", "func StandardID(strict bool) ",
			[]string{"+ pkg ., func StandardID(strict bool) Extractor", "Run make api, and name them in CHANGELOG.md"},
		},
		"an untidy module": {
			"tidy", "codec/jsonv2/go.mod", " // indirect\n", "\n",
			[]string{"codec/jsonv2/go.mod is not tidy, run make tidy"},
		},
		"a program of the README with a wrong form": {
			"snippets", "README.md", "```text\npackage main\n", "```go\npackage main\n\nfunc f( {}\n",
			[]string{"README.md:", "main.go:", "does not compile, correct it in the page"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(r.root, c.file)
			sound, err := os.ReadFile(file)
			require.NoError(t, err)
			require.Contains(t, string(sound), c.old)
			require.NoError(t, put(file, bytes.Replace(sound, []byte(c.old), []byte(c.planted), 1)))
			defer func() { require.NoError(t, put(file, sound)) }()
			err = run(t.Context(), []string{"-root", r.root, "-modules", strings.Join(r.modules, " "), "check", c.check})
			for _, says := range c.says {
				require.ErrorContains(t, err, says)
			}
		})
	}
}

// One check finds all faults that are planted in pieces of pages, and names their lines.
func TestPlantedFaultsInPages(t *testing.T) {
	r := copied(t)
	var says []string
	for _, c := range []struct{ page, old, planted, says string }{
		{"docs/overview.md", "idem.On(", "idem.OnEvent(", "undefined: idem.OnEvent"},
		{"docs/ops.md", "Prefix: ", "Prefixx: ", "unknown field Prefixx in struct literal of type ops.Config"},
		{
			"docs/moving-over.md", `idem.OnTx(router, "payment.completed", pay)`, `idem.OnTx("payment.completed", router, pay, 7, nil)`,
			`cannot use "payment.completed" (untyped string constant) as *idem.Router`,
		},
		{"docs/http.md", "defer m.Close()", "defer m.Clos()", "m.Clos undefined"},
		{"docs/how-to/conflicts.md", `"payment.completed", pay, `, "", "not enough arguments in call to idem.On"},
	} {
		sound, err := os.ReadFile(filepath.Join(r.root, c.page))
		require.NoError(t, err)
		before, after, found := strings.Cut(string(sound), c.old)
		require.True(t, found, "%s has no %s", c.page, c.old)
		require.NoError(t, put(filepath.Join(r.root, c.page), []byte(before+c.planted+after)))
		says = append(says, fmt.Sprintf("%s:%d: %s", c.page, 1+strings.Count(before, "\n"), c.says))
	}
	hidePrograms(t, r)
	err := run(t.Context(), []string{"-root", r.root, "-modules", strings.Join(r.modules, " "), "check", "snippets"})
	for _, says := range says {
		require.ErrorContains(t, err, says)
	}
	require.Equal(t, len(says), strings.Count(err.Error(), "correct it in the page"), err)
}
