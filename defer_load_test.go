package idem_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/dedup"
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
