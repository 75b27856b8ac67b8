package decision

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// minute is a time n minutes after the beginning of the tests.
func minute(n int) time.Time {
	return time.Unix(1_000_000, 0).UTC().Add(time.Duration(n) * time.Minute)
}

func TestNextHorizon(t *testing.T) {
	row := func(made int) Expired { return Expired{Made: minute(made)} }
	full := func(made, limit int) Expired { return Expired{Made: minute(made), Limit: minute(limit)} }
	for name, c := range map[string]struct {
		old            time.Time
		rows           []Expired
		before, cutoff int
		none           bool
	}{
		"no expired row":         {rows: []Expired{{}, {}}, none: true},
		"the newest row of both": {rows: []Expired{row(3), row(4)}, before: 4, cutoff: 9},
		"one table is empty":     {rows: []Expired{{}, row(4)}, before: 4, cutoff: 9},
		"a horizon never goes back": {old: minute(6), rows: []Expired{row(3)}, before: 6,
			cutoff: 9},
		"the limit holds the cut-off": {rows: []Expired{full(3, 7), row(4)}, before: 4,
			cutoff: 7},
		"the limit of both, the earlier": {rows: []Expired{full(3, 7), full(4, 6)}, before: 4,
			cutoff: 6},
	} {
		t.Run(name, func(t *testing.T) {
			before, cutoff, some := NextHorizon(c.old, minute(9), c.rows...)
			require.Equal(t, !c.none, some)
			if some {
				require.Equal(t, []time.Time{minute(c.before), minute(c.cutoff)}, []time.Time{before, cutoff})
			}
		})
	}
}

// Reading from the last cut-off on always moves the cut-off.
func TestExpiredOnward(t *testing.T) {
	front := Expired{Made: minute(3), Limit: minute(5)}
	for name, c := range map[string]struct{ rest, want Expired }{
		"no row behind":             {want: Expired{Made: minute(3)}},
		"all rows behind were read": {rest: Expired{Made: minute(4)}, want: Expired{Made: minute(4)}},
		"an older row behind":       {rest: Expired{Made: minute(2)}, want: Expired{Made: minute(3)}},
		"more rows are behind": {rest: Expired{minute(4), minute(8)},
			want: Expired{minute(4), minute(8)}},
		"too many rows of one time": {rest: Expired{minute(4), minute(6)},
			want: Expired{minute(4), minute(6).Add(time.Microsecond)}},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, c.want, front.Onward(minute(6), c.rest))
		})
	}
}

// A full window ends behind its last row, so each window begins later than the one before it.
func TestWindowEnd(t *testing.T) {
	behind := func(n int) time.Time { return minute(n).Add(time.Microsecond) }
	for name, c := range map[string]struct {
		n     int
		last  time.Time
		until time.Time
		end   time.Time
		more  bool
	}{
		"no row":                   {until: minute(9), end: minute(9)},
		"fewer rows than a window": {n: 2, last: minute(3), until: minute(9), end: minute(9)},
		"a full window":            {n: 3, last: minute(3), until: minute(9), end: behind(3), more: true},
		"full up to the end":       {n: 3, last: minute(9), until: behind(9), end: behind(9)},
	} {
		t.Run(name, func(t *testing.T) {
			end, more := WindowEnd(c.n, 3, c.last, c.until)
			require.Equal(t, c.end, end)
			require.Equal(t, c.more, more)
		})
	}
}
