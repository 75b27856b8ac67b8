package main

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestRows keeps the list true: each old text occurs exactly once in its file, and each pattern
// matches a test. It runs no mutant.
func TestRows(t *testing.T) {
	root, err := findRoot()
	require.NoError(t, err)
	names, c := make(map[string]bool), newChecker(root)
	for _, m := range mutants() {
		assert.False(t, names[m.name], "%s: the name is used twice", m.name)
		names[m.name] = true
		require.NoError(t, c.mutant(&m), m.name)
	}
	assert.GreaterOrEqual(t, len(names), 150)
	t.Log(len(names), "rows")
}

// TestJudge shows that neither a compile error nor skipped tests refute a fault.
func TestJudge(t *testing.T) {
	for name, c := range map[string]struct {
		out  string
		want verdict
	}{
		"a test fails": {`{"Action":"fail","Test":"TestA"}` + "\n" + `{"Action":"fail"}`, refuted},
		"all pass":     {`{"Action":"pass","Test":"TestA"}` + "\n" + `{"Action":"pass"}`, survivor},
		"a panic":      {`{"Action":"run","Test":"TestA"}` + "\n" + `{"Action":"fail"}`, refuted},
		"a time-out": {`{"Action":"run","Test":"TestA"}` + "\n" + `{"Action":"output","Test":"TestA","Output":"panic: test timed out after 1m30s\n"}` +
			"\n" + `{"Action":"fail","Test":"TestA"}` + "\n" + `{"Action":"fail"}`, timedOut},
		"no test":       {`{"Action":"pass"}`, invalid},
		"all skipped":   {`{"Action":"skip","Test":"TestA"}` + "\n" + `{"Action":"pass"}`, invalid},
		"compile error": {`{"Action":"build-fail"}` + "\n" + `{"Action":"fail","FailedBuild":"x"}`, invalid},
	} {
		t.Run(name, func(t *testing.T) {
			res := judge([]byte(c.out))
			assert.Equal(t, c.want, res.verdict)
			assert.Equal(t, c.want == refuted || c.want == timedOut, len(res.failed) > 0, "the test is named")
		})
	}
}

// TestCheck shows that a row is refused if its text is missing or ambiguous, or its test is gone.
func TestCheck(t *testing.T) {
	root, err := findRoot()
	require.NoError(t, err)
	good := mutant{
		name: "n", file: "test/mutants/doc.go", old: "package main", with: "package other",
		promise: "p", tests: owner{pkg: "test/mutants", run: "^TestCheck$"},
	}
	c := newChecker(root)
	require.NoError(t, c.mutant(&good))
	for name, spoil := range map[string]func(*mutant){
		"missing text":   func(m *mutant) { m.old = "package missing" },
		"ambiguous text": func(m *mutant) { m.old = "the" },
		"no change":      func(m *mutant) { m.with = m.old },
		"no test":        func(m *mutant) { m.tests.run = "^TestThatIsGone$" },
		"one of two":     func(m *mutant) { m.tests.run = "^TestCheck$|^TestThatIsGone$" },
		"no promise":     func(m *mutant) { m.promise = "" },
	} {
		t.Run(name, func(t *testing.T) {
			m := good
			spoil(&m)
			assert.Error(t, c.mutant(&m))
		})
	}
}
