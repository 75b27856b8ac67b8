package idem_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/dedup"
)

// groupTx is a transaction of groupStore: effects that are not there yet.
type groupTx struct {
	of      *groupStore
	reqs    []dedup.Request
	effects []string
	state   error // result of CheckTx
	ended   atomic.Bool
}

func (tx *groupTx) CheckTx() error { return tx.state }

// commit acts like COMMIT as SQL: the effects so far and all claims are durable.
func (tx *groupTx) commit() {
	tx.state = dedup.ErrTxEnded
	tx.ended.Store(true) // its handler may be abandoned
	tx.of.keep(tx, nil)
}

// groupStore is a TxStore in memory with real atomicity: effects and marks are there together or
// not at all.
type groupStore struct {
	*spy
	mu      sync.Mutex
	state   map[dedup.Key]dedup.Answer
	prints  map[dedup.Key]dedup.Fingerprint // of the events in state
	effects []string
	sizes   []int        // of the transactions that were begun
	open    atomic.Int32 // transactions now

	before func(n int) error // before the handlers; n is the number of requests
	commit func(n int) error // instead of the commit
	after  func(n int) error // after the commit: its answer is lost
}

func newGroupStore(b *bench) *groupStore {
	return &groupStore{spy: b.store, state: map[dedup.Key]dedup.Answer{}, prints: map[dedup.Key]dedup.Fingerprint{}}
}

func (s *groupStore) keep(tx *groupTx, done []dedup.Completion) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range tx.reqs {
		if _, known := s.state[r.Key]; !known {
			s.state[r.Key], s.prints[r.Key] = dedup.Answer{Verdict: dedup.Done, First: r.Origin}, r.Fingerprint
		}
	}
	for _, c := range done {
		if c.Retry != 0 { // its copy may run
			delete(s.state, c.Key)
		}
		if c.Dead != "" {
			s.state[c.Key] = dedup.Answer{Verdict: dedup.Dead, Reason: c.Dead, First: s.state[c.Key].First}
		}
	}
	s.effects = append(s.effects, tx.effects...)
	tx.effects = nil
}

func (s *groupStore) ClaimTx(ctx context.Context, _ time.Duration, reqs []dedup.Request, answers []dedup.Answer,
	fn func(*groupTx) ([]dedup.Completion, error),
) error {
	if err := dedup.CheckRequests(reqs, answers); err != nil {
		return err
	}
	s.mu.Lock()
	s.sizes = append(s.sizes, len(reqs))
	fresh := false
	for i, r := range reqs {
		a, known := s.state[r.Key]
		switch {
		case !known:
			a, fresh = dedup.Answer{Verdict: dedup.Fresh, First: r.Origin}, true
		case dedup.Differ(s.prints[r.Key], r.Fingerprint):
			a = a.Conflicted()
		}
		answers[i] = a
	}
	s.mu.Unlock()
	for _, hook := range []func(int) error{s.before} {
		if hook != nil {
			if err := hook(len(reqs)); err != nil {
				clear(answers)
				return err
			}
		}
	}
	if !fresh {
		return nil
	}
	tx := &groupTx{of: s, reqs: reqs}
	s.open.Add(1)
	done, err := fn(tx)
	s.open.Add(-1)
	if failed, ok := errors.AsType[*dedup.GroupError](err); ok && tx.ended.Load() {
		err = fmt.Errorf("%w: %w", &dedup.TxEndedError{Unrun: failed.Unrun}, err)
	}
	var ended *dedup.TxEndedError
	if errors.As(err, &ended) {
		s.mu.Lock()
		for _, i := range ended.Unrun {
			delete(s.state, reqs[i].Key)
		}
		s.mu.Unlock()
	}
	if err == nil && s.commit != nil {
		err = s.commit(len(reqs))
	}
	if err == nil && ctx.Err() != nil {
		err = ctx.Err()
	}
	if err != nil {
		clear(answers)
		return err
	}
	s.keep(tx, done)
	if s.after != nil {
		return s.after(len(reqs))
	}
	return nil
}

func inGroupBubble(t *testing.T, f func(t *testing.T, b *bench, s *groupStore)) {
	t.Helper()
	inBubble(t, func(t *testing.T, b *bench) {
		s := newGroupStore(b)
		b.cfg.Store = s
		f(t, b, s)
	})
}

// onGroup registers an OnTx handler with the ID of the event as its effect.
func (b *bench) onGroup(fn func(context.Context, *groupTx, idem.Event[payload]) error, opts ...idem.Option) {
	idem.OnTx(b.router, "paid", func(ctx context.Context, tx *groupTx, e idem.Event[payload]) error {
		b.add("run %s", e.ID)
		if err := fn(ctx, tx, e); err != nil {
			return err
		}
		tx.effects = append(tx.effects, e.ID)
		return nil
	}, opts...)
}

func (b *bench) onGroupBatch(fn func(context.Context, *groupTx, []idem.Event[payload]) error, opts ...idem.Option) {
	idem.OnBatchTx(b.router, "paid", func(ctx context.Context, tx *groupTx, events []idem.Event[payload]) error {
		b.add("batch %d", len(events))
		err := fn(ctx, tx, events)
		if none, ok := err.(idem.BatchError); err == nil || ok && len(none) == 0 { //nolint:errorlint // as it was returned
			tx.effects = append(tx.effects, ids(events)...)
		}
		return err
	}, opts...)
}

func fine(context.Context, *groupTx, idem.Event[payload]) error { return nil }

// allOnce checks that each of n events of series took effect once, in order.
func (s *groupStore) allOnce(t *testing.T, n int, but ...string) {
	t.Helper()
	var want []string
	for i := range n {
		if id := fmt.Sprintf("e%03d", i); !slices.Contains(but, id) {
			want = append(want, id)
		}
	}
	require.Equal(t, want, s.effects)
}

func TestBatchTx_OneTransactionForMany(t *testing.T) {
	inGroupBubble(t, func(t *testing.T, b *bench, s *groupStore) {
		b.onGroup(fine)
		p := b.start()
		settled, err := p.HandleBatch(t.Context(), series(100))
		require.NoError(t, err)
		require.Equal(t, 100, settled)
		require.Equal(t, []int{100}, s.sizes)
		s.allOnce(t, 100)
	})
}

func TestBatchTx_OwnTx(t *testing.T) {
	inGroupBubble(t, func(t *testing.T, b *bench, s *groupStore) {
		b.onGroup(fine, idem.TxPerEvent())
		p := b.start()
		_, err := p.HandleBatch(t.Context(), series(3))
		require.NoError(t, err)
		require.Equal(t, []int{1, 1, 1}, s.sizes)
		s.allOnce(t, 3)
	})
}

// Rule 12: the good ones before a failing event are committed together, it goes through its policy
// by itself, and the size of the groups shrinks and grows again.
func TestBatchTx_BlamesTheRightEvent_Rule12(t *testing.T) {
	inGroupBubble(t, func(t *testing.T, b *bench, s *groupStore) {
		b.onGroup(func(_ context.Context, _ *groupTx, e idem.Event[payload]) error {
			if e.ID == "e050" {
				return idem.Permanent(errBoom)
			}
			return nil
		})
		p := b.start()
		settled, err := p.HandleBatch(t.Context(), series(100))
		require.NoError(t, err)
		require.Equal(t, 100, settled)
		require.Equal(t, []int{100, 50, 1, 1, 49}, s.sizes, "100 fail at the 51st; the dead letter's mark is a transaction too")
		s.allOnce(t, 100, "e050")
		require.Len(t, b.sent.deadLetters(), 1)
		require.Equal(t, 2, b.count("run e000"))
		require.Equal(t, 1, b.count("run e060"))
	})
}

// Rule 12: an error that a handler swallows belongs to it, and not to the next one, which meets it.
func TestBatchTx_SwallowedError_Rule12(t *testing.T) {
	inGroupBubble(t, func(t *testing.T, b *bench, s *groupStore) {
		b.onGroup(func(_ context.Context, tx *groupTx, e idem.Event[payload]) error {
			switch {
			case tx.state != nil:
				return tx.state
			case e.ID == "e003":
				tx.state = dedup.ErrTxAborted
			}
			return nil
		}, idem.Retry(idem.RetryPolicy{MaxAttempts: 1}))
		s.commit = func(n int) error { return nil }
		p := b.start()
		_, err := p.HandleBatch(t.Context(), series(10))
		require.NoError(t, err)
		// Alone, this fake store commits. The test looks at the event that was singled out.
		require.Equal(t, 2, b.count("run e003"))
		require.Equal(t, 1, b.count("run e004"))
	})
}

// Rule 12, P-13: COMMIT as SQL makes the claims of events durable that have not run. They are taken
// back and run, and this handler shares no transaction again.
func TestBatchTx_HandlerEndsTheTransaction_Rule12(t *testing.T) {
	inGroupBubble(t, func(t *testing.T, b *bench, s *groupStore) {
		b.onGroup(func(_ context.Context, tx *groupTx, e idem.Event[payload]) error {
			if e.ID == "e002" && len(tx.reqs) > 1 {
				tx.effects = append(tx.effects, e.ID)
				tx.commit()
				return errBoom // whatever it says
			}
			return nil
		})
		p := b.start()
		settled, err := p.HandleBatch(t.Context(), series(6))
		require.NoError(t, err)
		require.Equal(t, 6, settled)
		s.allOnce(t, 6)
		require.Contains(t, b.log.String(), "handler ended the transaction")
		s.sizes = nil
		_, err = p.HandleBatch(t.Context(), series(8)[6:])
		require.NoError(t, err)
		require.Equal(t, []int{1, 1}, s.sizes)
	})
}

// Rule 12: an error at COMMIT is nobody's in particular: one by one.
func TestBatchTx_RefusedByCommit_Rule12(t *testing.T) {
	inGroupBubble(t, func(t *testing.T, b *bench, s *groupStore) {
		b.onGroup(fine)
		s.commit = func(n int) error {
			if n > 1 {
				return errors.New("deferred constraint")
			}
			return nil
		}
		p := b.start()
		_, err := p.HandleBatch(t.Context(), series(4))
		require.NoError(t, err)
		require.Equal(t, []int{4, 1, 1, 1, 1}, s.sizes)
		s.allOnce(t, 4)
	})
}

// Rule 1: a lock that is not to be had at once sends the batch one by one: no pause, no attempt
// counted.
func TestBatchTx_Contended_Rule1(t *testing.T) {
	inGroupBubble(t, func(t *testing.T, b *bench, s *groupStore) {
		b.onGroup(func(_ context.Context, _ *groupTx, e idem.Event[payload]) error {
			require.Equal(t, 1, e.Attempt)
			return nil
		})
		s.before = func(n int) error {
			if n > 1 {
				return fmt.Errorf("lock: %w", dedup.ErrContended)
			}
			return nil
		}
		began := time.Now()
		p := b.start()
		_, err := p.HandleBatch(t.Context(), series(20))
		require.NoError(t, err)
		require.Zero(t, time.Since(began))
		s.allOnce(t, 20)
		require.Equal(t, append([]int{20, 20, 20, 20}, slices.Repeat([]int{1}, 20)...), s.sizes, "nothing was run: tried again first")
	})
	inGroupBubble(t, func(t *testing.T, b *bench, s *groupStore) {
		b.onGroup(fine)
		s.commit = func(n int) error {
			if n > 1 {
				return dedup.ErrContended
			}
			return nil
		}
		p := b.start()
		_, err := p.HandleBatch(t.Context(), series(20))
		require.NoError(t, err)
		s.allOnce(t, 20)
		require.Equal(t, append([]int{20}, slices.Repeat([]int{1}, 20)...), s.sizes, "rows are contended: one by one at once")
	})
}

// countingStore counts starts too.
type countingStore struct {
	*groupStore
	starts int
}

func (s *countingStore) CountStart(context.Context, dedup.Key, dedup.Origin) (uint32, error) {
	s.starts++
	return 1, nil
}
func (s *countingStore) ClearStarts(context.Context, dedup.Key, dedup.Origin) error { return nil }

// Rule 18: the first 16 events of a partition after its assignment run one by one. Known events
// among them, and behind them, are settled together all the same.
func TestBatchTx_AfterAnAssignment_Rule18(t *testing.T) {
	inGroupBubble(t, func(t *testing.T, b *bench, s *groupStore) {
		counting := &countingStore{groupStore: s}
		b.cfg.Store = counting
		b.onGroup(fine)
		p := b.start()
		_, err := p.HandleBatch(t.Context(), series(30))
		require.NoError(t, err)
		require.Equal(t, append(append([]int{30}, slices.Repeat([]int{1}, 16)...), 14), s.sizes)
		require.Equal(t, 16, counting.starts)

		s.sizes = nil
		p.Assigned("orders", 1)
		_, err = p.HandleBatch(t.Context(), series(30))
		require.NoError(t, err)
		require.Equal(t, []int{30}, s.sizes, "duplicates in bulk")
		require.Equal(t, 16, counting.starts)

		s.sizes = nil
		settled, err := p.HandleBatch(t.Context(), series(60))
		require.NoError(t, err)
		require.Equal(t, 60, settled)
		require.Equal(t, append(append([]int{60}, slices.Repeat([]int{1}, 16)...), 14), s.sizes, "duplicates are no proof of anything")
		s.allOnce(t, 60)
	})
}

// Rule 2: only a group that was rolled back is taken apart. That finds the failing event if no
// error names it.
func TestBatchTx_UnnamedErrorIsTakenApart_Rule2(t *testing.T) {
	inGroupBubble(t, func(t *testing.T, b *bench, s *groupStore) {
		b.onGroupBatch(func(_ context.Context, _ *groupTx, events []idem.Event[payload]) error {
			if slices.Contains(ids(events), "e037") {
				return errBoom
			}
			return nil
		}, idem.Retry(idem.RetryPolicy{MaxAttempts: 2}))
		p := b.start()
		settled, err := p.HandleBatch(t.Context(), series(64))
		require.NoError(t, err)
		require.Equal(t, 64, settled)
		s.allOnce(t, 64, "e037")
		require.Len(t, b.sent.deadLetters(), 1)
		require.Less(t, len(s.sizes), 64)
	})
}

func TestBatchTx_NamedErrors(t *testing.T) {
	inGroupBubble(t, func(t *testing.T, b *bench, s *groupStore) {
		b.onGroupBatch(func(_ context.Context, _ *groupTx, events []idem.Event[payload]) error {
			failed := idem.BatchError{}
			for i, e := range events {
				if e.ID == "e001" || e.ID == "e003" {
					failed[i] = idem.Permanent(errBoom)
				}
			}
			return failed // empty is success
		})
		p := b.start()
		_, err := p.HandleBatch(t.Context(), series(5))
		require.NoError(t, err)
		s.allOnce(t, 5, "e001", "e003")
		require.Len(t, b.sent.deadLetters(), 2)
	})
}

// P-11: the answer to COMMIT is lost. The group asks again and is told that all is done.
func TestBatchTx_UnknownCommit_P11(t *testing.T) {
	for _, committed := range []bool{true, false} {
		inGroupBubble(t, func(t *testing.T, b *bench, s *groupStore) {
			b.onGroup(fine)
			lost := times(1, fmt.Errorf("%w: %w", dedup.ErrUnknownCommit, dedup.ErrUnavailable))
			hook := func(int) error { return lost() }
			if committed {
				s.after = hook
			} else {
				s.commit = hook
			}
			p := b.start()
			_, err := p.HandleBatch(t.Context(), series(8))
			require.NoError(t, err)
			s.allOnce(t, 8)
			require.Greater(t, s.sizes[1], 1, "the store is asked for a group again")
		})
	}
}

// A store that is down before the handlers run is waited for, and told of once.
func TestBatchTx_Outage(t *testing.T) {
	inGroupBubble(t, func(t *testing.T, b *bench, s *groupStore) {
		b.onGroup(fine)
		down := times(5, dedup.ErrUnavailable)
		s.before = func(int) error { return down() }
		p := b.start()
		_, err := p.HandleBatch(t.Context(), series(8))
		require.NoError(t, err)
		s.allOnce(t, 8)
		require.Equal(t, 8, s.sizes[len(s.sizes)-1], "nobody was singled out")
	})
}

// A handler that panics, ends its goroutine or overruns its time in a group is singled out; others
// are not harmed.
func TestBatchTx_BrokenHandlers_K23(t *testing.T) {
	for name, broken := range map[string]func(context.Context) error{
		"panic":  func(context.Context) error { panic(errBoom) },
		"goexit": func(context.Context) error { runtime.Goexit(); return nil },
		"late":   func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() },
	} {
		t.Run(name, func(t *testing.T) {
			inGroupBubble(t, func(t *testing.T, b *bench, s *groupStore) {
				b.onGroup(func(ctx context.Context, _ *groupTx, e idem.Event[payload]) error {
					time.Sleep(20 * time.Second) // each has its own time, not all of them together
					if e.ID == "e003" {
						return broken(ctx)
					}
					return nil
				}, idem.Retry(idem.RetryPolicy{MaxAttempts: 2, InPlace: idem.Forever}))
				p := b.start()
				_, err := p.HandleBatch(t.Context(), series(8))
				require.NoError(t, err)
				s.allOnce(t, 8, "e003")
				require.Len(t, b.sent.deadLetters(), 1)
				require.Equal(t, 3, b.count("run e003"), "once in the group, twice by itself")
			})
		})
	}
}

// A stop rolls back at once: that is free.
func TestBatchTx_Stop_Rule13(t *testing.T) {
	inGroupBubble(t, func(t *testing.T, b *bench, s *groupStore) {
		ctx, stop := context.WithCancel(t.Context())
		b.onGroup(func(ctx context.Context, _ *groupTx, e idem.Event[payload]) error {
			if e.ID == "e003" {
				stop()
				<-ctx.Done()
				return ctx.Err()
			}
			return nil
		})
		p := b.start()
		began := time.Now()
		settled, err := p.HandleBatch(ctx, series(8))
		require.ErrorIs(t, err, idem.ErrStopping)
		require.Zero(t, settled)
		require.Zero(t, time.Since(began))
		require.Empty(t, s.effects)
	})
}

// Duplicates, dead letters and unknown types inside a batch stay in their places.
func TestBatchTx_MixedBatch(t *testing.T) {
	inGroupBubble(t, func(t *testing.T, b *bench, s *groupStore) {
		b.onGroup(fine)
		p := b.start()
		msgs := series(6)
		msgs[1].Value = []byte("{")                       // undecodable
		msgs[2] = keyed("paid", "e000", "k0", 2)          // a copy
		msgs[4] = keyed("unknown", "x", "k4", 4)          // skipped
		msgs = append(msgs, keyed("paid", "e005", "", 6)) // a copy without key
		settled, err := p.HandleBatch(t.Context(), msgs)
		require.NoError(t, err)
		require.Equal(t, len(msgs), settled)
		require.Equal(t, []string{"e000", "e003", "e005"}, s.effects)
		require.Len(t, b.sent.deadLetters(), 1)
	})
}
