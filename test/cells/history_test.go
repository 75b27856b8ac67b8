package cells

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestHistory(t *testing.T) {
	at := func(second int, worker string, d deed, fence uint64) entry {
		return entry{time.Unix(int64(second), 0), worker, d, fence}
	}
	for name, c := range map[string]struct {
		history []entry
		rule    string // a part of the broken one; empty: none
	}{
		"one run": {[]entry{at(1, "a", claimed, 1), at(2, "a", effected, 1), at(3, "a", completed, 1)}, ""},
		"a take-over": {[]entry{at(1, "a", claimed, 1), at(2, "a", effected, 1), at(4, "b", claimed, 2),
			at(5, "b", effected, 2), at(6, "b", completed, 2)}, ""},
		"a late effect of the first holder": {[]entry{at(1, "a", claimed, 1), at(2, "b", claimed, 2),
			at(3, "b", completed, 2), at(4, "a", effected, 1)}, ""},
		"a request that is repeated":    {[]entry{at(1, "a", claimed, 1), at(2, "a", claimed, 1)}, ""},
		"entries in another order":      {[]entry{at(3, "a", completed, 1), at(1, "a", claimed, 1)}, ""},
		"an effect of an unknown fence": {[]entry{at(1, "a", claimed, 1), at(2, "a", effected, 0)}, ""},
		"a fence for two":               {[]entry{at(1, "a", claimed, 1), at(2, "b", claimed, 1)}, "granted before"},
		"a fence that falls":            {[]entry{at(1, "a", claimed, 2), at(2, "b", claimed, 1)}, "granted before"},
		"a run without a claim":         {[]entry{at(1, "a", effected, 1)}, "no claim"},
		"a run before its claim":        {[]entry{at(1, "a", effected, 1), at(2, "a", claimed, 1)}, "no claim"},
		"a run under a foreign claim":   {[]entry{at(1, "a", claimed, 1), at(2, "b", effected, 0)}, "no claim"},
		"two completed claims": {[]entry{at(1, "a", claimed, 1), at(2, "b", claimed, 2), at(3, "b", completed, 2),
			at(4, "a", completed, 1)}, "is completed"},
		"a claim of a done key": {[]entry{at(1, "a", claimed, 1), at(2, "a", completed, 1), at(3, "b", claimed, 2)},
			"is done"},
	} {
		t.Run(name, func(t *testing.T) {
			rules := broken(c.history, false)
			if c.rule == "" {
				require.Empty(t, rules)
				return
			}
			if name == "two completed claims" {
				require.Empty(t, broken(c.history, true))
			}
			require.NotEmpty(t, rules)
			require.Contains(t, strings.Join(rules, "; "), c.rule)
		})
	}
}
