package idem_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/dedup"
)

// repeating runs the function of a transaction again after a failure, once, as a store does after a
// serialization failure.
type repeating struct {
	*groupStore
	repeats int
}

func (r *repeating) ClaimTx(
	ctx context.Context, limit time.Duration, reqs []dedup.Request, answers []dedup.Answer,
	fn func(*groupTx) ([]dedup.Completion, error),
) error {
	return r.groupStore.ClaimTx(ctx, limit, reqs, answers,
		func(tx *groupTx) ([]dedup.Completion, error) {
			done, err := fn(tx)
			if errors.Is(err, errBoom) && r.repeats == 0 {
				r.repeats++
				tx.effects = nil // rolled back
				done, err = fn(tx)
			}
			return done, err
		})
}

// A run that the store repeats has the result of the last run alone: a failure of the first one is
// neither returned nor counted.
func TestBatchTx_RepeatedRunForgetsTheFirst(t *testing.T) {
	for _, n := range []int{1, 4} {
		inGroupBubble(t, func(t *testing.T, b *bench, s *groupStore) {
			store := &repeating{groupStore: s}
			b.cfg.Store = store
			failed := false
			b.onGroup(func(_ context.Context, _ *groupTx, e idem.Event[payload]) error {
				if !failed {
					failed = true
					return errBoom
				}
				require.Equal(t, 1, e.Attempt)
				return nil
			})
			p := b.start()
			_, err := p.HandleBatch(t.Context(), series(n))
			require.NoError(t, err)
			require.Equal(t, 1, store.repeats)
			require.Equal(t, []int{n}, s.sizes, "one transaction is enough")
			s.allOnce(t, n)
		})
	}
}

// A handler that returns nil after its time-out ends the group. The context is cancelled, so the
// next handler must not start in that transaction.
func TestBatchTx_NoHandlerStartsInACancelledTransaction(t *testing.T) {
	inGroupBubble(t, func(t *testing.T, b *bench, s *groupStore) {
		started := 0
		b.onGroup(func(ctx context.Context, tx *groupTx, e idem.Event[payload]) error {
			switch {
			case len(tx.reqs) == 1:
			case e.ID == "e000":
				<-ctx.Done() // and no error
			default:
				started++
				require.NoError(t, ctx.Err())
			}
			return nil
		}, idem.Timeout(time.Second))
		p := b.start()
		_, err := p.HandleBatch(t.Context(), series(2))
		require.NoError(t, err)
		require.Zero(t, started)
		s.allOnce(t, 2)
	})
}
