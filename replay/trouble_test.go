package replay

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/idem-go/idem"
)

// A replay waits for brokers that do not answer, as long as it may, and then has a position.
func TestRun_BrokersDown(t *testing.T) {
	w := newWorld(t)
	w.write(10, kgo.TryCommit)
	w.live.Sarama = nil
	var got runs
	cfg := Config{Window: Offsets(Range{Topic: "orders", End: -1}), Scope: OwnScope("down")}
	r := w.replay(got.router(), cfg)
	plan := w.plan(r)
	var refused atomic.Int64
	refused.Store(12) // more than one reader tries in a row
	w.kafka.ControlKey(int16(kmsg.Fetch), func(kmsg.Request) (kmsg.Response, error, bool) {
		w.kafka.KeepControl()
		if refused.Add(-1) >= 0 {
			return nil, errors.New("refused"), true
		}
		return nil, nil, false
	})
	result, err := r.Run(t.Context(), plan, nil)
	require.NoError(t, err)
	require.Equal(t, Counts{Handled: 5}, result.Counts)
	require.Negative(t, refused.Load())

	refused.Store(1 << 40)
	cfg.BrokerWait, cfg.Scope = time.Millisecond, OwnScope("gone")
	plan.Scope = "billing.replay.gone"
	result, err = w.replay(got.router(), cfg).Run(t.Context(), plan, nil)
	require.Error(t, err)
	require.False(t, result.Complete)
	require.Equal(t, Position{"orders": {0: 0}}, result.Position)
}

// A handler that ignores the stop is left behind after the grace.
func TestRun_Abandoned(t *testing.T) {
	w := newWorld(t)
	w.write(2, kgo.TryCommit)
	w.live.Grace = 2100 * time.Millisecond // two seconds before its end the context is cancelled
	release, running := make(chan struct{}), make(chan struct{})
	var got runs
	var once sync.Once
	got.hook = func(idem.Event[struct{}], int) error {
		once.Do(func() { close(running) })
		<-release
		return nil
	}
	r, err := New(w.live, got.router(), Config{Window: Offsets(Range{Topic: "orders", End: -1}), Scope: OwnScope("hang")})
	require.NoError(t, err)
	plan := w.plan(r)
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-running; cancel() }()
	result, err := r.Run(ctx, plan, nil)
	require.ErrorIs(t, err, idem.ErrAbandoned)
	require.ErrorIs(t, err, idem.ErrStopping)
	require.ErrorIs(t, err, context.Canceled)
	require.Zero(t, result.Counts.Settled())
	require.Zero(t, result.Position["orders"][0])
	require.ErrorIs(t, r.Close(), idem.ErrAbandoned)
	close(release)
}

// Two processes that run the same replay share its events.
func TestRun_Twice(t *testing.T) {
	w := newWorld(t)
	w.write(100, kgo.TryCommit)
	var got runs
	var both sync.WaitGroup
	var settled, handled atomic.Int64
	for range 2 {
		r := w.replay(got.router(), Config{Window: all, Scope: OwnScope("twice"), Rate: 2000})
		plan := w.plan(r)
		both.Go(func() {
			result, err := r.Run(t.Context(), plan, nil)
			if err != nil {
				t.Error(err)
			}
			settled.Add(result.Counts.Settled())
			handled.Add(result.Counts.Handled)
		})
	}
	both.Wait()
	require.EqualValues(t, 200, settled.Load())
	require.EqualValues(t, 100, handled.Load())
	require.Equal(t, map[int]int{1: 100}, got.times())
}
