package drills

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/dedup"
)

const (
	batchSize = 8
	// settleLimit bounds the time in which a batch is settled, outages included.
	settleLimit = 90 * time.Second
	lease       = 5 * time.Second
)

// event is the value of each event.
type event struct {
	ID string `json:"id"`
}

// load sends batches of events to workers. Each event goes to two workers, as copies in two
// partitions, and its type alternates.
type load struct {
	workers []*idem.Processor
	types   []string
	began   time.Time
	batches atomic.Int64 // those that a worker has begun
	end     atomic.Int64 // the number of batches, once it is known
	all     sync.WaitGroup
	cancel  context.CancelFunc
	// settledAt has the time at which the copies of a batch were settled first.
	settledAt sync.Map
}

// startLoad starts the workers. Each makes a pause after a batch.
func startLoad(t testing.TB, workers []*idem.Processor, pause time.Duration, types ...string) *load {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	l := &load{workers: workers, types: types, began: time.Now(), cancel: cancel}
	l.end.Store(1 << 62)
	for w := range workers {
		l.all.Go(func() { l.work(ctx, t, w, pause) })
	}
	t.Cleanup(func() {
		cancel()
		l.all.Wait()
	})
	return l
}

// work settles the batches of a worker: two of them in n, for n workers.
func (l *load) work(ctx context.Context, t testing.TB, w int, pause time.Duration) {
	n := int64(len(l.workers))
	for k := int64(0); k < l.end.Load() && ctx.Err() == nil; k++ {
		if first := k % n; first != int64(w) && (first+1)%n != int64(w) {
			continue
		}
		for seen := l.batches.Load(); seen <= k && !l.batches.CompareAndSwap(seen, k+1); {
			seen = l.batches.Load()
		}
		limited, cancel := context.WithTimeout(ctx, settleLimit)
		err := settle(limited, l.workers[w], l.messages(k, int32(w)))
		cancel()
		if err != nil {
			t.Errorf("worker %d, batch %d: %v", w, k, err)
			return
		}
		l.settledAt.LoadOrStore(k, time.Now())
		if pause > 0 {
			time.Sleep(pause)
		}
	}
}

// stop lets the workers finish the batches that were begun.
func (l *load) stop() {
	l.end.Store(l.batches.Load() + int64(len(l.workers)))
	l.all.Wait()
	l.cancel()
}

func idOf(k int64, i int) string { return fmt.Sprintf("%d-%d", k, i) }

// typeOf returns the type of an event of batch k.
func (l *load) typeOf(k int64) string { return l.types[k%int64(len(l.types))] }

// messages are the events of a batch, as copies in one partition.
func (l *load) messages(k int64, partition int32) []*idem.Message {
	msgs := make([]*idem.Message, batchSize)
	for i := range msgs {
		id := idOf(k, i)
		msgs[i] = &idem.Message{
			Topic: "drill", Partition: partition, Offset: k*batchSize + int64(i), Time: time.Now(),
			Value: fmt.Appendf(nil, `{"id":%q}`, id),
			Headers: []idem.Header{
				{Key: "event-type", Value: []byte(l.typeOf(k))}, {Key: "event-id", Value: []byte(id)},
			},
		}
	}
	return msgs
}

// sent are the IDs of the events of a type. An empty type means all events.
func (l *load) sent(typ string) (ids []string) {
	for k := range l.end.Load() {
		if typ == "" || l.typeOf(k) == typ {
			for i := range batchSize {
				ids = append(ids, idOf(k, i))
			}
		}
	}
	return ids
}

// settle calls HandleBatch as a poll loop does, until all messages are settled.
func settle(ctx context.Context, p *idem.Processor, msgs []*idem.Message) error {
	for len(msgs) > 0 {
		settled, err := p.HandleBatch(ctx, msgs)
		msgs = msgs[settled:]
		var wait *idem.WaitError
		switch {
		case err == nil:
		case errors.As(err, &wait):
			select {
			case <-time.After(wait.After):
			case <-ctx.Done():
				return fmt.Errorf("%d events are left: %w", len(msgs), err)
			}
		default:
			return fmt.Errorf("%d events are left: %w", len(msgs), err)
		}
	}
	return nil
}

// counts are the effects that happen outside of a database.
type counts struct {
	mu sync.Mutex
	of map[string]int
}

func newCounts() *counts { return &counts{of: make(map[string]int)} }

func (c *counts) add(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.of[id]++
}

func (c *counts) copyOf() map[string]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	m := make(map[string]int, len(c.of))
	for id, n := range c.of {
		m[id] = n
	}
	return m
}

// worker returns a processor on a store. No event of a drill may become a dead letter.
func worker(t testing.TB, store dedup.Store, router *idem.Router) *idem.Processor {
	t.Helper()
	level := slog.LevelError
	if os.Getenv("IDEM_DRILL_LOG") != "" {
		level = slog.LevelDebug
	}
	p, err := idem.NewProcessor(router, idem.Config{
		Store: store, Scope: "workers", Lease: lease,
		Logger: slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: level})),
	})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, p.Close()) })
	return p
}
