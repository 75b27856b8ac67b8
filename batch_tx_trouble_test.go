package idem_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/observe"
)

// Rule 12, P-13: a handler ends the transaction. The claims of events that had not run are taken
// back, however that handler ends.
func TestBatchTx_CommitThenPanic_Rule12(t *testing.T) {
	inGroupBubble(t, func(t *testing.T, b *bench, s *groupStore) {
		b.onGroup(func(_ context.Context, tx *groupTx, e idem.Event[payload]) error {
			if e.ID == "e002" && len(tx.reqs) > 1 {
				tx.effects = append(tx.effects, e.ID)
				tx.commit()
				panic(errBoom)
			}
			return nil
		})
		p := b.start()
		settled, err := p.HandleBatch(t.Context(), series(6))
		require.NoError(t, err)
		require.Equal(t, 6, settled)
		s.allOnce(t, 6)
	})
}

// Rule 12: also if it never ended.
func TestBatchTx_CommitThenHang_Rule12(t *testing.T) {
	inGroupBubble(t, func(t *testing.T, b *bench, s *groupStore) {
		hang := make(chan struct{})
		b.onGroup(func(_ context.Context, tx *groupTx, e idem.Event[payload]) error {
			if e.ID == "e002" && len(tx.reqs) > 1 {
				tx.effects = append(tx.effects, e.ID)
				tx.commit()
				<-hang
				return errBoom
			}
			return nil
		})
		p := b.start()
		_, err := p.HandleBatch(t.Context(), series(6))
		close(hang)
		synctest.Wait()
		require.NoError(t, err)
		s.allOnce(t, 6)
		require.Contains(t, b.log.String(), "handler hangs: its transaction is given up")
		require.Contains(t, b.log.String(), "handler ended the transaction it was given")
	})
}

// Rule 12: a handler that hangs in an open transaction has not ended the transaction, and the log
// does not tell so.
func TestBatchTx_HangWithoutCommit_Rule12(t *testing.T) {
	inGroupBubble(t, func(t *testing.T, b *bench, s *groupStore) {
		hang := make(chan struct{})
		b.onGroup(func(_ context.Context, tx *groupTx, e idem.Event[payload]) error {
			if e.ID == "e002" && len(tx.reqs) > 1 {
				<-hang
			}
			return nil
		})
		_, err := b.start().HandleBatch(t.Context(), series(6))
		close(hang)
		synctest.Wait()
		require.NoError(t, err)
		s.allOnce(t, 6)
		require.Contains(t, b.log.String(), `handler hangs: its transaction is given up`)
		require.Contains(t, b.log.String(), `error="run abandoned"`)
		require.NotContains(t, b.log.String(), "handler ended the transaction")
	})
}

// undecided is a store that does not learn what becomes of the transaction of an abandoned handler.
type undecided struct{ *groupStore }

func (u undecided) ClaimTx(ctx context.Context, l time.Duration, r []dedup.Request, a []dedup.Answer, fn func(*groupTx) ([]dedup.Completion, error)) error {
	err := u.groupStore.ClaimTx(ctx, l, r, a, fn)
	if errors.Is(err, dedup.ErrAbandoned) {
		return fmt.Errorf("%w; a COMMIT is not ruled out", err)
	}
	return err
}

// Rule 12: the log has the store's error about a handler that hangs, although the store is not
// unavailable.
func TestBatchTx_UndecidedUnderAHangingHandler_Rule12(t *testing.T) {
	inGroupBubble(t, func(t *testing.T, b *bench, s *groupStore) {
		w := &watcher{}
		b.cfg.Store, b.cfg.Observers = undecided{s}, []observe.Observer{w}
		hang := make(chan struct{})
		b.onGroup(func(_ context.Context, tx *groupTx, e idem.Event[payload]) error {
			if e.ID == "e001" && len(tx.reqs) > 1 {
				<-hang
			}
			return nil
		})
		_, err := b.start().HandleBatch(t.Context(), series(3))
		close(hang)
		synctest.Wait()
		require.NoError(t, err)
		require.Equal(t, 1, strings.Count(b.log.String(), "a COMMIT is not ruled out"))
		require.Contains(t, b.log.String(), "handler hangs: its transaction is given up")
		require.Contains(t, b.log.String(), "key=:g:paid:e001")
		require.Empty(t, w.store)
		s.allOnce(t, 3)
	})
}

// unrun is a store whose first group is abandoned before a handler of it begins.
type unrun struct {
	*groupStore
	first sync.Once
}

func (u *unrun) ClaimTx(ctx context.Context, l time.Duration, r []dedup.Request, a []dedup.Answer, fn func(*groupTx) ([]dedup.Completion, error)) error {
	u.first.Do(func() {
		fn = func(*groupTx) ([]dedup.Completion, error) { return nil, dedup.ErrAbandoned }
	})
	return u.groupStore.ClaimTx(ctx, l, r, a, fn)
}

// K-23: a group that ends before any of its handlers begins names no handler, and its events run.
func TestBatchTx_AbandonedBeforeTheFirstHandler_K23(t *testing.T) {
	inGroupBubble(t, func(t *testing.T, b *bench, s *groupStore) {
		b.cfg.Store = &unrun{groupStore: s}
		b.onGroup(func(context.Context, *groupTx, idem.Event[payload]) error { return nil })
		_, err := b.start().HandleBatch(t.Context(), series(3))
		require.NoError(t, err)
		require.NotContains(t, b.log.String(), "handler hangs")
		s.allOnce(t, 3)
	})
}

type listed struct {
	EventID string `json:"event_id"`
	Cents   []int  `json:"cents"`
}

// A handler that changes its payload finds it unchanged when it is run again.
func TestBatchTx_PayloadOfASecondRun(t *testing.T) {
	inGroupBubble(t, func(t *testing.T, b *bench, s *groupStore) {
		var seen []int
		idem.OnTx(b.router, "paid", func(_ context.Context, tx *groupTx, e idem.Event[listed]) error {
			if e.ID == "e000" {
				seen = append(seen, e.Data.Cents[0])
				e.Data.Cents[0] *= 100
			}
			if e.ID == "e001" && len(tx.reqs) > 1 {
				return errBoom
			}
			return nil
		})
		p := b.start()
		msgs := series(2)
		for i := range msgs {
			msgs[i].Value = fmt.Appendf(nil, `{"event_id":"e%03d","type":"paid","cents":[7]}`, i)
		}
		_, err := p.HandleBatch(t.Context(), msgs)
		require.NoError(t, err)
		require.Equal(t, []int{7, 7}, seen)
	})
}

// A nil in a BatchError is no failure.
func TestBatchTx_NilInBatchError(t *testing.T) {
	inGroupBubble(t, func(t *testing.T, b *bench, s *groupStore) {
		b.onGroupBatch(func(_ context.Context, tx *groupTx, events []idem.Event[payload]) error {
			res := idem.BatchError{}
			for i := range events {
				res[i] = nil // errs[i] = do(e)
			}
			return res
		})
		p := b.start()
		_, err := p.HandleBatch(t.Context(), series(64))
		require.NoError(t, err)
		require.Equal(t, []int{64}, s.sizes)
	})
}

// In a group each handler has its own time-out, not that of the first one.
func TestBatchTx_EachItsOwnTimeout(t *testing.T) {
	inGroupBubble(t, func(t *testing.T, b *bench, s *groupStore) {
		var took time.Duration
		idem.OnTx(b.router, "A", func(context.Context, *groupTx, idem.Event[payload]) error { return nil }, idem.Timeout(10*time.Minute))
		idem.OnTx(b.router, "B", func(ctx context.Context, tx *groupTx, _ idem.Event[payload]) error {
			if len(tx.reqs) == 1 {
				return nil
			}
			began := time.Now()
			<-ctx.Done()
			took = time.Since(began)
			return ctx.Err()
		}, idem.Timeout(time.Second))
		p := b.start()
		_, err := p.HandleBatch(t.Context(), []*idem.Message{keyed("A", "a", "x", 0), keyed("B", "b", "y", 1)})
		require.NoError(t, err)
		require.LessOrEqual(t, took, 2*time.Second)
	})
}

// uncut does not look at its context any more when it commits, as pgstore.
type uncut struct{ *groupStore }

func (u uncut) ClaimTx(ctx context.Context, l time.Duration, r []dedup.Request, a []dedup.Answer, fn func(*groupTx) ([]dedup.Completion, error)) error {
	return u.groupStore.ClaimTx(context.WithoutCancel(ctx), l, r, a, fn)
}

// A cancelled transaction is not committed while a handler goes on in it, for every cause of the
// cancellation.
func TestBatchTx_NothingIsCommittedUnderAHangingHandler(t *testing.T) {
	inGroupBubble(t, func(t *testing.T, b *bench, s *groupStore) {
		b.cfg.Store = uncut{s}
		hang := make(chan struct{})
		ctx, stop := context.WithCancelCause(t.Context())
		b.onGroup(func(_ context.Context, _ *groupTx, e idem.Event[payload]) error {
			if e.ID == "e001" {
				stop(dedup.ErrClaimLost) // a handler of another processor lost its claim
				<-hang
			}
			return nil
		})
		p := b.start()
		settled, err := p.HandleBatch(ctx, series(4))
		effects := len(s.effects)
		marks := len(s.state)
		close(hang)
		time.Sleep(time.Second)
		t.Log(settled, err, effects, marks)
		require.Zero(t, marks, "committed although a handler hangs in it and others did not run")
	})
}

type slotted struct{ *groupStore }

func (slotted) MaxTx() int { return 1 }

// Rule 25: waiting for the right to begin a transaction is bounded by the wait budget of the call.
func TestBatchTx_WaitsForAConnection_Rule25(t *testing.T) {
	inGroupBubble(t, func(t *testing.T, b *bench, s *groupStore) {
		b.cfg.Store = slotted{s}
		b.cfg.BusyWait = time.Second
		b.onGroup(func(context.Context, *groupTx, idem.Event[payload]) error { time.Sleep(25 * time.Second); return nil })
		p := b.start()
		var bg sync.WaitGroup
		bg.Go(func() { _, _ = p.HandleBatch(t.Context(), series(10)) })
		time.Sleep(time.Millisecond)
		began := time.Now()
		ctx, stop := context.WithTimeout(t.Context(), time.Hour)
		defer stop()
		msgs := series(12)[10:]
		_, _ = p.HandleBatch(ctx, msgs)
		took := time.Since(began)
		bg.Wait()
		require.LessOrEqual(t, took, 2*time.Second, "BusyWait is 1 s")
	})
}

type panicky struct{ on atomic.Bool }

func (o *panicky) ObserveHandled(context.Context, observe.HandledEvent) {
	if o.on.CompareAndSwap(true, false) {
		panic("observer")
	}
}

// An observer that panics leaks no right to a transaction.
func TestBatchTx_PanickingObserverLeaksNothing(t *testing.T) {
	for _, n := range []int{1, 3} {
		inGroupBubble(t, func(t *testing.T, b *bench, s *groupStore) {
			b.cfg.Store = slotted{s}
			o := &panicky{}
			o.on.Store(true)
			b.cfg.Observers = []observe.Observer{o}
			b.onGroup(fine)
			p := b.start()
			func() {
				defer func() { _ = recover() }()
				_, _ = p.HandleBatch(t.Context(), series(n))
			}()
			ctx, stop := context.WithTimeout(t.Context(), time.Hour)
			defer stop()
			_, err := p.HandleBatch(ctx, series(n))
			require.NoError(t, err, n)
		})
	}
}
