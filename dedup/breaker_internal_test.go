package dedup

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestBreaker(t *testing.T) {
	const ms = time.Millisecond
	type call struct {
		begin, end time.Duration
		how        callEnd
		refused    bool
	}
	fail := func(begin, end time.Duration) call { return call{begin: begin, end: end, how: callFailed} }
	good := func(begin, end time.Duration) call { return call{begin: begin, end: end, how: callAnswered} }
	left := func(begin, end time.Duration) call { return call{begin: begin, end: end, how: callUnknown} }
	refused := func(begin time.Duration) call { return call{begin: begin, end: begin, refused: true} }
	for name, calls := range map[string][]call{
		"three slow failures open it":              {fail(0, 1500*ms), fail(0, 1500*ms), fail(0, 1500*ms), refused(1501 * ms)},
		"two do not":                               {fail(0, 1500*ms), fail(1500*ms, 3000*ms), good(3000*ms, 3001*ms)},
		"nor do many quick ones":                   {fail(0, 1*ms), fail(1*ms, 2*ms), fail(2*ms, 3*ms), fail(3*ms, 999*ms), good(999*ms, 1000*ms)},
		"quick ones for a second do":               {fail(0, 1*ms), fail(500*ms, 501*ms), fail(999*ms, 1000*ms), refused(1000 * ms)},
		"an answer between them starts anew":       {fail(0, 600*ms), fail(0, 600*ms), good(600*ms, 601*ms), fail(602*ms, 1700*ms), fail(602*ms, 1700*ms), good(1700*ms, 1701*ms)},
		"failures that began before an answer":     {good(10*ms, 20*ms), fail(0, 1500*ms), fail(0, 1500*ms), fail(0, 1500*ms), good(1500*ms, 1501*ms)},
		"callers that leave say nothing":           {left(0, 1500*ms), left(0, 1500*ms), left(0, 1500*ms), left(0, 1500*ms), good(1500*ms, 1501*ms)},
		"open for a second, then one probe closes": {fail(0, 1500*ms), fail(0, 1500*ms), fail(0, 1500*ms), refused(2499 * ms), good(2500*ms, 2501*ms), good(2501*ms, 2502*ms)},
		"a probe that fails opens it again":        {fail(0, 1500*ms), fail(0, 1500*ms), fail(0, 1500*ms), fail(2500*ms, 4000*ms), refused(4999 * ms), good(5000*ms, 5001*ms), good(5001*ms, 5002*ms)},
		"a probe whose caller leaves is no probe":  {fail(0, 1500*ms), fail(0, 1500*ms), fail(0, 1500*ms), left(2500*ms, 2600*ms), good(2600*ms, 2601*ms), good(2602*ms, 2603*ms)},
		"an answer to an earlier call closes it":   {fail(0, 1500*ms), fail(0, 1500*ms), fail(0, 1500*ms), good(0, 1600*ms), good(1601*ms, 1602*ms)},
	} {
		t.Run(name, func(t *testing.T) {
			var b breaker
			zero := time.Unix(1000, 0)
			passes := make([]callPass, len(calls))
			begin := func(i int) {
				var ok bool
				passes[i], ok = b.begin(zero.Add(calls[i].begin))
				require.Equal(t, !calls[i].refused, ok, "call %d", i)
			}
			for i := range calls { // those that begin at zero begin together
				if calls[i].begin == 0 {
					begin(i)
				}
			}
			for i, c := range calls {
				if c.begin > 0 {
					begin(i)
				}
				if !c.refused {
					b.end(passes[i], zero.Add(c.end), c.how)
				}
			}
		})
	}
}

// While one call probes, no other is let through.
func TestBreaker_OneProbe(t *testing.T) {
	var b breaker
	now := time.Unix(1000, 0)
	for range breakAfter {
		b.end(callPass{began: now}, now.Add(breakSpan), callFailed)
	}
	now = now.Add(breakSpan + breakFor)
	probe, ok := b.begin(now)
	require.True(t, ok)
	for range 5 {
		_, ok := b.begin(now)
		require.False(t, ok)
	}
	b.end(probe, now, callAnswered)
	_, ok = b.begin(now)
	require.True(t, ok)
}
