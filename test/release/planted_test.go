package main

import (
	"bytes"
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

// git runs git in a folder, and returns what git printed.
func git(t *testing.T, dir string, args ...string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "git", append([]string{"-C", dir}, args...)...).CombinedOutput()
	require.NoError(t, err, "git %s: %s", args, out)
	return string(out)
}

// Each fault is planted in a copy of this repository. `make release-check` then fails, and its message
// says what to do.
func TestPlantedFaults(t *testing.T) {
	r := copied(t)
	// The sound programs of these pages would compile all packages anew, in their other folder.
	for _, page := range []string{"README.md", "docs/getting-started.md"} {
		text, err := os.ReadFile(filepath.Join(r.root, page))
		require.NoError(t, err)
		require.NoError(t, put(filepath.Join(r.root, page), bytes.ReplaceAll(text, []byte("```go"), []byte("```text"))))
	}
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
		"a piece of a page with a name that no package has": {
			"snippets", "docs/overview.md", "idem.On(", "idem.OnEvent(",
			[]string{"docs/overview.md:", "package idem has no OnEvent", "correct it in the page"},
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
