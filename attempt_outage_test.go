package idem_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/dedup"
)

// Rule 18: the handler is taken at its word for as long as the policy says; then it is the event's
// fault.
func TestProcessor_UnavailableIsNotTheEventsFault_Rule18(t *testing.T) {
	for limit, want := range map[time.Duration]time.Duration{0: 15 * time.Minute, 10 * time.Second: 10 * time.Second} {
		t.Run(limit.String(), func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *bench) {
				b.on(failing(2000, idem.Unavailable(errBoom)), idem.Retry(idem.RetryPolicy{MaxAttempts: 2, InPlace: time.Hour, Outage: limit}))
				p := b.start()
				began := time.Now()
				require.NoError(t, p.Handle(t.Context(), message("e1", 0)))
				require.GreaterOrEqual(t, time.Since(began), want)
				require.Less(t, time.Since(began), want+5*time.Second)
				require.Greater(t, b.count("run 1"), 6, "no attempt is counted before")
				require.Equal(t, 1, b.count("run 2"))
				require.Equal(t, 1, b.count("dead letter: failed"))
			})
		})
	}
	t.Run("forever", func(t *testing.T) {
		inBubble(t, func(t *testing.T, b *bench) {
			b.on(failing(2000, idem.Unavailable(errBoom)), idem.Retry(idem.RetryPolicy{Outage: idem.Forever}))
			p := b.start()
			began := time.Now()
			require.NoError(t, p.Handle(t.Context(), message("e1", 0)))
			require.Greater(t, time.Since(began), 20*time.Minute)
			require.Equal(t, 2001, b.count("run 1"))
			require.Empty(t, b.sent.deadLetters())
		})
	})
}

// Time in which the store is down as well is no sign against the event. It does not count towards
// the policy's Outage.
func TestProcessor_OutageOfAllDoesNotCount_Rule18(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		began := time.Now()
		b.on(func(context.Context, idem.Event[payload]) error {
			b.store.pingErr = nil
			switch since := time.Since(began); {
			case since > 18*time.Second:
				return nil
			case since > 8*time.Second && since < 10*time.Second+2*time.Second:
				b.store.pingErr = errBoom
			}
			return idem.Unavailable(errBoom)
		}, idem.Retry(idem.RetryPolicy{MaxAttempts: 1, Outage: 10 * time.Second}))
		p := b.start()
		require.NoError(t, p.Handle(t.Context(), message("e1", 0)))
		require.Greater(t, time.Since(began), 18*time.Second)
		require.Empty(t, b.sent.deadLetters())
	})
}

func TestProcessor_UnavailableWaitsWhileTheStoreIsDownToo(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.store.pingErr = errBoom
		b.on(failing(50, idem.Unavailable(errBoom)))
		p := b.start()
		require.NoError(t, p.Handle(t.Context(), message("e1", 0)))
		require.Equal(t, 51, b.count("run 1"))
		require.Empty(t, b.sent.deadLetters())
	})
}

// An outage takes no time off the retries: an event that waited for its infrastructure has all of
// its attempts left.
func TestProcessor_OutageIsNoRetry(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.store.pingErr = errBoom
		n := 0
		b.on(func(context.Context, idem.Event[payload]) error {
			switch n++; {
			case n <= 30:
				return idem.Unavailable(errBoom)
			case n == 31:
				b.store.claimErr = times(30, dedup.ErrUnavailable) // and again, between two attempts
				return errBoom
			case n == 32:
				return errBoom
			}
			return nil
		})
		p := b.start()
		require.NoError(t, p.Handle(t.Context(), message("e1", 0)))
		require.Empty(t, b.sent.deadLetters())
		require.Equal(t, 1, b.count("run 3"))
	})
}

// A fallback is believed as handlers are, and its attempts begin when the time is over.
func TestNotFound_Unavailable_Rule18(t *testing.T) {
	for faults, letters := range map[int]int{100: 0, 2000: 1} {
		inBubble(t, func(t *testing.T, b *bench) {
			runs := 0
			b.router.NotFound(func(context.Context, *idem.Message) error {
				if runs++; runs > faults {
					return nil
				}
				return idem.Unavailable(errBoom)
			})
			b.on(succeed)
			began := time.Now()
			require.NoError(t, b.start().Handle(t.Context(), &idem.Message{Topic: "orders", Value: []byte(`{"type":"new"}`)}))
			require.Len(t, b.sent.deadLetters(), letters)
			if letters > 0 {
				require.GreaterOrEqual(t, time.Since(began), 15*time.Minute)
			} else {
				require.Equal(t, faults+1, runs)
			}
		})
	}
}

// An effect that happened is recorded in an outage shorter than a lease, however short the wait
// budget of the call.
func TestStoreDown_CompletionOutlastsTheLimit(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.cfg.BusyWait = time.Second
		began := time.Now()
		b.store.completeErr = func() error {
			if time.Since(began) < 5*time.Second { // a lease has 10
				return dedup.ErrUnavailable
			}
			return nil
		}
		b.on(succeed)
		p := b.start()
		require.NoError(t, p.Handle(t.Context(), message("e1", 0)))
		require.NoError(t, p.Handle(t.Context(), message("e1", 0)))
		require.Equal(t, 1, b.count("run 1"))
	})
}
