package dedup

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// A clock that was halted in time never cancels the function. Its timer may have fired
// just before, or the store may say only then that its request begins.
func TestHaltedClaimClockStaysHalted(t *testing.T) {
	const limit = time.Second
	for name, c := range map[string]struct {
		connected bool
		before    time.Duration
		late      func(*claimClock)
	}{
		"a tick before the deadline": {true, 0, (*claimClock).tick},
		"a tick at the deadline":     {true, limit, (*claimClock).tick},
		"a late connection":          {false, 0, (*claimClock).connected},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancelCause(t.Context())
				defer cancel(nil)
				clock := startClaimClock(newStoreCalls(nil, limit, time.Minute), cancel)
				if c.connected {
					clock.connected()
				}
				clock.timer.Stop() // it has fired, and its function waits for the lock
				time.Sleep(c.before)
				require.True(t, clock.halt())
				c.late(clock)
				time.Sleep(2 * limit)
				require.NoError(t, ctx.Err())
				require.True(t, clock.halt(), "there was time left")
			})
		})
	}
}
