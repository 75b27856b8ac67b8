package dedup

import (
	"context"
	"sync"
	"time"
)

// connectionWait is how long a transaction waits for a connection of its pool. Other transactions
// may hold all connections for a while although the database answers.
const connectionWait = 10 * time.Second

// ClaimBegins notifies the guard that called [TxStore.ClaimTx] with ctx that the store has a
// connection and sends its request now: [GuardConfig].StoreTimeout counts from here. Without this
// call the guard waits ten seconds for the function to begin. Without a guard the call has no
// effect.
func ClaimBegins(ctx context.Context) {
	if c, ok := ctx.Value(claimClockKey{}).(*claimClock); ok {
		c.connected()
	}
}

type claimClockKey struct{}

// claimClock cancels a ClaimTx that does not call the function in time.
type claimClock struct {
	calls  *storeCalls
	cancel context.CancelCauseFunc
	began  time.Time

	mu       sync.Mutex
	timer    *time.Timer
	deadline time.Time // of the answer; zero: there is no connection yet
	expired  bool      // it has cancelled
	halted   bool      // it must not start again: its timer may have fired before the halt
}

func startClaimClock(calls *storeCalls, cancel context.CancelCauseFunc) *claimClock {
	c := &claimClock{calls: calls, cancel: cancel, began: time.Now()}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.timer = time.AfterFunc(calls.limit, c.tick)
	return c
}

func (c *claimClock) connected() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.deadline.IsZero() && !c.expired && !c.halted {
		c.deadline = time.Now().Add(c.calls.limit)
		c.timer.Reset(c.calls.limit)
	}
}

// tick gives up, or looks again later. A call that waits for a connection is given up here when
// other calls have opened the breaker.
func (c *claimClock) tick() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.halted {
		return
	}
	wait := time.Until(c.deadline)
	if c.deadline.IsZero() {
		wait = min(c.calls.limit, time.Until(c.began.Add(connectionWait)))
		if c.calls.breaker.open() {
			wait = 0
		}
	}
	if wait > 0 {
		c.timer.Reset(wait)
		return
	}
	c.expired = true
	c.cancel(errNoAnswer)
}

// halt stops the clock for good. It reports whether there was time left.
func (c *claimClock) halt() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.timer.Stop()
	c.halted = true
	return !c.expired
}

// withoutConnection reports whether the call has waited for a connection as long as it may.
func (c *claimClock) withoutConnection() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.deadline.IsZero() && time.Since(c.began) >= connectionWait
}
