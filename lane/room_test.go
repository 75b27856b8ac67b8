package lane

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
)

type instant struct{}

func (instant) Settle(_ context.Context, msgs []*idem.Message, progress func(int)) error {
	progress(len(msgs))
	return nil
}

func (instant) OrderKey(m *idem.Message) string { return string(m.Key) }

// A queue of one: the pusher that a signal wakes must find a free place in the tracker too.
// Otherwise no further signal comes and the pusher waits for ever.
func TestPartition_SmallestQueueDoesNotLoseItsWakeUp(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	p := start(instant{}, "t", 0, Config{Queue: 1})
	for i := range int64(20_000) {
		require.NoError(t, p.Push(ctx, &idem.Message{Topic: "t", Offset: i}), "message %d", i)
	}
	require.Eventually(t, func() bool { next, _ := p.Watermark(); return next == 20_000 },
		10*time.Second, time.Millisecond)
	require.NoError(t, p.Close(t.Context(), nil))
}

// TestPartition_SetQueueBytes: a smaller bound refuses what would fit before, keeps what is held,
// and a larger one gives room at once.
func TestPartition_SetQueueBytes(t *testing.T) {
	gate := make(chan struct{})
	p := start(gated(gate), "t", 0, Config{QueueBytes: 1 << 20})
	require.True(t, p.Offer(message(0)))
	require.True(t, p.Offer(message(1)))
	p.SetQueueBytes(1 << 10)
	require.False(t, p.Offer(message(2)))
	require.Equal(t, 2, p.Pending())
	select {
	case <-p.Room():
	default:
	}
	p.SetQueueBytes(1 << 20)
	<-p.Room()
	require.True(t, p.Offer(message(2)))
	p.SetQueueBytes(-1)
	require.False(t, p.Offer(message(3)))
	close(gate)
	require.Eventually(t, func() bool { return p.Pending() == 0 }, 10*time.Second, time.Millisecond)
	require.True(t, p.Offer(message(3)), "one message always fits")
	require.NoError(t, p.Close(t.Context(), nil))
}

// gated settles messages when the gate is open.
type gated chan struct{}

func (g gated) Settle(ctx context.Context, msgs []*idem.Message, progress func(int)) error {
	select {
	case <-g:
	case <-ctx.Done():
		return ctx.Err()
	}
	progress(len(msgs))
	return nil
}

func (gated) OrderKey(m *idem.Message) string { return string(m.Key) }
