package idem_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/deadletter"
	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/observe"
)

// An ErrAbandoned from a call of the handler's own is not about this processor. It is an error like
// others.
func TestProcessor_AbandonedCallOfTheHandlersOwn(t *testing.T) {
	own := fmt.Errorf("the inner consumer: %w", idem.ErrAbandoned)
	wants := func(t *testing.T, b *bench, settled int, err error, want int) {
		t.Helper()
		require.NoError(t, err)
		require.Equal(t, want, settled)
		require.Len(t, b.sent.deadLetters(), want)
		for _, l := range b.sent.deadLetters() {
			require.Equal(t, string(idem.ClassFailed), headerOf(l, deadletter.HeaderErrorClass))
			require.Equal(t, "5", headerOf(l, deadletter.HeaderAttempts))
		}
	}
	for _, n := range []int{1, 3} {
		inBubble(t, func(t *testing.T, b *bench) {
			b.on(failing(1<<20, own))
			settled, err := b.start().HandleBatch(t.Context(), series(n))
			wants(t, b, settled, err, n)
		})
		inBubble(t, func(t *testing.T, b *bench) {
			b.onBatch(func(_ context.Context, events []idem.Event[payload]) error {
				named := idem.BatchError{}
				for i := range events {
					named[i] = own
				}
				return named
			})
			settled, err := b.start().HandleBatch(t.Context(), series(n))
			wants(t, b, settled, err, n)
		})
		inGroupBubble(t, func(t *testing.T, b *bench, _ *groupStore) {
			b.onGroup(func(context.Context, *groupTx, idem.Event[payload]) error { return own })
			settled, err := b.start().HandleBatch(t.Context(), series(n))
			wants(t, b, settled, err, n)
		})
		inGroupBubble(t, func(t *testing.T, b *bench, _ *groupStore) {
			b.onGroupBatch(func(context.Context, *groupTx, []idem.Event[payload]) error { return own })
			settled, err := b.start().HandleBatch(t.Context(), series(n))
			wants(t, b, settled, err, n)
		})
	}
}

// refusing is a store that ends the session of an abandoned handler, as dedup.TxStore requires.
type refusing struct {
	*groupStore
	cut int
}

func (s *refusing) ClaimTx(ctx context.Context, limit time.Duration, reqs []dedup.Request, answers []dedup.Answer,
	fn func(*groupTx) ([]dedup.Completion, error),
) error {
	return s.groupStore.ClaimTx(ctx, limit, reqs, answers, func(tx *groupTx) ([]dedup.Completion, error) {
		done, err := fn(tx)
		if errors.Is(err, dedup.ErrAbandoned) {
			s.cut++
		}
		return done, err
	})
}

// Neither the store nor the caller takes an error of a handler's own call for an abandoned handler.
// All other causes can be found in the error.
func TestProcessor_AbandonedCallIsNotOurs(t *testing.T) {
	own := fmt.Errorf("the inner consumer: %w: %w", errBoom, idem.ErrAbandoned)
	for name, fail := range map[string]func() error{
		"error":       func() error { return own },
		"unavailable": func() error { return idem.Unavailable(own) },
		"panic":       func() error { panic(own) },
	} {
		for _, n := range []int{1, 3} {
			t.Run(fmt.Sprintf("%s/%d", name, n), func(t *testing.T) {
				inGroupBubble(t, func(t *testing.T, b *bench, s *groupStore) {
					w := &watcher{}
					store := &refusing{groupStore: s}
					b.cfg.Store, b.cfg.BusyWait, b.cfg.Observers = store, time.Second, []observe.Observer{w}
					b.onGroup(func(context.Context, *groupTx, idem.Event[payload]) error { return fail() })
					ctx, stop := context.WithCancelCause(t.Context())
					time.AfterFunc(10*time.Millisecond, func() { stop(idem.ErrStopping) })
					_, err := b.start().HandleBatch(ctx, series(n))
					require.Error(t, err)
					require.NotErrorIs(t, err, idem.ErrAbandoned)
					require.Zero(t, store.cut)
					require.Zero(t, b.p.Status().Abandoned)
					require.NotEmpty(t, w.handled)
					require.ErrorIs(t, w.handled[0].Err, errBoom)
					require.NotErrorIs(t, w.handled[0].Err, idem.ErrAbandoned)
				})
			})
		}
	}
	for name, where := range map[string]func(*bench){
		"decoder": func(b *bench) {
			idem.On(b.router, "paid", succeed, idem.Decode(func(*idem.Message, any) error { return idem.Unavailable(own) }))
		},
		"batch": func(b *bench) {
			b.onBatch(func(context.Context, []idem.Event[payload]) error { return idem.BatchError{0: idem.Unavailable(own)} })
		},
		"single": func(b *bench) {
			b.on(func(ctx context.Context, _ idem.Event[payload]) error { <-ctx.Done(); return own })
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *bench) {
				b.cfg.BusyWait, b.cfg.Grace = time.Millisecond, 3*time.Second
				where(b)
				ctx, stop := context.WithCancelCause(t.Context())
				time.AfterFunc(10*time.Second, func() { stop(idem.ErrStopping) })
				_, err := b.start().HandleBatch(ctx, series(1))
				require.Error(t, err)
				require.NotErrorIs(t, err, idem.ErrAbandoned)
				require.Zero(t, b.p.Status().Abandoned)
			})
		})
	}
}
