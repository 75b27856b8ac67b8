package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const good = `=== RUN   TestSoak
    soak_test.go:112: soak: TestSoak/On on redisstore with kgoidem seed=7 size=1500 kills=4 cuts=6 rebalances=0 outcome=none lost | 6 repeats
    crash_test.go:9: soak: TestKills seed=8 size=2000000 kills=10 cuts=0 rebalances=3 outcome=each once
    soak_test.go:112: soak: TestSoak/OnTx on pgstore with consumer seed=9 size=3 kills=0 cuts=2 rebalances=0 outcome=none lost
--- PASS: TestSoak (1.0s)
ok  	github.com/idem-go/idem/test/soak	1.0s
`

func TestReport(t *testing.T) {
	dir := t.TempDir()
	log, page := filepath.Join(dir, "soak.log"), filepath.Join(dir, "proof.md")
	put := func(path, text string) { require.NoError(t, os.WriteFile(path, []byte(text), 0o600)) }
	put(page, "# Proof\n\ncells\n")
	put(log, good)
	for range 2 { // the second run replaces the section of the first one
		require.NoError(t, write(log, page, "abc123"))
	}
	text, err := os.ReadFile(page) //nolint:gosec // of this test
	require.NoError(t, err)
	require.Equal(t, 1, strings.Count(string(text), heading))
	for _, part := range []string{
		"# Proof\n\ncells\n\n## The soak\n", "commit abc123.", "**2,001,503 events**, 14 kills, 8 cuts, of them 2 of a COMMIT.",
		"All tests passed.", `| TestSoak/On on redisstore with kgoidem | 7 | 1,500 | 4 | 6 | none lost \| 6 repeats |`,
		"| TestKills | 8 | 2,000,000 | 10 | 0 | each once |",
	} {
		require.Contains(t, string(text), part)
	}
}

func TestReport_Failures(t *testing.T) {
	for name, c := range map[string]struct{ log, want string }{
		"a test":    {good + "    --- FAIL: TestSoak/On (1s)\n--- FAIL: TestSoak (1s)\n", "These tests or packages failed: TestSoak, TestSoak/On."},
		"a package": {good + "FAIL\tgithub.com/idem-go/idem [build failed]\n", "failed: github.com/idem-go/idem."},
		"a panic":   {good + "panic: boom\n", "failed: boom."},
	} {
		t.Run(name, func(t *testing.T) {
			r, err := parse(strings.NewReader(c.log))
			require.NoError(t, err)
			require.Contains(t, r.render(""), c.want)
			require.NotContains(t, r.render(""), "All tests")
		})
	}
	for name, log := range map[string]string{
		"an empty log": "", "another form": good + "soak: TestX seed=1 outcome=fine\n",
	} {
		t.Run(name, func(t *testing.T) {
			_, err := parse(strings.NewReader(log))
			require.Error(t, err)
		})
	}
}
