package idem_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/dedup"
)

// blocking returns a function that blocks its first n calls until open is closed, also after the
// end of their contexts.
func blocking(n int64, open <-chan struct{}) func() error {
	var calls atomic.Int64
	return func() error {
		if calls.Add(1) <= n {
			<-open
		}
		return nil
	}
}

// a connection that hangs is given up, and the claim is asked for again on another one,
// under the same token: one that was granted unheard is recognised.
func TestProcessor_ClaimThatHangs_R01(t *testing.T) {
	for _, granted := range []bool{false, true} {
		t.Run(fmt.Sprintf("granted %v", granted), func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *bench) {
				open := make(chan struct{})
				if granted {
					b.store.claimLate = blocking(1, open)
				} else {
					b.store.claimErr = blocking(1, open)
				}
				b.on(succeed, idem.WhenUncertain(idem.DeadLetterUncertain))
				p := b.start()
				began := time.Now()
				require.NoError(t, p.Handle(t.Context(), message("e1", 0)))
				require.Less(t, time.Since(began), 2500*time.Millisecond)
				close(open)
				require.NoError(t, p.Handle(t.Context(), message("e1", 1)))
				require.Equal(t, 1, b.count("run 1"))
				require.Equal(t, 1, b.count("complete: done"))
				require.Empty(t, b.sent.deadLetters())
			})
		})
	}
}

// Rule 32: a claim that is given up because of a stop, while calls hang, is given back when they
// return.
func TestProcessor_ClaimThatHangsAtAStop_Rule32(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		open := make(chan struct{})
		b.store.claimErr = blocking(2, open) // none of them has arrived
		b.on(succeed, idem.WhenUncertain(idem.DeadLetterUncertain))
		p := b.start()
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(15*time.Second, func() { cancel(idem.ErrStopping) })
		began := time.Now()
		require.ErrorIs(t, p.Handle(ctx, message("e1", 0)), idem.ErrStopping)
		require.Less(t, time.Since(began), 20*time.Second)
		require.Equal(t, 2, b.store.claimed(), "no more than two calls are under way")
		close(open)
		time.Sleep(time.Second)
		began = time.Now()
		require.NoError(t, p.Handle(t.Context(), message("e1", 0)))
		require.Less(t, time.Since(began), time.Second, "nothing is left of it")
		require.Equal(t, 1, b.count("run 1"))
	})
}

// claimed is how many calls of Claim there were.
func (s *spy) claimed() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.claims
}

// A store that is slow gets more time, and is not asked in vain for ever. The next claims begin
// with that time.
func TestProcessor_SlowStore(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.store.claimErr = func() error { time.Sleep(3 * time.Second); return nil }
		b.on(succeed)
		p := b.start()
		for i := range int64(4) {
			require.NoError(t, p.Handle(t.Context(), message(fmt.Sprint("e", i), i)))
		}
		require.Equal(t, 5, b.store.claimed(), "one of them was given up")
		require.Equal(t, 4, b.count("run 1"))
	})
}

// The time-out of a claim is a setting.
func TestProcessor_StoreTimeout(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.cfg.StoreTimeout = 100 * time.Millisecond
		open := make(chan struct{})
		b.store.claimErr = blocking(1, open)
		b.on(succeed)
		p := b.start()
		began := time.Now()
		require.NoError(t, p.Handle(t.Context(), message("e1", 0)))
		require.Less(t, time.Since(began), 300*time.Millisecond)
		close(open)

		b.cfg.StoreTimeout = -1
		_, err := idem.NewProcessor(b.router, b.cfg)
		require.ErrorContains(t, err, "StoreTimeout")
	})
}

// A processor that is closed while a call hangs waits for it for a moment only, and says so.
func TestProcessor_CloseWhileAClaimHangs(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		open := make(chan struct{})
		defer close(open)
		b.store.claimErr = blocking(1, open)
		b.on(succeed)
		p := b.start()
		require.NoError(t, p.Handle(t.Context(), message("e1", 0)))
		began := time.Now()
		require.NoError(t, p.Close())
		require.Equal(t, 5*time.Second, time.Since(began).Round(time.Millisecond))
		require.Contains(t, b.log.String(), "have still not returned")
		b.p = nil
	})
}

// A transaction with a connection that hangs before the handler is given up, however long the
// handler may take.
func TestProcessor_TransactionThatHangs(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		store := &hangingTx{txStore: newTxStore(b), hangs: 1}
		b.cfg.Store = store
		idem.OnTx(b.router, "paid", func(context.Context, fakeTx, idem.Event[payload]) error {
			time.Sleep(5 * time.Minute)
			return nil
		}, idem.Timeout(10*time.Minute), idem.TxPerEvent())
		p := b.start()
		began := time.Now()
		require.NoError(t, p.Handle(t.Context(), message("e1", 0)))
		require.Less(t, time.Since(began), 5*time.Minute+11*time.Second)
	})
}

// hangingTx does not answer its first calls, but heeds contexts.
type hangingTx struct {
	*txStore
	hangs int
}

func (s *hangingTx) ClaimTx(ctx context.Context, limit time.Duration, reqs []dedup.Request, answers []dedup.Answer,
	fn func(fakeTx) ([]dedup.Completion, error),
) error {
	if s.hangs--; s.hangs >= 0 {
		<-ctx.Done()
		return fmt.Errorf("%w: %w", dedup.ErrUnavailable, ctx.Err())
	}
	return s.txStore.ClaimTx(ctx, limit, reqs, answers, fn)
}
