package watermillidem_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/adapter/watermillidem"
	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/dedup/memstore"
)

// recorder is a store that keeps the progress it is told.
type recorder struct {
	*memstore.Store
	mu  sync.Mutex
	all []dedup.Progress
}

func newRecorder() *recorder { return &recorder{Store: memstore.New(memstore.Volatile())} }

func (r *recorder) RecordProgress(_ context.Context, _ string, progress []dedup.Progress) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = append(r.all, progress...)
	return nil
}

func (r *recorder) Progress(context.Context, string, ...string) ([]dedup.Progress, error) {
	return nil, nil
}

// next is the offset of the last record.
func (r *recorder) next() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.all[len(r.all)-1].Next
}

// at is a message of partition 5. Each call of end ends its context, as a subscriber does.
func at(t *testing.T, offset int) (m *message.Message, end context.CancelFunc) {
	m = msg(offset)
	ctx, end := context.WithCancel(t.Context())
	m.SetContext(context.WithValue(ctx, placeKey{}, watermillidem.Position{Partition: 5, Offset: int64(offset)}))
	return m, end
}

type placeKey struct{}

func positions() watermillidem.Option {
	return watermillidem.WithPosition(func(ctx context.Context) (watermillidem.Position, bool) {
		p, ok := ctx.Value(placeKey{}).(watermillidem.Position)
		return p, ok
	})
}

// kinds are the two ways to settle messages of Watermill with a processor.
var kinds = map[string]func(*testing.T, *idem.Processor) (handle func(*message.Message) error, end func()){
	"Handler": func(_ *testing.T, p *idem.Processor) (func(*message.Message) error, func()) {
		return watermillidem.Handler(p, positions()), func() {}
	},
	"Collector": func(t *testing.T, p *idem.Processor) (func(*message.Message) error, func()) {
		c, err := watermillidem.NewCollector(p, watermillidem.CollectorConfig{}, positions())
		require.NoError(t, err)
		return c.Handle, func() { require.NoError(t, c.Close()) }
	},
}

// Rule 8: a message that was not settled, and that the subscriber has given up, does not hold back
// the progress of the messages after it. A message that may come again does.
func TestProgress_Unsettled_Rule8(t *testing.T) {
	type delivery struct {
		offset      int
		fails, open bool // open: the context has not ended when the next message comes
		restart     bool // first: another function takes over
	}
	for name, c := range map[string]struct {
		all  []delivery
		next int64
	}{
		"all are settled":               {[]delivery{{offset: 10}, {offset: 11}}, 12},
		"it comes again":                {[]delivery{{offset: 10, fails: true}, {offset: 10}, {offset: 11}}, 12},
		"it is still unsettled":         {[]delivery{{offset: 10}, {offset: 11, fails: true}}, 11},
		"it may come again":             {[]delivery{{offset: 10, fails: true, open: true}, {offset: 11}, {offset: 12}}, 10},
		"another process settled it":    {[]delivery{{offset: 10, fails: true}, {offset: 50}, {offset: 51}}, 52},
		"it is given up twice":          {[]delivery{{offset: 10, fails: true}, {offset: 5, fails: true}, {offset: 50}}, 51},
		"it comes again, and fails":     {[]delivery{{offset: 10, fails: true}, {offset: 10, fails: true}, {offset: 50}}, 51},
		"a later one is given up":       {[]delivery{{offset: 10}, {offset: 11, fails: true}, {offset: 50}, {offset: 51}}, 52},
		"another function, given up":    {[]delivery{{offset: 10, fails: true}, {offset: 50, restart: true}}, 51},
		"another function, all is well": {[]delivery{{offset: 10}, {offset: 11, restart: true}}, 12},
	} {
		for kind, start := range kinds {
			t.Run(kind+", "+name, func(t *testing.T) {
				store := newRecorder()
				var fails atomic.Bool
				p := processor(t, store, func(r *idem.Router) {
					idem.On(r, "paid", func(context.Context, idem.Event[payment]) error {
						if fails.Load() {
							return idem.Permanent(errors.New("refused"))
						}
						return nil
					})
				})
				handle, stop := start(t, p)
				for _, d := range c.all {
					if d.restart {
						stop()
						handle, stop = start(t, p)
					}
					fails.Store(d.fails)
					m, end := at(t, d.offset)
					defer end()
					err := handle(m)
					if !d.open {
						end()
					}
					if d.fails {
						require.ErrorIs(t, err, idem.ErrNoProducer)
					} else {
						require.NoError(t, err)
					}
				}
				stop()
				require.NoError(t, p.Close())
				require.Equal(t, c.next, store.next())
			})
		}
	}
}

// Rule 8: the context ends while the handler runs, or while the message waits for another worker.
func TestProgress_EndsWhileBusy_Rule8(t *testing.T) {
	for kind, start := range kinds {
		for name, elsewhere := range map[string]bool{"here": false, "elsewhere": true} {
			t.Run(kind+", "+name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					store, free := newRecorder(), make(chan struct{})
					var first atomic.Bool
					first.Store(true)
					register := func(r *idem.Router) {
						idem.On(r, "paid", func(ctx context.Context, _ idem.Event[payment]) error {
							if first.Swap(false) {
								select {
								case <-free:
								case <-ctx.Done():
									return ctx.Err()
								}
							}
							return nil
						})
					}
					p, other := processor(t, store, register), processor(t, store.Store, register)
					held := make(chan error, 1)
					if elsewhere {
						go func() { held <- watermillidem.Handler(other)(msg(10)) }()
						synctest.Wait()
					}
					handle, stop := start(t, p)
					lost, end := at(t, 10)
					go func() {
						time.Sleep(time.Second)
						end()
					}()
					require.ErrorIs(t, handle(lost), idem.ErrStopping)
					close(free)
					time.Sleep(time.Minute)
					for _, offset := range []int{50, 51} {
						m, end := at(t, offset)
						require.NoError(t, handle(m))
						end()
					}
					stop()
					require.NoError(t, p.Close())
					require.EqualValues(t, 52, store.next())
					if elsewhere {
						require.NoError(t, <-held)
					}
					require.NoError(t, other.Close())
				})
			})
		}
	}
}
