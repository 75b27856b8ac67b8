package history

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestHistory(t *testing.T) {
	at := func(second int, worker string, d Deed, fence uint64) Entry {
		now := time.Unix(int64(second), 0)
		return Entry{now, now, worker, d, fence}
	}
	during := func(from, to int, worker string, d Deed, fence uint64) Entry {
		return Entry{time.Unix(int64(from), 0), time.Unix(int64(to), 0), worker, d, fence}
	}
	for name, c := range map[string]struct {
		history []Entry
		rule    string // a part of the broken rule; empty: no rule is broken
	}{
		"one run": {[]Entry{at(1, "a", Claimed, 1), at(2, "a", Effect, 1), at(3, "a", Completed, 1)}, ""},
		"a take-over": {[]Entry{at(1, "a", Claimed, 1), at(2, "a", Effect, 1), at(4, "b", Claimed, 2),
			at(5, "b", Effect, 2), at(6, "b", Completed, 2)}, ""},
		"a late effect of the first holder": {[]Entry{at(1, "a", Claimed, 1), at(2, "b", Claimed, 2),
			at(3, "b", Completed, 2), at(4, "a", Effect, 1)}, ""},
		"a request that is repeated":    {[]Entry{at(1, "a", Claimed, 1), at(2, "a", Claimed, 1)}, ""},
		"entries in another order":      {[]Entry{at(3, "a", Completed, 1), at(1, "a", Claimed, 1)}, ""},
		"an effect of an unknown fence": {[]Entry{at(1, "a", Claimed, 1), at(2, "a", Effect, 0)}, ""},
		"a fence for two":               {[]Entry{at(1, "a", Claimed, 1), at(2, "b", Claimed, 1)}, "granted before"},
		"a fence that falls":            {[]Entry{at(1, "a", Claimed, 2), at(2, "b", Claimed, 1)}, "granted before"},
		"a run without a claim":         {[]Entry{at(1, "a", Effect, 1)}, "no claim"},
		"a run before its claim":        {[]Entry{at(1, "a", Effect, 1), at(2, "a", Claimed, 1)}, "no claim"},
		"a run under a foreign claim":   {[]Entry{at(1, "a", Claimed, 1), at(2, "b", Effect, 0)}, "no claim"},
		"two completed claims": {[]Entry{at(1, "a", Claimed, 1), at(2, "b", Claimed, 2), at(3, "b", Completed, 2),
			at(4, "a", Completed, 1)}, "is completed"},
		"a claim of a done key": {[]Entry{at(1, "a", Claimed, 1), at(2, "a", Completed, 1), at(3, "b", Claimed, 2)},
			"is done"},
		"a claim of a key that was found done": {[]Entry{at(1, "b", Found, 0), at(2, "a", Claimed, 1)}, "is done"},
		"a claim that may be older than the end": {[]Entry{at(1, "a", Claimed, 1), during(2, 4, "a", Completed, 1),
			during(3, 5, "b", Claimed, 2)}, ""},
		"claims at the same time": {[]Entry{during(1, 3, "a", Claimed, 2), during(2, 4, "b", Claimed, 1)}, ""},
		"one fence at the same time": {[]Entry{during(1, 3, "a", Claimed, 1), during(2, 4, "b", Claimed, 1)},
			"granted before"},
	} {
		t.Run(name, func(t *testing.T) {
			rules := Broken(c.history, false)
			if c.rule == "" {
				require.Empty(t, rules)
				return
			}
			if name == "two completed claims" {
				require.Empty(t, Broken(c.history, true))
			}
			require.NotEmpty(t, rules)
			require.Contains(t, strings.Join(rules, "; "), c.rule)
		})
	}
}
