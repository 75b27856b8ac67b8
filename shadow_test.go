package idem_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/observe"
)

// duplicates keeps the events of a DuplicateObserver.
type duplicates struct{ seen []observe.DuplicateEvent }

func (d *duplicates) ObserveDuplicate(_ context.Context, e observe.DuplicateEvent) {
	d.seen = append(d.seen, e)
}

// A consumer in shadow mode runs every event, and reports the events that it would have skipped.
// Without shadow mode it skips them.
func TestShadow_CountsAndRuns(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		var found duplicates
		b.cfg.Shadow, b.cfg.Observers = true, []observe.Observer{&found}
		b.on(succeed)
		b.start()
		msgs := []*idem.Message{message("e1", 1), message("e1", 2), message("e2", 3), message("e1", 4)}
		n, err := b.p.HandleBatch(t.Context(), msgs)
		require.NoError(t, err)
		require.Equal(t, 4, n)
		require.Equal(t, 4, b.count("run 1"), "%v", b.all())
		require.Len(t, found.seen, 2)
		for _, e := range found.seen {
			require.True(t, e.Shadow)
			require.Equal(t, dedup.Done, e.Verdict)
		}

		serious := b.cfg
		serious.Shadow = false
		p, err := idem.NewProcessor(b.router, serious)
		require.NoError(t, err)
		defer p.Close()
		_, err = p.HandleBatch(t.Context(), msgs)
		require.NoError(t, err)
		require.Equal(t, 4, b.count("run 1"), "what was done in the shadow is done")
		require.False(t, found.seen[len(found.seen)-1].Shadow)
	})
}

func TestShadow_FailuresMeetTheirPolicy(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.cfg.Shadow = true
		fail := false
		b.on(func(context.Context, idem.Event[payload]) error {
			if fail {
				return errBoom
			}
			return nil
		}, idem.Retry(idem.RetryPolicy{MaxAttempts: 2}))
		b.start()
		require.NoError(t, b.p.Handle(t.Context(), message("e1", 1)))
		fail = true
		require.NoError(t, b.p.Handle(t.Context(), message("e1", 2)))
		require.Equal(t, []string{
			"claim: fresh", "run 1", "complete: done", "claim: done", "run 1", "claim: done", "run 2", "dead letter: failed",
		}, b.all())
	})
}

func TestShadow_RefusesWhatNeedsAStore(t *testing.T) {
	b := newBench(t)
	b.cfg.Shadow = true
	b.on(succeed, idem.RetryTopics(time.Second))
	_, err := idem.NewProcessor(b.router, b.cfg)
	require.ErrorContains(t, err, "Config.Shadow")
}

// T-07: when all runs fail, the retries of all events together are bounded, however many events
// there are.
func TestBudget_BoundsRetries(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		const lanes, each = 50, 20
		began := time.Now()
		b.on(func(context.Context, idem.Event[payload]) error { return errBoom }, idem.Retry(idem.RetryPolicy{MaxAttempts: 3}))
		b.start()
		done := make(chan error, lanes)
		for lane := range lanes {
			go func() {
				for i := range each {
					m := message(fmt.Sprintf("e%d-%d", lane, i), int64(i))
					if err := b.p.Handle(t.Context(), m); err != nil {
						done <- err
						return
					}
				}
				done <- nil
			}()
		}
		for range lanes {
			require.NoError(t, <-done)
		}
		retries := b.count("run 2") + b.count("run 3")
		require.Equal(t, 2*lanes*each, retries, "the wait for the budget takes no try away")
		perSecond := float64(retries-100) / time.Since(began).Seconds()
		require.InDelta(t, 10, perSecond, 1)
		require.Len(t, b.sent.deadLetters(), lanes*each)
	})
}

// Successes pay for retries: a few failures among many events are not slowed down.
func TestBudget_SuccessesPay(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		began := time.Now()
		failed := map[string]bool{}
		b.on(func(_ context.Context, e idem.Event[payload]) error {
			if e.Message.Offset%10 == 0 && !failed[e.ID] {
				failed[e.ID] = true
				return errBoom
			}
			return nil
		}, idem.Retry(idem.RetryPolicy{MinBackoff: time.Millisecond, MaxBackoff: time.Millisecond}))
		b.start()
		for i := range int64(3000) {
			require.NoError(t, b.p.Handle(t.Context(), message(fmt.Sprint(i), i)))
		}
		require.Less(t, time.Since(began), time.Second)
	})
}

// An event that would have been skipped counts once, however often it fails, and after each kind of
// wait.
func TestShadow_CountsOnce(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		var found duplicates
		b.cfg.Shadow, b.cfg.Observers = true, []observe.Observer{&found}
		runs := 0
		b.on(func(context.Context, idem.Event[payload]) error {
			switch runs++; runs {
			case 2, 3:
				return errBoom
			case 4:
				return idem.Unavailable(errBoom)
			}
			return nil
		})
		b.start()
		require.NoError(t, b.p.Handle(t.Context(), message("e1", 1)))
		require.NoError(t, b.p.Handle(t.Context(), message("e1", 2)))
		require.Equal(t, 5, runs)
		require.Len(t, found.seen, 1)
	})
}

// After a run that was cut short an event runs again in shadow mode, as it did before there was a
// store. This also holds if the policy is to give the event up.
func TestShadow_UncertainRuns(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.cfg.Shadow = true
		b.on(succeed, idem.WhenUncertain(idem.DeadLetterUncertain))
		b.start()
		req := []dedup.Request{{Key: dedup.Key{Scope: "g", Type: "paid", ID: "e1"}, Retention: time.Hour}}
		require.NoError(t, b.store.Store.Claim(t.Context(), dedup.NewToken(), time.Second, req, make([]dedup.Answer, 1)))
		time.Sleep(time.Minute)
		require.NoError(t, b.p.Handle(t.Context(), message("e1", 1)))
		require.Equal(t, 1, b.count("run 1"), "%v", b.all())
		require.Empty(t, b.sent.deadLetters())
	})
}

// shadowStore is a store that also runs transactions without a claim.
type shadowStore struct {
	*txStore
	runTx func() error // instead of the commit
}

func (s *shadowStore) RunTx(_ context.Context, _ time.Duration, fn func(fakeTx) error) error {
	effects := 0
	if err := fn(fakeTx{&effects}); err != nil {
		return err
	}
	if err := call(s.runTx); err != nil {
		return err
	}
	s.effects += effects
	return nil
}

// Rule 10: work that a handler kept for the end of a transaction without a claim meets a lock of
// another transaction. That is no failure of the event. A refused commit is one, as without shadow
// mode.
func TestShadow_WaitsBeforeCommit_Rule10(t *testing.T) {
	inTxBubble(t, func(t *testing.T, b *bench, s *txStore) {
		store := &shadowStore{txStore: s}
		b.cfg.Shadow, b.cfg.Store = true, store
		b.onTx(failingTx(0, nil), idem.Retry(idem.RetryPolicy{MaxAttempts: 2}))
		p := b.start()
		require.NoError(t, p.Handle(t.Context(), message("e1", 0)))
		store.runTx = times(50, dedup.ErrContended)
		require.NoError(t, p.Handle(t.Context(), message("e1", 0)))
		require.Equal(t, 1+51, b.count("run 1"))
		require.Equal(t, 2, s.effects)
		require.Empty(t, b.sent.deadLetters())
		store.runTx = times(50, errBoom)
		require.NoError(t, p.Handle(t.Context(), message("e1", 0)))
		require.Equal(t, 1+51+1, b.count("run 1"))
		require.Equal(t, 1, b.count("run 2"))
		require.Len(t, b.sent.deadLetters(), 1)
	})
}
