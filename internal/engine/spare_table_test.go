package engine

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/idemtype"
)

// Events run without the store from After on, for RunFor, and at most MaxEvents. A later outage has
// a new allowance only if the handler has rested for RunFor.
func TestAllowance(t *testing.T) {
	p := idemtype.UnavailablePolicy{RunFor: time.Minute, MaxEvents: 3, After: 5 * time.Second}
	type ask struct {
		since, at time.Duration // begin of the outage, and now
		ok        bool
	}
	for name, asks := range map[string][]ask{
		"too early":                      {{0, 4999 * time.Millisecond, false}, {0, 5 * time.Second, true}},
		"many events":                    {{0, 6 * time.Second, true}, {0, 6 * time.Second, true}, {0, 7 * time.Second, true}, {0, 7 * time.Second, false}},
		"long":                           {{0, 6 * time.Second, true}, {0, 65 * time.Second, true}, {0, 66 * time.Second, false}, {0, time.Hour, false}},
		"a long outage has one":          {{0, 6 * time.Second, true}, {0, 24 * time.Hour, false}, {0, 48 * time.Hour, false}},
		"outages in turn share one":      {{0, 6 * time.Second, true}, {10 * time.Second, 16 * time.Second, true}, {20 * time.Second, 26 * time.Second, true}, {30 * time.Second, 36 * time.Second, false}},
		"a later outage has another one": {{0, 6 * time.Second, true}, {0, 6 * time.Second, true}, {0, 6 * time.Second, true}, {50 * time.Second, 65 * time.Second, false}, {50 * time.Second, 66 * time.Second, true}},
		"a refused event takes nothing":  {{0, 6 * time.Second, true}, {0, 70 * time.Second, false}, {80 * time.Second, 90 * time.Second, true}},
	} {
		t.Run(name, func(t *testing.T) {
			var a allowance
			zero := time.Unix(1000, 0)
			for i, x := range asks {
				var ok bool
				a, ok = a.take(p, outage{zero.Add(x.since), zero.Add(x.since)}, zero.Add(x.at), false)
				require.Equal(t, x.ok, ok, "event %d", i)
			}
		})
	}
	b := allowance{}
	at := func(d time.Duration) time.Time { return time.Unix(1000, 0).Add(d) }
	once := idemtype.UnavailablePolicy{RunFor: time.Minute, MaxEvents: 1, After: 5 * time.Second}
	for i, x := range []struct {
		since, at time.Duration
		again, ok bool
	}{
		{0, 6 * time.Second, false, true},
		{0, 7 * time.Second, false, false},
		{0, 7 * time.Second, true, true},
		{0, 65 * time.Second, true, true},
		{0, 66 * time.Second, true, false},
		{100 * time.Second, 104 * time.Second, true, false}, // another outage
		{100 * time.Second, 124 * time.Second, true, false}, // too soon for a new allowance
		{100 * time.Second, 125 * time.Second, true, true},  // counted in the new one
		{100 * time.Second, 126 * time.Second, false, false},
		{100 * time.Second, 126 * time.Second, true, true},
	} {
		var ok bool
		b, ok = b.take(once, outage{at(x.since), at(x.since)}, at(x.at), x.again)
		require.Equal(t, x.ok, ok, "attempt %d", i)
	}
	// The store came back, and took no change meanwhile.
	a, ok := allowance{}.take(once, outage{at(0), at(0)}, at(6*time.Second), false)
	require.True(t, ok)
	_, ok = a.take(once, outage{at(time.Hour), at(0)}, at(time.Hour+6*time.Second), false)
	require.False(t, ok, "the same allowance")
	_, ok = a.take(once, outage{at(time.Hour), at(time.Minute)}, at(time.Hour+6*time.Second), false)
	require.True(t, ok, "another one")
	var none allowance
	_, ok = none.take(idemtype.UnavailablePolicy{}, outage{}, time.Unix(1000, 0), false)
	require.False(t, ok, "the zero policy waits")
}
