package idem_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/dedup"
)

// This file is about steps with an order or an outcome that decides whether an event is lost or
// handled twice.

// Rule 3: the record follows the acknowledged copy. With the order reversed the event waits for a
// copy that does not exist.
func TestLoss_CopyIsAcknowledgedBeforeItsRecord_Rule3(t *testing.T) {
	retry := []idem.Option{idem.Retry(idem.RetryPolicy{MaxAttempts: 1}), idem.RetryTopics(500 * time.Millisecond)}
	down := func(t *testing.T, b *bench) {
		b.cfg.BusyWait = time.Second
		b.sent.fail = func(*idem.Message) error { return errBoom }
		p := b.start()
		require.ErrorIs(t, p.Handle(t.Context(), message("e1", 0)), dedup.ErrUnavailable)
		b.sent.fail = nil
		require.NoError(t, p.Handle(t.Context(), message("e1", 0)))
		require.NotEmpty(t, b.deliverCopies(), "no copy was ever made: %v", b.all())
	}
	t.Run("claimed", func(t *testing.T) {
		inBubble(t, func(t *testing.T, b *bench) {
			done := 0
			b.on(func(_ context.Context, e idem.Event[payload]) error {
				if e.Attempt < 2 {
					return errBoom
				}
				done++
				return nil
			}, retry...)
			down(t, b)
			require.Equal(t, 1, done, "%v", b.all())
		})
	})
	t.Run("transactional", func(t *testing.T) {
		inTxBubble(t, func(t *testing.T, b *bench, s *txStore) {
			b.onTx(func(context.Context, fakeTx, idem.Event[payload]) error { return errBoom }, retry...)
			down(t, b)
			require.Equal(t, 2, b.count("run 1"), "%v", b.all())
		})
	})
}

// Rule 5: at most once. The dead letter of a failed run cannot be sent, so the claim is given back
// in doubt. The event never runs again.
func TestLoss_AtMostOnceWithoutProducer_Rule5(t *testing.T) {
	deliver := func(t *testing.T, b *bench, class idem.Class) {
		b.cfg.BusyWait = time.Second
		b.sent.fail = func(*idem.Message) error { return errBoom }
		p := b.start()
		for range 3 {
			require.ErrorIs(t, p.Handle(t.Context(), message("e1", 0)), dedup.ErrUnavailable)
		}
		b.sent.fail = nil
		require.NoError(t, p.Handle(t.Context(), message("e1", 0)))
		require.Equal(t, 1, b.count("run 1"), "%v", b.all())
		require.Zero(t, b.count("run 2"), "%v", b.all())
		require.Equal(t, 1, b.count("dead letter: "+string(class)))
	}
	for name, opts := range map[string][]idem.Option{
		"dead letter":   nil,
		"delayed retry": {idem.RetryTopics(5 * time.Second)},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *bench) {
				b.on(failing(1<<20, errBoom), append(opts, idem.WhenUncertain(idem.DeadLetterUncertain))...)
				deliver(t, b, idem.ClassUncertain)
			})
		})
	}
	t.Run("batch", func(t *testing.T) {
		inBubble(t, func(t *testing.T, b *bench) {
			b.cfg.BusyWait = time.Second
			b.sent.fail = func(*idem.Message) error { return errBoom }
			runs := 0
			b.onBatch(func(_ context.Context, events []idem.Event[payload]) error { runs += len(events); return errBoom },
				idem.WhenUncertain(idem.DeadLetterUncertain))
			p := b.start()
			for range 3 {
				_, err := p.HandleBatch(t.Context(), series(3))
				require.ErrorIs(t, err, dedup.ErrUnavailable)
			}
			b.sent.fail = nil
			_, err := p.HandleBatch(t.Context(), series(3))
			require.NoError(t, err)
			require.Equal(t, 3, runs, "%v", b.all())
			require.Len(t, b.sent.deadLetters(), 3)
		})
	})
}

// A claim that is lost at the completion of a batch is no success. The store is asked again, and an
// event that no other worker has handled runs.
func TestLoss_ClaimLostAtCompletionOfABatch(t *testing.T) {
	for _, batch := range []bool{true, false} {
		inBubble(t, func(t *testing.T, b *bench) {
			var again []string
			seen := map[string]int{}
			note := func(e idem.Event[payload]) {
				if seen[e.ID]++; seen[e.ID] > 1 {
					again = append(again, e.ID)
				}
			}
			if batch {
				b.onBatch(func(_ context.Context, events []idem.Event[payload]) error {
					for _, e := range events {
						note(e)
					}
					return nil
				})
			} else {
				b.on(func(_ context.Context, e idem.Event[payload]) error { note(e); return nil })
			}
			lost := []int{1}
			if !batch {
				lost = []int{0} // completed one by one
			}
			b.store.completeErr = times(1, &dedup.LostError{Claims: lost})
			var settled []int
			first := time.Now()
			require.NoError(t, b.start().Settle(t.Context(), series(3), func(n int) {
				settled = append(settled, n)
				if n > lost[0] && time.Since(first) < 9*time.Second {
					t.Errorf("event %d was settled before its claim was over", lost[0])
				}
			}))
			require.Equal(t, []string{[]string{"e000", "e001"}[lost[0]]}, again, "%v", b.all())
			require.Equal(t, 3, settled[len(settled)-1])
		})
	}
}

// Equal IDs in different scopes are different events, and the store is asked in the scope of the
// handler.
func TestScope(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.on(succeed)
		idem.On(b.router, "mailed", func(context.Context, idem.Event[payload]) error { b.add("run mailed"); return nil }, idem.Scope("mail"))
		p := b.start()
		m := message("e1", 1)
		m.Value = []byte(`{"event_id":"e1","type":"mailed"}`)
		require.NoError(t, p.Handle(t.Context(), message("e1", 0)))
		require.NoError(t, p.Handle(t.Context(), m))
		for _, key := range []dedup.Key{{Scope: "g", Type: "paid", ID: "e1"}, {Scope: "mail", Type: "mailed", ID: "e1"}} {
			r, err := b.store.Inspect(t.Context(), key)
			require.NoError(t, err, key)
			require.Len(t, r, 1, "%v", key)
			require.Equal(t, dedup.Finished, r[0].State)
		}
		r, err := b.store.Inspect(t.Context(), dedup.Key{Scope: "g", Type: "mailed", ID: "e1"})
		require.NoError(t, err)
		require.Empty(t, r)
	})
	// Two groups share a store and a scope, so each knows the events that the other has handled. In
	// a scope of its own a group does not.
	for scope, runs := range map[string]int{"shared": 1, "its own": 2} {
		inBubble(t, func(t *testing.T, b *bench) {
			b.on(succeed, idem.Scope("shared"))
			require.NoError(t, b.start().Handle(t.Context(), message("e1", 0)))
			other := newBench(t)
			other.journal, other.cfg.Store, other.cfg.Scope = b.journal, b.store, "another"
			other.on(succeed, idem.Scope(scope))
			require.NoError(t, other.start().Handle(t.Context(), message("e1", 0)))
			require.NoError(t, other.p.Close())
			require.Equal(t, runs, b.count("run 1"))
		})
	}
}
