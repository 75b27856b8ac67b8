package main

import (
	"archive/zip"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

const (
	goMod     = "module github.com/idem-go/idem\n\ngo 1.26.0\n"
	nestedMod = `module github.com/idem-go/idem/nested

go 1.26.0

replace github.com/idem-go/idem => ..

require github.com/idem-go/idem v0.0.0-00010101000000-000000000000
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
	put(t, r, "go.mod", goMod)
	put(t, r, "idem.go", code)
	put(t, r, "internal/inner/inner.go", "package inner\n\ntype Hidden struct { Shown int }\n")
	put(t, r, "nested/go.mod", nestedMod)
	put(t, r, "nested/nested.go", "package nested\n\nimport \"github.com/idem-go/idem\"\n\nvar S idem.Store\n")
	put(t, r, "CHANGELOG.md", changelog)
	require.NoError(t, r.writeNext())
	for _, args := range [][]string{{"init", "-q"}, {"add", "-A"}} {
		cmd := exec.CommandContext(t.Context(), "git", args...)
		cmd.Dir = r.root
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
	return r
}

func put(t *testing.T, r repo, name, text string) {
	file := filepath.Join(r.root, name)
	require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o755))
	require.NoError(t, os.WriteFile(file, []byte(text), 0o644))
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
			put(t, r, c.file, c.text)
			require.ErrorContains(t, r.checkAPI(), c.says)
			require.NoError(t, r.writeNext())
			require.ErrorContains(t, r.checkAPI(), "does not name in backticks")
			put(t, r, "CHANGELOG.md", "# Changelog\n\n## Unreleased\n\n* "+c.symbol+" changed.\n\n## 0.0.1\n")
			require.NoError(t, r.checkAPI())
		})
	}
}

func TestTree(t *testing.T) {
	require.NoError(t, small(t).checkTree(t.Context()))
}

// Both faults are invisible while replace lines point to the working tree.
func TestTreeFails(t *testing.T) {
	for name, c := range map[string]struct{ file, text, says string }{
		"a replace line of another module": {
			"nested/go.mod", nestedMod + "\nreplace example.org/other => ../other\n", "not one of this repository's modules",
		},
		"an import from a module that is not released": {
			"nested/nested.go", "package nested\n\nimport _ \"github.com/idem-go/idem/absent\"\n", "github.com/idem-go/idem/absent",
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := small(t)
			put(t, r, c.file, c.text)
			require.ErrorContains(t, r.checkTree(t.Context()), c.says)
		})
	}
}

func TestUntidyFails(t *testing.T) {
	r := small(t)
	require.NoError(t, r.checkTidy(t.Context()))
	put(t, r, "nested/nested.go", "package nested\n")
	require.ErrorContains(t, r.checkTidy(t.Context()), "mod in")
}

func TestReleased(t *testing.T) {
	mod, err := released("module m\n\nreplace (\n\tgithub.com/idem-go/idem => ../..\n\tgithub.com/idem-go/idem/dedup/sqlstore => ../../dedup/sqlstore\n)\n\n"+
		"require (\n\texample.org/a v1.0.0\n\tgithub.com/idem-go/idem v0.0.0-0001 // indirect\n)\n", "v0.1.0")
	require.NoError(t, err)
	require.Equal(t, "module m\n\n\nrequire (\n\texample.org/a v1.0.0\n\tgithub.com/idem-go/idem v0.1.0 // indirect\n)\n", mod)
}

// A module has no files of the modules below it, which have a zip of their own.
func TestPack(t *testing.T) {
	r, tree, proxy := small(t), t.TempDir(), t.TempDir()
	require.NoError(t, r.writeTree(t.Context(), tree, "v0.1.0"))
	require.NoError(t, pack(tree, proxy, ".", "v0.1.0"))
	z, err := zip.OpenReader(filepath.Join(proxy, modulePath, "@v", "v0.1.0.zip"))
	require.NoError(t, err)
	defer func() { require.NoError(t, z.Close()) }()
	var names []string
	for _, f := range z.File {
		names = append(names, f.Name)
	}
	require.Contains(t, names, "github.com/idem-go/idem@v0.1.0/idem.go")
	require.NotContains(t, names, "github.com/idem-go/idem@v0.1.0/nested/nested.go")
}

func TestUsage(t *testing.T) {
	for _, args := range [][]string{nil, {"-modules", "."}, {"-modules", ".", "tree", "x"}, {"-modules", ".", "check", "x"}} {
		require.Error(t, run(t.Context(), args), args)
	}
}
