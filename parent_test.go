package idem_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/deadletter"
	"github.com/idem-go/idem/dedup"
)

// says notes the parent that the context of a handler has.
func (b *bench) says(ctx context.Context) {
	key, ok := dedup.ParentFrom(ctx)
	b.add("parent %q %t", key, ok)
}

const parentOfE1 = `parent ":g:paid:e1" true`

// Rule 23: each handler knows the event that it handles. A batch handler only knows that it has a
// parent, not which one, also in a batch of one. The function of NotFound, without a record in the
// store, has no parent.
func TestParent_Rule23(t *testing.T) {
	for name, c := range map[string]struct {
		register func(*bench)
		want     string
	}{
		"On": {func(b *bench) {
			b.on(func(ctx context.Context, e idem.Event[payload]) error {
				b.says(ctx)
				key, _ := dedup.ParentFrom(ctx)
				require.Equal(b.t, e.Identity(), key)
				return nil
			})
		}, parentOfE1},
		"OnTx": {func(b *bench) {
			b.onTx(func(ctx context.Context, _ fakeTx, _ idem.Event[payload]) error { b.says(ctx); return nil })
		}, parentOfE1},
		"OnBatch": {func(b *bench) {
			idem.OnBatch(b.router, "paid", func(ctx context.Context, _ []idem.Event[payload]) error { b.says(ctx); return nil })
		}, `parent ":::" true`},
		"OnBatchTx": {func(b *bench) {
			idem.OnBatchTx(b.router, "paid", func(ctx context.Context, _ fakeTx, e []idem.Event[payload]) error {
				b.says(ctx)
				require.Equal(b.t, dedup.Key{Scope: "g", Type: "paid", ID: "e1"}, e[0].Identity())
				return nil
			})
		}, `parent ":::" true`},
		"NotFound": {func(b *bench) {
			b.router.NotFound(func(ctx context.Context, _ *idem.Message) error { b.says(ctx); return nil })
			idem.On(b.router, "other", succeed)
		}, `parent ":::" false`},
	} {
		t.Run(name, func(t *testing.T) {
			inTxBubble(t, func(t *testing.T, b *bench, _ *txStore) {
				c.register(b)
				require.NoError(t, b.start().Handle(t.Context(), message("e1", 0)))
				require.Equal(t, 1, b.count(c.want), "%v", b.all())
			})
		})
	}
}

// Rule 23: in a transaction of many events each has its own parent.
func TestParentInAGroup_Rule23(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		s := newGroupStore(b)
		b.cfg.Store = s
		idem.OnTx(b.router, "paid", func(ctx context.Context, _ *groupTx, e idem.Event[payload]) error {
			key, ok := dedup.ParentFrom(ctx)
			require.True(t, ok)
			require.Equal(t, e.Identity(), key)
			b.add("run %s", key.ID)
			return nil
		})
		var msgs []*idem.Message
		for i := range 5 {
			msgs = append(msgs, message(fmt.Sprint("e", i), int64(i)))
		}
		_, err := b.start().HandleBatch(t.Context(), msgs)
		require.NoError(t, err)
		require.Equal(t, []int{5}, s.sizes)
		require.Equal(t, []string{"run e0", "run e1", "run e2", "run e3", "run e4"}, b.all())
	})
}

// Rule 23: a copy for a later attempt, a dead letter that is replayed and an event that was
// deferred have the parent of the record.
func TestParentOfCopies_Rule23(t *testing.T) {
	fails := func(b *bench, n int) func(context.Context, idem.Event[payload]) error {
		fail := times(n, errBoom)
		return func(ctx context.Context, _ idem.Event[payload]) error { b.says(ctx); return fail() }
	}
	t.Run("later attempts and a dead letter", func(t *testing.T) {
		inBubble(t, func(t *testing.T, b *bench) {
			b.tiers(fails(b, 3), time.Second, time.Minute)
			require.NoError(t, b.p.Handle(t.Context(), message("e1", 1)))
			require.Len(t, b.deliverCopies(), 3)
			letter, err := deadletter.Parse(b.sent.deadLetters()[2])
			require.NoError(t, err)
			position, err := b.store.Reopen(t.Context(), letter.Key)
			require.NoError(t, err)
			m, err := letter.Redrive(position)
			require.NoError(t, err)
			require.NoError(t, b.p.Handle(t.Context(), m))
			require.Equal(t, 4, b.count(parentOfE1), "%v", b.all())
		})
	})
	t.Run("deferred", func(t *testing.T) {
		inBubble(t, func(t *testing.T, b *bench) {
			b.on(fails(b, 1), once, idem.KeyOrdered(5*time.Second))
			b.start()
			defer b.runsDeferred()()
			require.NoError(t, b.p.Handle(t.Context(), message("e1", 1)))
			time.Sleep(6 * time.Second)
			synctest.Wait()
			require.Equal(t, 2, b.count(parentOfE1), "%v", b.all())
		})
	})
}
