package pgoutbox

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// O-12: of the transactions within a span, the first notifies. After a pause any does.
func TestNotifier(t *testing.T) {
	n := &notifier{began: time.Now()}
	for _, c := range []struct {
		after time.Duration
		want  bool
	}{
		{0, true},
		{0, false},
		{notifyEvery - 1, false},
		{notifyEvery, true},
		{2*notifyEvery - 1, false},
		{time.Hour, true},
		{time.Hour, false},
		{time.Minute, false}, // a goroutine that was late
	} {
		require.Equal(t, c.want, n.due(n.began.Add(c.after)), c.after)
	}
	var chosen atomic.Int32
	var all sync.WaitGroup
	for range 100 {
		all.Go(func() {
			if n.due(n.began.Add(2 * time.Hour)) {
				chosen.Add(1)
			}
		})
	}
	all.Wait()
	require.EqualValues(t, 1, chosen.Load())
}
