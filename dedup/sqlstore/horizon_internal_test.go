package sqlstore

import (
	"testing"
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/stretchr/testify/require"
)

// at is a time n minutes after the beginning of the tests.
func at(n int) time.Time {
	return time.Unix(1_000_000, 0).UTC().Add(time.Duration(n) * time.Minute)
}

func TestAges(t *testing.T) {
	part := func(scope, topic string, partition int32, until time.Time) behind {
		return behind{scope, place{topic, partition}, until}
	}
	unknown := time.Time{}
	for name, c := range map[string]struct {
		progress  []behind
		horizon   horizon
		wallClock []string
		want      []ScopeAge
	}{
		"no scope": {},
		"the partition furthest behind": {
			progress: []behind{part("g", "t", 0, at(5)), part("g", "t", 1, at(3)), part("g", "a", 2, at(4))},
			want:     []ScopeAge{{Scope: "g", ConsumedUntil: at(3), Topic: "t", Partition: 1, ripe: true}},
		},
		"an unknown time is furthest": {
			progress: []behind{part("g", "t", 0, at(5)), part("g", "t", 1, unknown)},
			horizon:  horizon{at(1), at(2), at(3)},
			want:     []ScopeAge{{Scope: "g", Topic: "t", Partition: 1, Horizon: at(1), ripe: true}},
		},
		"a horizon that is old enough": {
			progress: []behind{part("g", "t", 0, at(9))}, horizon: horizon{at(1), at(2), at(8)},
			want: []ScopeAge{{Scope: "g", ConsumedUntil: at(9), Topic: "t", Horizon: at(1),
				cutoff: at(2), ripe: true}},
		},
		"a horizon that is too young": {
			progress: []behind{part("g", "t", 0, at(9))}, horizon: horizon{at(1), at(2), at(9)},
			want: []ScopeAge{{Scope: "g", ConsumedUntil: at(9), Topic: "t", Horizon: at(1), cutoff: at(2)}},
		},
		"a partition that went back since": {
			progress: []behind{part("g", "t", 0, at(2))}, horizon: horizon{at(1), at(5), at(8)},
			want: []ScopeAge{{Scope: "g", ConsumedUntil: at(2), Topic: "t", Horizon: at(1),
				cutoff: at(2), ripe: true}},
		},
		"a horizon by hand, without a cut-off": {
			progress: []behind{part("g", "t", 0, at(2))}, horizon: horizon{before: at(1)},
			want: []ScopeAge{{Scope: "g", ConsumedUntil: at(2), Topic: "t", Horizon: at(1), ripe: true}},
		},
		"the wall clock counts, whatever the progress": {
			progress:  []behind{part("g", "t", 0, unknown), part("z", "t", 0, at(1))},
			wallClock: []string{"g", "a", "g"},
			want: []ScopeAge{{Scope: "a", ConsumedUntil: at(10), ripe: true},
				{Scope: "g", ConsumedUntil: at(10), ripe: true},
				{Scope: "z", ConsumedUntil: at(1), Topic: "t", ripe: true}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			horizons := make(map[string]horizon)
			if c.horizon != (horizon{}) {
				horizons["g"] = c.horizon
			}
			require.Equal(t, c.want, ages(c.progress, horizons, c.wallClock, at(10), time.Minute))
		})
	}
}

func TestAdvance(t *testing.T) {
	for name, c := range map[string]struct {
		old  consumed
		p    dedup.Progress
		want consumed
	}{
		"new, without a time": {p: dedup.Progress{Next: 3},
			want: consumed{next: 3}},
		"new, with a time": {p: dedup.Progress{Next: 3, Time: at(4)},
			want: consumed{3, at(4)}},
		"a time ahead": {p: dedup.Progress{Next: 3, Time: at(40)},
			want: consumed{3, at(9)}},
		"without a lag": {p: dedup.Progress{Next: 3, Time: at(4), CaughtUp: true},
			want: consumed{3, at(9)}},
		"goes on without a time": {old: consumed{2, at(4)}, p: dedup.Progress{Next: 3},
			want: consumed{3, at(4)}},
		"stands still": {old: consumed{3, at(4)}, p: dedup.Progress{Next: 3},
			want: consumed{3, at(4)}},
		"went back": {old: consumed{4, at(4)}, p: dedup.Progress{Next: 3},
			want: consumed{next: 3}},
		"went back to a time": {old: consumed{4, at(4)}, p: dedup.Progress{Next: 3, Time: at(2)},
			want: consumed{3, at(2)}},
		"unknown stays so without a time": {old: consumed{next: 2}, p: dedup.Progress{Next: 3},
			want: consumed{next: 3}},
	} {
		t.Run(name, func(t *testing.T) { require.Equal(t, c.want, advance(c.old, &c.p, at(9))) })
	}
}
