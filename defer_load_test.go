package idem_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/observe"
)

// manyQueues is a store whose partitions have many queues of blocked keys. A page takes some time.
type manyQueues struct {
	*spy
	names []string // ascending
	takes time.Duration
	pages int // that were asked for
	fails func(page int) error
}

func (s *manyQueues) Queues(ctx context.Context, _ dedup.DeferredPartition, after string,
	limit int,
) (found []dedup.Queue, err error) {
	s.pages++
	select {
	case <-time.After(s.takes):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if s.fails != nil {
		if err := s.fails(s.pages); err != nil {
			return nil, err
		}
	}
	for _, name := range s.names {
		if name > after && len(found) < limit {
			found = append(found, dedup.Queue{Name: name, Length: 1})
		}
	}
	return found, nil
}

// Rule 4: a partition has more queues than one call of the store can read in its time. The events
// of other keys run, also after a failure in the middle.
func TestDefer_ManyQueuesAreRead_Rule4(t *testing.T) {
	const pages = 100
	for name, fails := range map[string]func(int) error{
		"slow pages":           nil,
		"a page fails":         func(page int) error { return map[int]error{50: errBoom}[page] },
		"assigned anew within": func(page int) error { return nil },
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *bench) {
				store := &manyQueues{spy: b.store, takes: 150 * time.Millisecond, fails: fails}
				for i := range 1000*pages - 1 {
					store.names = append(store.names, fmt.Sprintf("q%06d", i))
				}
				b.cfg.Store = store
				b.on(succeed, idem.KeyOrdered(time.Second))
				b.start()
				asked := pages
				switch name {
				case "a page fails":
					asked++
				case "assigned anew within":
					asked += 20
					go func() {
						time.Sleep(20*store.takes - time.Millisecond)
						b.p.Assigned("orders", 1)
					}()
				}
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
				defer cancel()
				began := time.Now()
				require.NoError(t, b.p.Handle(ctx, inQueue("other", "e1", 1)))
				require.Less(t, time.Since(began), time.Minute)
				require.Equal(t, asked, store.pages, "a page is read once, until the partition is assigned anew")
			})
		})
	}
}

// A stop ends the reading of queues between two pages.
func TestDefer_StopWhileQueuesAreRead(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		store := &manyQueues{spy: b.store, takes: time.Second}
		for i := range 100_000 {
			store.names = append(store.names, fmt.Sprintf("q%06d", i))
		}
		b.cfg.Store = store
		b.on(succeed, idem.KeyOrdered(time.Second))
		b.start()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		began := time.Now()
		err := b.p.Handle(ctx, inQueue("other", "e1", 1))
		require.True(t, errors.Is(err, context.DeadlineExceeded) || errors.Is(err, idem.ErrStopping), err)
		require.Less(t, time.Since(began), 15*time.Second)
	})
}

// Rule 4: an event fails while the queues of its partition are read anew. Its queue begins behind
// the page that would have it. The next event of its key waits all the same.
func TestDefer_QueueBeginsWhileOthersAreRead_Rule4(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		store := &manyQueues{spy: b.store, takes: time.Second}
		for i := range 20_000 - 1 {
			store.names = append(store.names, fmt.Sprintf("q%06d", i))
		}
		b.cfg.Store = store
		runs := make(map[string]int)
		b.on(func(_ context.Context, e idem.Event[payload]) error {
			runs[e.ID]++
			if e.ID == "a1" {
				time.Sleep(15 * time.Second)
				return errBoom
			}
			return nil
		}, once, idem.KeyOrdered(time.Hour))
		b.start()
		failing := make(chan error, 1)
		go func() { failing <- b.p.Handle(t.Context(), inQueue("a", "a1", 1)) }()
		time.Sleep(21 * time.Second) // the queues are read, and a1 runs
		b.p.Assigned("orders", 1)
		require.NoError(t, b.p.Handle(t.Context(), inQueue("other", "e1", 2)))
		require.NoError(t, <-failing)
		require.NoError(t, b.p.Handle(t.Context(), inQueue("a", "a2", 3)))
		require.Equal(t, map[string]int{"a1": 1, "e1": 1}, runs)
		require.Equal(t, 40, store.pages)
	})
}

// handleAtOnce handles an event of another Kafka key in each of n lanes, and returns the errors.
func (b *bench) handleAtOnce(ctx context.Context, n int) []error {
	errs := make([]error, n)
	var lanes sync.WaitGroup
	for i := range n {
		lanes.Go(func() {
			key := fmt.Sprint("other", i)
			errs[i] = b.p.Handle(ctx, inQueue(key, key, int64(i)))
		})
	}
	lanes.Wait()
	return errs
}

// Rule 4: the lanes of a partition take turns to read its queues, for longer than one call of the
// store may take. The wait for a turn is no outage of a store that answers each call in time.
func TestDefer_LanesTakeTurnsToReadQueues_Rule4(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		const pages = 20
		store := &manyQueues{spy: b.store, takes: 1100 * time.Millisecond}
		for i := range 1000*pages - 1 {
			store.names = append(store.names, fmt.Sprintf("q%06d", i))
		}
		o := &outages{}
		b.cfg.Store, b.cfg.Observers = store, []observe.Observer{o}
		b.on(succeed, idem.KeyOrdered(time.Second))
		b.start()
		began := time.Now()
		for _, err := range b.handleAtOnce(t.Context(), 16) {
			require.NoError(t, err)
		}
		require.Less(t, time.Since(began), 25*time.Second)
		require.Equal(t, pages, store.pages)
		require.Empty(t, o.events)
	})
}

// A stop ends the wait for a turn. Only the lane whose call is under way waits for the store.
func TestDefer_StopWhileLanesWaitForATurn(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		store := &manyQueues{spy: b.store, takes: time.Hour}
		b.cfg.Store = store
		b.on(succeed, idem.KeyOrdered(time.Second))
		b.start()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		for _, err := range b.handleAtOnce(ctx, 16) {
			require.ErrorIs(t, err, idem.ErrStopping)
		}
		require.LessOrEqual(t, time.Since(began), 11*time.Second)
	})
}

// A call of a foreign loop waits for its turn within BusyWait.
func TestDefer_WaitForATurnIsBounded(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		store := &manyQueues{spy: b.store, takes: 5 * time.Second}
		b.cfg.Store, b.cfg.BusyWait = store, time.Second
		b.on(succeed, idem.KeyOrdered(time.Second))
		b.start()
		first := make(chan error, 1)
		go func() { first <- b.p.Handle(t.Context(), inQueue("a", "a1", 1)) }()
		synctest.Wait()
		began := time.Now()
		var wait *idem.WaitError
		require.ErrorAs(t, b.p.Handle(t.Context(), inQueue("b", "b1", 2)), &wait)
		require.ErrorIs(t, wait, idem.ErrBusy)
		require.Equal(t, time.Second, time.Since(began))
		require.NoError(t, <-first)
		require.NoError(t, b.p.Handle(t.Context(), inQueue("b", "b1", 2)))
		require.Equal(t, 1, store.pages)
	})
}

// The call of a lane begins with its turn. So the first call that succeeds ends an outage, also if
// the outage began during the wait for that turn.
func TestDefer_OutageEndsWithTheNextTurn(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		store := &manyQueues{spy: b.store, takes: time.Second}
		store.fails = func(page int) error { return map[int]error{1: errBoom}[page] }
		for i := range 1999 {
			store.names = append(store.names, fmt.Sprintf("q%06d", i))
		}
		o := &outages{}
		b.cfg.Store, b.cfg.Observers = store, []observe.Observer{o}
		b.on(succeed, idem.KeyOrdered(time.Second))
		b.start()
		for _, err := range b.handleAtOnce(t.Context(), 2) {
			require.NoError(t, err)
		}
		require.Equal(t, 3, store.pages)
		require.Len(t, o.events, 2)
		require.True(t, o.events[0].Down)
		require.Equal(t, time.Second, o.events[1].For, "the end of the second page")
	})
}

// endless is a store that does not answer some calls before the end of their contexts.
type endless struct {
	*spy
	defers, removes atomic.Bool
}

func (s *endless) Defer(ctx context.Context, p dedup.DeferredPartition, es []dedup.Deferred) error {
	if s.defers.Load() {
		<-ctx.Done()
		return ctx.Err()
	}
	return s.spy.Defer(ctx, p, es)
}

func (s *endless) Remove(
	ctx context.Context, p dedup.DeferredPartition, queue string, es ...dedup.Deferred,
) (bool, error) {
	if s.removes.Load() {
		<-ctx.Done()
		return false, ctx.Err()
	}
	return s.spy.Remove(ctx, p, queue, es...)
}

// A stop ends the wait of lanes whose events join a queue. Only the lane whose call is under way
// waits for the store.
func TestDefer_StopWhileLanesJoinAQueue(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		store := &endless{spy: b.store}
		b.cfg.Store = store
		b.on(func(context.Context, idem.Event[payload]) error { return errBoom }, idem.KeyOrdered(time.Hour))
		b.start()
		require.NoError(t, b.p.Handle(t.Context(), inQueue("a", "a0", 0)))
		store.defers.Store(true)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		errs := make([]error, 16)
		var lanes sync.WaitGroup
		for i := range errs {
			lanes.Go(func() {
				errs[i] = b.p.Handle(ctx, inQueue("a", fmt.Sprint("b", i), int64(i+1)))
			})
		}
		lanes.Wait()
		for _, err := range errs {
			require.ErrorIs(t, err, idem.ErrStopping)
		}
		require.LessOrEqual(t, time.Since(began), 12*time.Second)
	})
}

// A call of a foreign loop waits within BusyWait for the runner of the partition, whose store does
// not answer. That holds for an event of a queued key and for one that fails.
func TestDefer_WaitForTheRunnerIsBounded(t *testing.T) {
	for name, key := range map[string]string{"an event of a queued key": "a", "an event that fails": "b"} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *bench) {
				store := &endless{spy: b.store}
				b.cfg.Store, b.cfg.BusyWait = store, time.Second
				var fails atomic.Bool
				fails.Store(true)
				b.on(func(context.Context, idem.Event[payload]) error {
					if fails.Load() {
						return errBoom
					}
					return nil
				}, idem.KeyOrdered(time.Second))
				b.start()
				require.NoError(t, b.p.Handle(t.Context(), inQueue("a", "a0", 0)))
				store.removes.Store(true)
				fails.Store(false)
				stop := b.runsDeferred()
				require.NoError(t, b.p.Handle(t.Context(), inQueue("c", "c0", 9)), "reads the queues")
				time.Sleep(time.Minute)
				fails.Store(true)
				began := time.Now()
				var wait *idem.WaitError
				require.ErrorAs(t, b.p.Handle(t.Context(), inQueue(key, "x", 1)), &wait)
				require.ErrorIs(t, wait, idem.ErrBusy)
				// The attempt of an event that fails may come after a pause in place.
				require.GreaterOrEqual(t, time.Since(began), time.Second)
				require.LessOrEqual(t, time.Since(began), 3*time.Second)
				store.removes.Store(false)
				time.Sleep(time.Minute)
				require.NoError(t, b.p.Handle(t.Context(), inQueue(key, "x", 1)))
				stop()
			})
		})
	}
}
