package snippets

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestParse(t *testing.T) {
	for _, good := range []string{
		"a := 1\nf(a)",
		"func f() {\n}\n",
		"r.Use(f)\n\nfunc f() error {\n\treturn nil\n}\n",
		"type t struct {\n\tn int\n}\n\nfunc (t) f() {\n}\n\nuse(t{})",
		"Auth: f,\nName: \"x\",",
		"x, err := f()\n...\ng(func() error {...})",
		"var m = f(1)\n\nfunc g() int { return m }",
	} {
		require.NoError(t, parse(good), good)
	}
	for _, bad := range []string{"a := ", "func f( {\n}\n", "if x {\n", "f(a b)", "Auth: f,\nName \"x\","} {
		require.Error(t, parse(bad), bad)
	}
}

func TestFind(t *testing.T) {
	page := "# A\n\n```go\na := 1\n```\n\n* b\n\n    ```go\n    if a {\n        f()\n    }\n    ```\n\n```sh\nls\n```\n"
	require.Equal(t, []Snippet{
		{Page: "a.md", Line: 3, Text: "a := 1\n"},
		{Page: "a.md", Line: 9, Text: "if a {\n    f()\n}\n"},
	}, Find("a.md", page, "go"))
	require.Equal(t, []Snippet{{Page: "a.md", Line: 15, Text: "ls\n"}}, Find("a.md", page, "sh"))
}

func TestMissing(t *testing.T) {
	c, err := NewChecker("../..")
	require.NoError(t, err)
	for _, good := range []string{
		"idem.On[Order](r, handle, idem.ID(id))", "x := y.dedup.Absent", `"idem.Absent" // idem.Absent`,
		"...\nother.Absent()", "store.Claim()", "idem.\n\tOn(r)",
	} {
		require.NoError(t, c.missing(good), good)
	}
	require.EqualError(t, c.missing("idem.Absent(dedup.Nothing)\nidem.on()"), "package idem has no Absent\npackage dedup has no Nothing")
}

// The compiler finds a fault of a type in a program.
func TestCheck(t *testing.T) {
	c, err := NewChecker("../..")
	require.NoError(t, err)
	const program = "package main\n\nimport \"github.com/idem-go/idem/dedup\"\n\nfunc main() {\n\tvar s dedup.Store\n\t_ = s\n}\n"
	require.NoError(t, c.Check(t.Context(), Snippet{Page: "a.md", Line: 3, Text: program}))
	err = c.Check(t.Context(), Snippet{Page: "a.md", Line: 3, Text: strings.Replace(program, "_ = s", "_ = 1 + s", 1)})
	require.ErrorContains(t, err, "a.md:3: the Go code does not compile, correct it in the page: go vet:")
	require.ErrorContains(t, err, "mismatched types")
}
