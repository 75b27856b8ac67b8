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

// greedy is a store that takes long to begin a transaction or to answer its commit, and runs the
// function again after a serialization failure.
type greedy struct {
	*txStore
	begin, commit atomic.Int64 // durations
	again         int
}

func (s *greedy) ClaimTx(ctx context.Context, limit time.Duration, reqs []dedup.Request, answers []dedup.Answer,
	fn func(fakeTx) ([]dedup.Completion, error),
) error {
	pause := func(d *atomic.Int64) error {
		select {
		case <-time.After(time.Duration(d.Load())):
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if err := pause(&s.begin); err != nil {
		return err
	}
	err := s.txStore.ClaimTx(ctx, limit, reqs, answers, func(tx fakeTx) ([]dedup.Completion, error) {
		for range s.again {
			_, _ = fn(tx)
		}
		return fn(tx)
	})
	if late := pause(&s.commit); late != nil {
		clear(answers)
		return late
	}
	return err
}

// A store that needs long before the handler, or calls the handler again, does not shorten the
// handler's time. It never ends the partition.
func TestProcessor_HandlerHasItsOwnTimeInATransaction(t *testing.T) {
	for _, c := range []struct {
		begin time.Duration
		again int
	}{{9 * time.Second, 0}, {0, 2}, {9 * time.Second, 2}} {
		t.Run(fmt.Sprintf("%s/%d", c.begin, c.again), func(t *testing.T) {
			inTxBubble(t, func(t *testing.T, b *bench, s *txStore) {
				slow := &greedy{txStore: s, again: c.again}
				slow.begin.Store(int64(c.begin))
				b.cfg.Store = slow
				b.onTx(func(ctx context.Context, _ fakeTx, _ idem.Event[payload]) error {
					select {
					case <-time.After(8 * time.Second):
						return nil
					case <-ctx.Done():
						return ctx.Err()
					}
				}, idem.Timeout(9*time.Second))
				require.NoError(t, b.start().Handle(t.Context(), message("e1", 0)))
				require.Equal(t, 1+c.again, b.count("run 1"), "%v", b.all())
				require.Equal(t, 1, b.count("tx: committed done"))
			})
		})
	}
}

// A handler that returns long after its time is over has timed out, however long its transaction
// took.
func TestProcessor_LateHandlerInATransaction(t *testing.T) {
	inTxBubble(t, func(t *testing.T, b *bench, _ *txStore) {
		b.onTx(func(context.Context, fakeTx, idem.Event[payload]) error {
			time.Sleep(11500 * time.Millisecond)
			return errBoom
		}, idem.Timeout(time.Second), idem.Retry(idem.RetryPolicy{MaxAttempts: 1}))
		require.NoError(t, b.start().Handle(t.Context(), message("e1", 0)))
		require.Equal(t, []string{"run 1", "tx: rolled back", "dead letter: timeout", "tx: committed dead"}, b.all())
	})
}

// A store that does not come to the handler in ten seconds is unavailable: told, waited for, and no
// attempt.
func TestProcessor_TransactionThatDoesNotBegin(t *testing.T) {
	inTxBubble(t, func(t *testing.T, b *bench, s *txStore) {
		slow := &greedy{txStore: s}
		slow.begin.Store(int64(time.Minute))
		b.cfg.Store = slow
		time.AfterFunc(time.Minute, func() { slow.begin.Store(0) })
		b.onTx(failingTx(0, nil))
		require.NoError(t, b.start().Handle(t.Context(), message("e1", 0)))
		require.Equal(t, 1, b.count("run 1"))
		require.Contains(t, b.log.String(), "unavailable, pausing")
	})
}

// A commit that is not answered in ten seconds is no failure of its event (P-11): the store is
// asked again, and knows.
func TestProcessor_CommitThatIsNotAnswered_P11(t *testing.T) {
	inTxBubble(t, func(t *testing.T, b *bench, s *txStore) {
		slow := &greedy{txStore: s}
		slow.commit.Store(int64(time.Hour))
		b.cfg.Store = slow
		time.AfterFunc(15*time.Second, func() { slow.commit.Store(0) })
		b.onTx(failingTx(0, nil), idem.Timeout(time.Hour), idem.Retry(idem.RetryPolicy{MaxAttempts: 1}))
		began := time.Now()
		require.NoError(t, b.start().Handle(t.Context(), message("e1", 0)))
		require.Equal(t, 1, b.count("run 1"), "%v", b.all())
		require.Empty(t, b.sent.deadLetters())
		require.Less(t, time.Since(began), time.Minute)
		require.Contains(t, b.log.String(), "unavailable, pausing")
	})
}
