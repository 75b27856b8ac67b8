package consumer

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/IBM/sarama"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/observe"
)

// partitionsSeen keeps the events of partitions that an observer gets.
type partitionsSeen struct {
	mu       sync.Mutex
	kinds    []observe.RebalanceKind
	sets     []map[string][]int32
	progress []observe.ProgressEvent
}

func (p *partitionsSeen) ObserveRebalance(_ context.Context, e observe.RebalanceEvent) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.kinds, p.sets = append(p.kinds, e.Kind), append(p.sets, e.Partitions)
}

func (p *partitionsSeen) lastProgress() observe.ProgressEvent {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.progress[len(p.progress)-1]
}

func (p *partitionsSeen) ObserveProgress(_ context.Context, e observe.ProgressEvent) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.progress = append(p.progress, e)
}

// A progress event reports how far a partition is. The last one comes when the partition is given
// back, so that a display knows when to stop.
func TestHandler_TellsProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		seen := &partitionsSeen{}
		cfg := Config{CommitInterval: time.Second, Observers: []observe.Observer{seen}}
		h := newHandler(t, cfg, func(ctx context.Context, m *idem.Message) error {
			if m.Offset >= 5 {
				<-ctx.Done()
				return ctx.Err()
			}
			return nil
		})
		ctx, cancel := context.WithCancelCause(t.Context())
		sess := newFakeSession(ctx, map[string][]int32{"t": {0}})
		require.NoError(t, h.Setup(sess))
		claim := newFakeClaim("t", 0, 10)
		run := consume(h, sess, claim)
		time.Sleep(1500 * time.Millisecond)
		require.Equal(t, observe.ProgressEvent{Group: "g", Topic: "t", Partition: 0, Next: -1, Fetched: -1, Begin: 0, HighWater: 1000}, seen.lastProgress())
		lag, ok := seen.lastProgress().Lag()
		require.True(t, ok)
		require.EqualValues(t, 1000, lag, "from where it began")
		for i := range int64(7) {
			claim.messages <- claim.record(i)
		}
		time.Sleep(time.Second)
		now := seen.lastProgress()
		require.Equal(t, observe.ProgressEvent{Group: "g", Topic: "t", Partition: 0, Next: 5, Fetched: 7, Begin: 0, Pending: 2, HighWater: 1000}, now)
		lag, _ = now.Lag()
		require.EqualValues(t, 995, lag)

		cancel(sarama.ErrRebalanceInProgress)
		<-run.done
		require.NoError(t, h.Cleanup(sess))
		require.NoError(t, h.Close())
		for i, e := range seen.progress {
			require.Equal(t, i == len(seen.progress)-1, e.Last)
		}
	})
}

// A session that ends before some of its claims have begun gives these back too. Otherwise a count
// of partitions would keep them for ever.
func TestHandler_TellsOfClaimsThatNeverBegan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		seen := &partitionsSeen{}
		h := newHandler(t, Config{Observers: []observe.Observer{seen}}, func(context.Context, *idem.Message) error { return nil })
		ctx, cancel := context.WithCancelCause(t.Context())
		sess := newFakeSession(ctx, map[string][]int32{"t": {0, 1}})
		require.NoError(t, h.Setup(sess))
		run := consume(h, sess, newFakeClaim("t", 0, 10))
		synctest.Wait()
		cancel(sarama.ErrRebalanceInProgress)
		<-run.done
		require.NoError(t, h.Cleanup(sess))
		require.NoError(t, h.Close())
		require.Equal(t, []observe.RebalanceKind{observe.Assigned, observe.Revoked}, seen.kinds)
		require.Equal(t, seen.sets[0], seen.sets[1])
	})
}
