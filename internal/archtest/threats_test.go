package archtest

import (
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"
)

// Every test that docs/threat-model.md names exists.
func TestThreatModelNamesTests(t *testing.T) {
	declared := make(map[string]bool)
	declaration := regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	for _, f := range files(t, ".go") {
		for _, m := range declaration.FindAllSubmatch(read(t, f), -1) {
			declared[string(m[1])] = true
		}
	}
	named := regexp.MustCompile("`(Test\\w+)`").FindAllSubmatch(read(t, "docs/threat-model.md"), -1)
	require.Greater(t, len(named), 20)
	for _, m := range named {
		require.True(t, declared[string(m[1])], "docs/threat-model.md: no test %s", m[1])
	}
}
