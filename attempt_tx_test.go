package idem_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/deadletter"
	"github.com/idem-go/idem/dedup"
)

// fakeTx is a transaction that only counts.
type fakeTx struct{ effects *int }

// txStore is a TxStore with a map for its transactions. A test chooses where it fails.
type txStore struct {
	*spy
	mu      sync.Mutex
	state   map[dedup.Key]dedup.Answer
	starts  map[start]uint32
	effects int

	busy      func() bool
	committed bool         // fn sends COMMIT as SQL: its effects stay, also if it fails
	beforeErr func() error // before fn
	commitErr func() error // instead of the commit
	lateBusy  func() bool  // before it: another transaction has a lock that it needs
	afterErr  func() error // after it
}

func newTxStore(b *bench) *txStore {
	return &txStore{spy: b.store, state: map[dedup.Key]dedup.Answer{}, starts: map[start]uint32{}}
}

func (s *txStore) ClaimTx(_ context.Context, _ time.Duration, reqs []dedup.Request, answers []dedup.Answer,
	fn func(fakeTx) ([]dedup.Completion, error),
) error {
	if err := call(s.beforeErr); err != nil {
		return err
	}
	if s.busy != nil && s.busy() {
		answers[0].Verdict = dedup.Busy
		s.add("tx: busy")
		return nil
	}
	key := reqs[0].Key
	if a, ok := s.state[key]; ok {
		answers[0] = a
		s.add("tx: %s", a.Verdict)
		return nil
	}
	answers[0] = dedup.Answer{Verdict: dedup.Fresh, First: reqs[0].Origin}
	effects := 0
	done, err := fn(fakeTx{&effects})
	if err == nil {
		err = call(s.commitErr)
	}
	if err != nil && s.committed {
		s.state[key] = dedup.Answer{Verdict: dedup.Done, First: reqs[0].Origin}
		s.effects += effects
		s.add("tx: ended by fn")
		return fmt.Errorf("%w: %w", dedup.ErrTxEnded, err)
	}
	if err != nil {
		s.add("tx: rolled back")
		return err
	}
	if s.lateBusy != nil && s.lateBusy() {
		answers[0] = dedup.Answer{Verdict: dedup.Busy}
		s.add("tx: busy before commit")
		return nil
	}
	after := dedup.Answer{Verdict: dedup.Done, First: reqs[0].Origin}
	if len(done) > 0 && done[0].Dead != "" {
		after.Verdict, after.Reason = dedup.Dead, done[0].Dead
	}
	s.state[key] = after
	s.effects += effects
	s.add("tx: committed %s", after.Verdict)
	return call(s.afterErr)
}

type start struct {
	key    dedup.Key
	offset int64
}

func (s *txStore) CountStart(_ context.Context, k dedup.Key, o dedup.Origin) (uint32, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.starts[start{k, o.Offset}]++
	return s.starts[start{k, o.Offset}], nil
}

func (s *txStore) ClearStarts(_ context.Context, k dedup.Key, o dedup.Origin) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.starts, start{k, o.Offset})
	return nil
}

func (b *bench) onTx(fn func(context.Context, fakeTx, idem.Event[payload]) error, opts ...idem.Option) {
	idem.OnTx(b.router, "paid", func(ctx context.Context, tx fakeTx, e idem.Event[payload]) error {
		b.add("run %d", e.Attempt)
		*tx.effects++
		return fn(ctx, tx, e)
	}, opts...)
}

func inTxBubble(t *testing.T, f func(t *testing.T, b *bench, s *txStore)) {
	t.Helper()
	inBubble(t, func(t *testing.T, b *bench) {
		s := newTxStore(b)
		b.cfg.Store = s
		f(t, b, s)
	})
}

func failingTx(n int, err error) func(context.Context, fakeTx, idem.Event[payload]) error {
	f := times(n, err)
	return func(context.Context, fakeTx, idem.Event[payload]) error { return f() }
}

func TestTx_Idempotent(t *testing.T) {
	inTxBubble(t, func(t *testing.T, b *bench, s *txStore) {
		b.onTx(failingTx(0, nil))
		p := b.start()
		for offset := range int64(3) {
			require.NoError(t, p.Handle(t.Context(), message("e1", offset)))
		}
		require.Equal(t, []string{"run 1", "tx: committed done", "tx: done", "tx: done"}, b.all())
		require.Equal(t, 1, s.effects)
	})
}

func TestTx_FailureRollsBackAndIsTriedAgain(t *testing.T) {
	inTxBubble(t, func(t *testing.T, b *bench, s *txStore) {
		b.onTx(failingTx(2, errBoom))
		p := b.start()
		require.NoError(t, p.Handle(t.Context(), message("e1", 0)))
		require.Equal(t, []string{"run 1", "tx: rolled back", "run 2", "tx: rolled back", "run 3", "tx: committed done"}, b.all())
		require.Equal(t, 1, s.effects)
	})
}

// Rule 6: the dead letter is acknowledged before dead is recorded, in a transaction without the
// handler's effects.
func TestTx_GivenUp(t *testing.T) {
	inTxBubble(t, func(t *testing.T, b *bench, s *txStore) {
		b.onTx(failingTx(1, idem.Permanent(errBoom)))
		p := b.start()
		require.NoError(t, p.Handle(t.Context(), message("e1", 0)))
		require.Equal(t, []string{"run 1", "tx: rolled back", "dead letter: permanent", "tx: committed dead"}, b.all())
		require.Zero(t, s.effects)
		require.NoError(t, p.Handle(t.Context(), message("e1", 0)))
		require.Len(t, b.sent.deadLetters(), 1, "the same record again")
		require.NoError(t, p.Handle(t.Context(), message("e1", 7)))
		require.Len(t, b.sent.deadLetters(), 2, "a copy is never dropped")
	})
}

// P-11: whether it was committed is asked of the store.
func TestTx_UnknownCommit(t *testing.T) {
	unknown := errors.Join(dedup.ErrUnavailable, dedup.ErrUnknownCommit)
	inTxBubble(t, func(t *testing.T, b *bench, s *txStore) {
		s.afterErr = times(1, unknown) // it was
		b.onTx(failingTx(0, nil))
		p := b.start()
		require.NoError(t, p.Handle(t.Context(), message("e1", 0)))
		require.Equal(t, []string{"run 1", "tx: committed done", "tx: done"}, b.all())
		s.commitErr = times(1, unknown) // it was not
		require.NoError(t, p.Handle(t.Context(), message("e2", 1)))
		require.Equal(t, []string{"run 1", "tx: rolled back", "run 1", "tx: committed done"}, b.all()[3:])
		require.Equal(t, 2, s.effects)
		require.Empty(t, b.sent.deadLetters())
	})
}

// P-26, T-03: the database's fault is nobody's attempt and never a dead letter.
func TestTx_Outage(t *testing.T) {
	inTxBubble(t, func(t *testing.T, b *bench, s *txStore) {
		s.beforeErr = times(50, dedup.ErrUnavailable)
		b.onTx(failingTx(0, nil))
		p := b.start()
		require.NoError(t, p.Handle(t.Context(), message("e1", 0)))
		require.Equal(t, []string{"run 1", "tx: committed done"}, b.all())
		require.Equal(t, 1, strings.Count(b.log.String(), "unavailable, pausing"))
		require.Equal(t, 1, strings.Count(b.log.String(), "is back"))
	})
}

// Rule 18: the query of an event takes the database down each time. The event is found, because the
// database answers in between.
func TestTx_EventThatBreaksItsDatabase(t *testing.T) {
	inTxBubble(t, func(t *testing.T, b *bench, _ *txStore) {
		b.onTx(failingTx(1000, dedup.ErrUnavailable), idem.Retry(idem.RetryPolicy{InPlace: time.Hour, MaxAttempts: 2}))
		p := b.start()
		require.NoError(t, p.Handle(t.Context(), message("e1", 0)))
		require.Equal(t, 1, b.count("dead letter: failed"))
		require.Equal(t, 6, b.count("run 1"))
	})
}

// Rule 18: a transaction leaves no trace of an event that kills its process, so starts are counted
// outside.
func TestTx_CrashLoop(t *testing.T) {
	inTxBubble(t, func(t *testing.T, b *bench, s *txStore) {
		key := dedup.Key{Scope: "g", Type: "paid", ID: "e1"}
		s.starts[start{key, 0}] = 3 // three processes died
		s.starts[start{key, 8}] = 1 // a copy is being handled now
		b.onTx(failingTx(0, nil))
		p := b.start()
		require.NoError(t, p.Handle(t.Context(), message("e1", 0)))
		require.Equal(t, []string{"dead letter: crash-loop", "tx: committed dead"}, b.all())
		require.Equal(t, "3", headerOf(b.sent.deadLetters()[0], deadletter.HeaderAttempts))
		require.NoError(t, p.Handle(t.Context(), message("e2", 1)))
		require.Equal(t, map[start]uint32{{key, 8}: 1}, s.starts, "an end clears its own")
	})
}

func TestTx_StartsAreCountedOnlyAfterAnAssignment(t *testing.T) {
	inTxBubble(t, func(t *testing.T, b *bench, s *txStore) {
		seen := 0
		b.onTx(func(context.Context, fakeTx, idem.Event[payload]) error { seen += len(s.starts); return nil })
		p := b.start()
		batch := func(from int64) (msgs []*idem.Message) {
			for i := range int64(30) {
				msgs = append(msgs, message(time.Unix(from+i, 0).String(), from+i))
			}
			return msgs
		}
		_, err := p.HandleBatch(t.Context(), batch(0))
		require.NoError(t, err)
		require.Equal(t, 16, seen)
		p.Assigned("orders", 1)
		_, err = p.HandleBatch(t.Context(), batch(100))
		require.NoError(t, err)
		require.Equal(t, 32, seen)
	})
}

// Rule 10: a copy that another transaction holds is Busy, however long; it is never given up for
// that.
func TestTx_BusyIsWaitedFor(t *testing.T) {
	inTxBubble(t, func(t *testing.T, b *bench, s *txStore) {
		n := 0
		s.busy = func() bool { n++; return n <= 100 }
		b.onTx(failingTx(0, nil))
		p := b.start()
		require.NoError(t, p.Handle(t.Context(), message("e1", 0)))
		require.Equal(t, 100, b.count("tx: busy"))
		require.Equal(t, 1, b.count("run 1"))
		require.Empty(t, b.sent.deadLetters())
	})
}

// An event that ran here since its first wait was not held elsewhere for all that time.
func TestTx_BusyForLongIsCountedFromTheLastRun(t *testing.T) {
	inTxBubble(t, func(t *testing.T, b *bench, s *txStore) {
		busyAt := map[int]bool{1: true, 100: true}
		n := 0
		s.busy = func() bool { n++; return busyAt[n] }
		began := time.Now()
		b.onTx(func(context.Context, fakeTx, idem.Event[payload]) error {
			if time.Since(began) < 3*time.Minute {
				return idem.Unavailable(errBoom)
			}
			return nil
		})
		require.NoError(t, b.start().Handle(t.Context(), message("e1", 0)))
		require.Equal(t, 2, b.count("tx: busy"))
		require.NotContains(t, b.log.String(), "held elsewhere for long")
	})
}

// Rules 10 and 22: work that a handler kept for the end of its transaction meets a lock of another
// transaction. The event waits, however long. No attempt is counted, and the event is never given
// up for that.
func TestTx_BusyBeforeCommitIsWaitedFor_Rule10(t *testing.T) {
	inTxBubble(t, func(t *testing.T, b *bench, s *txStore) {
		n := 0
		s.lateBusy = func() bool { n++; return n <= 100 }
		b.onTx(failingTx(0, nil), idem.Retry(idem.RetryPolicy{MaxAttempts: 1}))
		p := b.start()
		require.NoError(t, p.Handle(t.Context(), message("e1", 0)))
		require.Equal(t, 100, b.count("tx: busy before commit"))
		require.Equal(t, 101, b.count("run 1"), "always the first attempt")
		require.Equal(t, 1, s.effects)
		require.Empty(t, b.sent.deadLetters())
	})
}

// P-13: a handler keeps work for the end of its transaction, and ends the transaction by itself.
// The next claim finds the event done, and the log names the mistake once.
func TestTx_EndedTransactionIsSaidOnce_P13(t *testing.T) {
	inTxBubble(t, func(t *testing.T, b *bench, s *txStore) {
		s.commitErr = times(1, dedup.ErrTxEnded)
		b.onTx(failingTx(0, nil))
		p := b.start()
		require.NoError(t, p.Handle(t.Context(), message("e1", 0)))
		require.Equal(t, 1, strings.Count(b.log.String(), "level=ERROR"))
		require.Contains(t, b.log.String(), "handler ended its transaction")
	})
}

// P-13: a handler sends COMMIT as SQL, and then its event fails for good. Neither the log nor the
// dead letter says that all of it was rolled back.
func TestTx_EndedTransactionIsSaidInADeadLetter_P13(t *testing.T) {
	inTxBubble(t, func(t *testing.T, b *bench, s *txStore) {
		s.committed = true
		b.onTx(failingTx(1, idem.Permanent(errBoom)))
		p := b.start()
		require.NoError(t, p.Handle(t.Context(), message("e1", 0)))
		require.Equal(t, []string{
			"run 1", "tx: ended by fn", "dead letter: permanent", "tx: done",
		}, b.all())
		require.Equal(t, 1, s.effects)
		require.Equal(t, 1, strings.Count(b.log.String(), "handler ended its transaction"))
		text := headerOf(b.sent.deadLetters()[0], deadletter.HeaderError)
		require.Contains(t, text, dedup.ErrTxEnded.Error())
		require.Contains(t, text, errBoom.Error())
	})
}

// Rule 13: rolling back is free, so a transaction is cancelled at once.
func TestTx_StopCancelsAtOnce(t *testing.T) {
	inTxBubble(t, func(t *testing.T, b *bench, s *txStore) {
		ctx, cancel := context.WithCancel(t.Context())
		b.onTx(func(ctx context.Context, _ fakeTx, _ idem.Event[payload]) error {
			cancel()
			<-ctx.Done()
			return ctx.Err()
		})
		p := b.start()
		began := time.Now()
		require.ErrorIs(t, p.Handle(ctx, message("e1", 0)), idem.ErrStopping)
		require.Zero(t, time.Since(began))
		require.Zero(t, s.effects)
		require.Empty(t, b.sent.deadLetters())
		require.Empty(t, s.starts, "a stop is no crash")
	})
}

// A refused commit, such as a deferred constraint or a swallowed SQL error (P-12), is the handler's
// failure.
func TestTx_RefusedCommitIsAFailure(t *testing.T) {
	inTxBubble(t, func(t *testing.T, b *bench, s *txStore) {
		s.commitErr = times(1000, errBoom)
		b.onTx(failingTx(0, nil))
		p := b.start()
		done := func() error { s.commitErr = nil; return nil }
		b.sent.fail = func(*idem.Message) error { return done() }
		require.NoError(t, p.Handle(t.Context(), message("e1", 0)))
		require.Equal(t, 1, b.count("dead letter: failed"))
		require.Equal(t, 1, b.count("run 5"))
		require.Equal(t, 1, b.count("tx: committed dead"))
	})
}

// Rule 18: an event that kills processes must not run again because its dead letter could not be
// sent.
func TestTx_CrashLoopStaysOneWhileTheDeadLetterCannotBeSent(t *testing.T) {
	inTxBubble(t, func(t *testing.T, b *bench, s *txStore) {
		b.cfg.BusyWait = time.Millisecond
		b.sent.fail = func(*idem.Message) error { return errBoom }
		s.starts[start{dedup.Key{Scope: "g", Type: "paid", ID: "e1"}, 0}] = 3
		b.onTx(failingTx(0, nil))
		p := b.start()
		for range 3 {
			require.ErrorIs(t, p.Handle(t.Context(), message("e1", 0)), dedup.ErrUnavailable)
		}
		b.sent.fail = nil
		require.NoError(t, p.Handle(t.Context(), message("e1", 0)))
		require.Equal(t, []string{"dead letter: crash-loop", "tx: committed dead"}, b.all())
		require.Empty(t, s.starts)
	})
}

// A transactional handler that ignores its time-out costs its event an attempt, not the consumer
// its life.
func TestTx_HandlerThatIgnoresItsTimeout(t *testing.T) {
	inTxBubble(t, func(t *testing.T, b *bench, _ *txStore) {
		var n atomic.Int32
		b.onTx(func(context.Context, fakeTx, idem.Event[payload]) error {
			if n.Add(1) == 1 {
				time.Sleep(time.Minute)
			}
			return nil
		}, idem.Timeout(time.Second))
		p := b.start()
		require.NoError(t, p.Handle(t.Context(), message("e1", 0)))
		require.Equal(t, 1, b.count("run 2"))
		require.Equal(t, 1, p.Status().Abandoned)
		time.Sleep(time.Minute)
	})
}
