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
