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
		_, err := parse(good)
		require.NoError(t, err, good)
	}
	for _, bad := range []string{"a := ", "func f( {\n}\n", "if x {\n", "f(a b)", "Auth: f,\nName \"x\","} {
		_, err := parse(bad)
		require.Error(t, err, bad)
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

func TestForm(t *testing.T) {
	for _, fence := range []string{"~~~go", "~~~ go", "````go", "```golang", "```Go", "```go title=\"x\"", "``` go", "   ```Go {1}"} {
		require.ErrorContains(t, Form("a.md", "# A\n\n"+fence+"\na := 1\n"), "a.md:3: ", fence)
	}
	for _, fence := range []string{"```go", "  ```go", "```sh", "```text", "```gotemplate", "~~~", "`go`"} {
		require.NoError(t, Form("a.md", "# A\n\n"+fence+"\na := 1\n"), fence)
	}
}

// A snippet may use names of the code around it. The known parts of the types must fit.
func TestTypes(t *testing.T) {
	c := NewChecker("../..")
	const page = "docs/ops.md"
	for _, good := range []string{
		"idem.On[Order](r, handle, idem.ID(id))",
		"x := y.dedup.Absent",
		"// idem.Absent",
		"...\nother.Absent()",
		"f(mine.Claim())",
		"idem.\n\tOn(r, name, f)",
		"return err",
		"if err != nil {\n\treturn nil, err\n}\nreturn page, nil",
		"ops.Config{Prefix: prefix}",
		"a, err := f()\n\na, err := f()",
		"Auth: f,\nPrefix: prefix,",
		"idem.OnTx(router, name, pay, options...)",
		"func pay(ctx context.Context, e idem.Event[Payment]) error {\n\treturn f(e.ID, e.Data.Cents, Payment{Cents: 1})\n}",
	} {
		require.NoError(t, c.Check(t.Context(), Snippet{Page: page, Line: 3, Text: good}), good)
	}
	for bad, says := range map[string]string{
		"x := 1\nidem.Absent(x)":              "docs/ops.md:5: undefined: idem.Absent",
		"ops.Config{Prefixx: prefix}":         "docs/ops.md:4: unknown field Prefixx in struct literal of type ops.Config",
		"Auth: f,\nPrefixx: prefix,":          "docs/ops.md:5: unknown field Prefixx",
		"m := ops.NewMonitor()\nm.Absent()":   "docs/ops.md:5: m.Absent undefined",
		"router.Absent(f)":                    "router.Absent undefined",
		"a, b := ops.NewMonitor()":            "assignment mismatch",
		"idem.ID(7)":                          "cannot use 7",
		"x.f(func() error {...}, fmt.Absent)": "undefined: fmt.Absent",
		"func pay(ctx context.Context) {\n}\n\nidem.OnTx(router, \"a\", pay)":                                               "docs/ops.md:7: in call to idem.OnTx, type func(ctx context.Context) of pay does not match",
		"idem.On(router, \"a\", func(ctx context.Context, e idem.Event[*Payment]) error { return f(e.Dat, e.Data.Cents) })": "e.Dat undefined",
		"f := func() {}\nf(a)": "docs/ops.md:5: f: too many arguments in the call",
		"func pay(ctx context.Context, tx pgx.Tx, e idem.Event[Payment]) error {...}\n\nidem.OnTx(\"a\", router, pay, 7)": "cannot use \"a\"",
		"idem.OnTx(router, pay)":            "not enough arguments in call to idem.OnTx",
		"idem.NewProcessor(router, pay, 1)": "too many arguments in call to idem.NewProcessor",
		// go/types does not report these, since pay has no type.
		"idem.OnTx(\"a\", router, pay)":       "idem.OnTx: cannot use \"a\" as *github.com/idem-go/idem.Router",
		"idem.OnTx(router, \"a\", pay, 7)":    "idem.OnTx: cannot use 7 as github.com/idem-go/idem.Option",
		"f(idem.OnTx(router, \"a\", pay, 7))": "idem.OnTx: cannot use 7 as",
	} {
		err := c.Check(t.Context(), Snippet{Page: page, Line: 3, Text: bad})
		require.ErrorContains(t, err, says, bad)
	}
}

// The compiler finds a fault of a type in a program.
func TestCheck(t *testing.T) {
	c := NewChecker("../..")
	const program = "package main\n\nimport \"github.com/idem-go/idem/dedup\"\n\nfunc main() {\n\tvar s dedup.Store\n\t_ = s\n}\n"
	require.NoError(t, c.Check(t.Context(), Snippet{Page: "a.md", Line: 3, Text: program}))
	err := c.Check(t.Context(), Snippet{Page: "a.md", Line: 3, Text: strings.Replace(program, "_ = s", "_ = 1 + s", 1)})
	require.ErrorContains(t, err, "a.md:3: the Go code does not compile, correct it in the page: go vet:")
	require.ErrorContains(t, err, "mismatched types")
}
