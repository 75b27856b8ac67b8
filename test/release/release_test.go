package main

import (
	"archive/zip"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/mod/modfile"
	"golang.org/x/mod/sumdb/dirhash"
)

const (
	goMod     = "module github.com/idem-go/idem\n\ngo 1.26.0\n"
	nestedMod = `module github.com/idem-go/idem/nested

go 1.26.0

replace github.com/idem-go/idem => ..

require github.com/idem-go/idem v0.0.0-x10101000000-000000000000
`
	code = `package idem

import "github.com/idem-go/idem/internal/inner"

type Store struct { Name string; secret int }
type Shown = inner.Hidden
func (s *Store) Claim(id string) error { return nil }
func hidden() {}
`
	changelog = "# Changelog\n\n## Unreleased\n\n* Nothing.\n\n## 0.0.1\n\n* `Claim`\n"
)

// small makes a repository of two modules, with the API of its last release.
func small(t *testing.T) repo {
	r := repo{root: t.TempDir(), modules: []string{".", "nested"}}
	write(t, r, "LICENSE", "Anything goes.\n")
	write(t, r, "go.mod", goMod)
	write(t, r, "idem.go", code)
	write(t, r, "internal/inner/inner.go", "package inner\n\ntype Hidden struct { Shown int }\n")
	write(t, r, "nested/go.mod", nestedMod)
	write(t, r, "nested/nested.go", "package nested\n\nimport \"github.com/idem-go/idem\"\n\nvar S idem.Store\n")
	write(t, r, "CHANGELOG.md", changelog)
	require.NoError(t, r.writeNext())
	git(t, r.root, "init", "-q")
	git(t, r.root, "add", "-A")
	return r
}

func write(t *testing.T, r repo, name, text string) {
	t.Helper()
	require.NoError(t, put(filepath.Join(r.root, name), []byte(text)))
}

func TestAPI(t *testing.T) {
	lines, err := small(t).api()
	require.NoError(t, err)
	require.Equal(t, []string{
		"pkg ., func (*Store) Claim(id string) error",
		"pkg ., through an alias: type Hidden struct",
		"pkg ., through an alias: type Hidden struct, Shown int",
		"pkg ., type Shown = inner.Hidden",
		"pkg ., type Store struct",
		"pkg ., type Store struct, Name string",
		"pkg nested, var S idem.Store",
	}, lines)
}

// Each planted change fails until api/next.txt has it and the changelog names it.
func TestChangedAPIFails(t *testing.T) {
	for name, c := range map[string]struct{ file, text, says, symbol string }{
		"a changed signature": {
			"idem.go", "package idem\ntype Store struct { Name string }\nfunc (s *Store) Claim(id, tenant string) error { return nil }\n",
			"+ pkg ., func (*Store) Claim(id, tenant string) error", "`Claim`, `Shown`, `Hidden`",
		},
		"a removed function": {
			"nested/nested.go", "package nested\n", "- pkg nested, var S idem.Store", "`S`",
		},
		"a type behind an alias": {
			"internal/inner/inner.go", "package inner\ntype Hidden struct { Shown string }\n",
			"+ pkg ., through an alias: type Hidden struct, Shown string", "`Hidden`",
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := small(t)
			require.NoError(t, r.checkAPI())
			write(t, r, c.file, c.text)
			require.ErrorContains(t, r.checkAPI(), c.says)
			write(t, r, "CHANGELOG.md", "# Changelog\n\n## Unreleased\n\n* Another line.\n\n## 0.0.1\n")
			require.NoError(t, r.writeNext())
			require.ErrorContains(t, r.checkAPI(), "does not name in backticks")
			write(t, r, "CHANGELOG.md", "# Changelog\n\n## Unreleased\n\n* "+c.symbol+" changed.\n\n## 0.0.1\n")
			require.ErrorContains(t, r.checkAPI(), "has changed: run make api")
			require.NoError(t, r.writeNext())
			require.NoError(t, r.checkAPI())
		})
	}
}

// The changelog names a declaration already. Another signature of it needs another line.
func TestChangedSignatureOfANamedDeclarationFails(t *testing.T) {
	r := small(t)
	log := "# Changelog\n\n## Unreleased\n\n* `Store.Claim`, `Shown`, `Hidden`.\n"
	claim := "package idem\ntype Store struct { Name string }\nfunc (s *Store) Claim(%s string) error { return nil }\n"
	write(t, r, "CHANGELOG.md", log)
	write(t, r, "idem.go", fmt.Sprintf(claim, "id, tenant"))
	require.NoError(t, r.writeNext())
	require.NoError(t, r.checkAPI())
	log += "* Something else.\n" // does not stand for the change
	write(t, r, "CHANGELOG.md", log)
	require.ErrorContains(t, r.checkAPI(), "has changed: run make api")
	require.NoError(t, r.writeNext())
	write(t, r, "idem.go", fmt.Sprintf(claim, "id, tenant, scope"))
	require.ErrorContains(t, r.checkAPI(), "Run make api")
	require.ErrorContains(t, r.writeNext(), "section Unreleased of CHANGELOG.md is the same")
	require.ErrorContains(t, r.checkAPI(), "Run make api")
	write(t, r, "CHANGELOG.md", log+"* `Store.Claim` takes the scope.\n")
	require.NoError(t, r.writeNext())
	require.NoError(t, r.checkAPI())
}

func TestTree(t *testing.T) {
	require.NoError(t, small(t).checkTree(t.Context()))
}

// Both faults are invisible while replace lines point to the working tree.
func TestTreeFails(t *testing.T) {
	for name, c := range map[string]struct{ file, text, says string }{
		"a replace line of another module": {
			"nested/go.mod", nestedMod + "\nreplace example.org/other => ../other\n", "Remove the line",
		},
		"an import from a module that is not released": {
			"nested/nested.go", "package nested\n\nimport _ \"github.com/idem-go/idem/absent\"\n", "github.com/idem-go/idem/absent",
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := small(t)
			write(t, r, c.file, c.text)
			require.ErrorContains(t, r.checkTree(t.Context()), c.says)
		})
	}
}

func TestUntidyFails(t *testing.T) {
	r := small(t)
	require.NoError(t, r.checkTidy(t.Context()))
	write(t, r, "nested/nested.go", "package nested\n")
	require.ErrorContains(t, r.checkTidy(t.Context()), "nested/go.mod is not tidy, run make tidy")
}

func TestReleased(t *testing.T) {
	r := repo{modules: []string{".", "dedup/sqlstore", "cmd/idem"}}
	const requires = "require (\n\texample.org/a v1.0.0\n\tgithub.com/idem-go/idem v0.0.0-x1 // indirect\n)\n"
	for replaces, says := range map[string]string{
		"replace (\n\tgithub.com/idem-go/idem => ../..\n\tgithub.com/idem-go/idem/dedup/sqlstore => ../../dedup/sqlstore\n)\n\n": "",
		"replace github.com/idem-go/idem v0.0.0-x1 => ../..\n\n":                                                                 "",
		"replace github.com/idem-go/idem => ../../../fork\n\n":                                                                   "cmd/idem/go.mod replaces github.com/idem-go/idem by ../../../fork",
		"replace github.com/idem-go/idem => example.org/fork v1.0.0\n\n":                                                         "by example.org/fork",
		"replace example.org/a => ../a\n\n":                                                                                      "Remove the line",
		"require github.com/idem-go/idem/test/chaos v0.0.0-x1\n\n":                                                               "which is not released",
	} {
		f, err := modfile.Parse("go.mod", []byte("module m\n\n"+replaces+requires), nil)
		require.NoError(t, err)
		err = r.released("cmd/idem", f, "v0.1.0")
		if says != "" {
			require.ErrorContains(t, err, says, replaces)
			continue
		}
		require.NoError(t, err)
		text, err := f.Format()
		require.NoError(t, err)
		require.Equal(t, "module m\n\n"+strings.Replace(requires, "v0.0.0-x1", "v0.1.0", 1), string(text))
	}
}

func TestOrdered(t *testing.T) {
	r := small(t)
	order, err := r.ordered()
	require.NoError(t, err)
	require.Equal(t, []string{".", "nested"}, order)
	write(t, r, "go.mod", goMod+"\nrequire github.com/idem-go/idem/nested v0.0.0-x10101000000-000000000000\n")
	_, err = r.ordered()
	require.ErrorContains(t, err, "in a circle: ., nested")
}

// A module has no files of the modules below it, which have a zip of their own. The hashes in the
// go.sum of the modules that require it are those of its zip.
func TestPack_G11(t *testing.T) {
	r, dir, proxy := small(t), t.TempDir(), t.TempDir()
	_, err := r.writeTree(t.Context(), dir, proxy, "v0.1.0")
	require.NoError(t, err)
	file := filepath.Join(proxy, modulePath, "@v", "v0.1.0.zip")
	z, err := zip.OpenReader(file)
	require.NoError(t, err)
	defer func() { require.NoError(t, z.Close()) }()
	var names []string
	for _, f := range z.File {
		names = append(names, f.Name)
	}
	require.Contains(t, names, "github.com/idem-go/idem@v0.1.0/idem.go")
	require.NotContains(t, names, "github.com/idem-go/idem@v0.1.0/nested/nested.go")

	hash, err := dirhash.HashZip(file, dirhash.Hash1)
	require.NoError(t, err)
	sum, err := os.ReadFile(filepath.Join(dir, "nested", "go.sum"))
	require.NoError(t, err)
	require.Regexp(t, "^"+regexp.QuoteMeta("github.com/idem-go/idem v0.1.0 "+hash)+"\ngithub.com/idem-go/idem v0.1.0/go.mod h1:\\S+\n$", string(sum))
	require.FileExists(t, filepath.Join(dir, "nested", "LICENSE"))
}

func TestUsage(t *testing.T) {
	for _, args := range [][]string{nil, {"-modules", "."}, {"-modules", ".", "tree", "x"}, {"-modules", ".", "check", "x"}, {"-modules", ".", "x"}} {
		require.Error(t, run(t.Context(), args), args)
	}
}
