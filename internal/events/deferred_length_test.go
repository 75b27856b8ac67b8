package events

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/internal/deadletters"
)

// uncounted is a store that finds deferred events, and cannot count those of a long queue.
type uncounted struct {
	dedup.Store
	dedup.Deferrer
	head  dedup.Deferred
	count func(context.Context) error
}

func (s *uncounted) FindDeferred(context.Context, string, string, dedup.Key) (
	dedup.DeferredPartition, dedup.Deferred, bool, error,
) {
	return dedup.DeferredPartition{Partition: 3}, s.head, true, nil
}

func (s *uncounted) First(context.Context, dedup.DeferredPartition, string, int) ([]dedup.Deferred, error) {
	return []dedup.Deferred{s.head}, nil
}

func (s *uncounted) Queues(ctx context.Context, _ dedup.DeferredPartition, _ string, _ int) ([]dedup.Queue, error) {
	return nil, s.count(ctx)
}

// Rule 4: a person takes the head out of a queue that is too long to be counted.
func TestLengthThatIsNotKnown_Rule4(t *testing.T) {
	for name, count := range map[string]func(context.Context) error{
		"fails": func(context.Context) error { return dedup.ErrUnavailable },
		"takes long": func(ctx context.Context) error {
			<-ctx.Done()
			return ctx.Err()
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				head := dedup.Deferred{Key: key("order", "head"), Queue: "k", Blocked: true}
				store := &deadletters.NamedStore{Name: "s", Store: &uncounted{head: head, count: count}}
				began := time.Now()
				found, err := findDeferred(t.Context(), store, head.Key, "orders")
				require.NoError(t, err)
				require.Equal(t, -1, found.Behind)
				require.Equal(t, head.Key, found.Head.Key)
				require.LessOrEqual(t, time.Since(began), lengthWait)

				// A caller with little time gets the state of all its events.
				little, cancel := context.WithTimeout(t.Context(), 2*time.Second)
				defer cancel()
				for range 3 {
					found, err = findDeferred(little, store, head.Key, "orders")
					require.NoError(t, err)
					require.Equal(t, -1, found.Behind)
				}

				ended, cancel := context.WithCancel(t.Context())
				cancel()
				_, err = findDeferred(ended, store, head.Key, "orders")
				require.Error(t, err)
			})
		})
	}
}
