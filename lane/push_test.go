package lane

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
)

// lateContext ends for Err before it ends for those that wait for it.
type lateContext struct {
	context.Context
	ended atomic.Bool
}

func (c *lateContext) Err() error {
	if c.ended.Load() {
		return context.Canceled
	}
	return c.Context.Err()
}

// TestPush_PassesTheSignalOn: the room that wakes a Push whose ctx has ended wakes another Push.
// Nothing else would, since no handler runs.
func TestPush_PassesTheSignalOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		free := make(chan struct{})
		p := start(fake(func(context.Context, *idem.Message) error {
			<-free
			return nil
		}), "t", 3, Config{Queue: 1})
		require.NoError(t, p.Push(t.Context(), message(0)))
		push := func(ctx context.Context, offset int64) <-chan error {
			pushed := make(chan error, 1)
			go func() { pushed <- p.Push(ctx, message(offset)) }()
			synctest.Wait() // it waits for room, behind the earlier ones
			return pushed
		}
		ending := &lateContext{Context: t.Context()}
		first := push(ending, 1)
		second := push(t.Context(), 2)
		ending.ended.Store(true)
		close(free)
		synctest.Wait()
		require.ErrorIs(t, <-first, context.Canceled)
		select {
		case err := <-second:
			require.NoError(t, err)
		default:
			t.Fatal("the second Push waits although there is room")
		}
		require.NoError(t, closeLane(t, p, nil))
	})
}
