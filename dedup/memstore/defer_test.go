package memstore_test

import (
	"context"
	"testing"
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/dedup/memstore"
	"github.com/stretchr/testify/require"
)

var part = dedup.DeferredPartition{Scope: "s", Topic: "t", Partition: 1}

func deferred(queue string, ids ...string) []dedup.Deferred {
	events := make([]dedup.Deferred, len(ids))
	for i, id := range ids {
		events[i] = dedup.Deferred{Key: dedup.Key{Scope: "s", ID: id}, Queue: queue, Data: []byte(id)}
	}
	return events
}

// H-21: the number of deferred events is bounded, and no deferred event is dropped for another.
func TestFullRefusesToDefer(t *testing.T) {
	s := memstore.New(memstore.Capacity(3))
	finish(t, s, 0, 3, time.Hour) // other room
	require.NoError(t, s.Defer(t.Context(), part, deferred("q", "a", "b")))
	for range 2 {
		err := s.Defer(t.Context(), part, deferred("r", "b", "c", "d"))
		require.ErrorIs(t, err, dedup.ErrFull)
		require.ErrorIs(t, err, dedup.ErrUnavailable)
	}
	elsewhere := dedup.DeferredPartition{Scope: "s", Topic: "another"}
	require.ErrorIs(t, s.Defer(t.Context(), elsewhere, deferred("r", "c", "d")), dedup.ErrFull)
	queues, err := s.Queues(t.Context(), part, "", 9)
	require.NoError(t, err)
	require.Len(t, queues, 1)
	require.Equal(t, 2, queues[0].Length)
	require.NoError(t, s.Defer(t.Context(), elsewhere, deferred("r", "a", "a")))
	_, err = s.Remove(t.Context(), part, "q", dedup.Deferred{Key: deferred("", "a")[0].Key})
	require.NoError(t, err)
	require.NoError(t, s.Defer(t.Context(), part, deferred("r", "c")))
	require.ErrorIs(t, s.Defer(t.Context(), part, deferred("r", "d")), dedup.ErrFull)
}

// A caller may change its own slices.
func TestDeferredAreCopies(t *testing.T) {
	s := memstore.New()
	mine := deferred("q", "a")
	require.NoError(t, s.Defer(t.Context(), part, mine))
	mine[0].Data[0] = 'X'
	moved := deferred("q", "a")[0]
	for retry := range uint32(3) {
		heads, _, err := s.Due(t.Context(), part, 1)
		require.NoError(t, err)
		require.Equal(t, "a", string(heads[0].Data))
		heads[0].Data[0] = 'Y'
		moved.Data = []byte("a")
		moved.Position.Retry = retry + 1
		ok, err := s.Postpone(t.Context(), part, moved)
		require.NoError(t, err)
		require.True(t, ok)
		moved.Data[0] = 'Z'
	}
}

func TestDeferObeysItsContext(t *testing.T) {
	s := memstore.New()
	require.NoError(t, s.Defer(t.Context(), part, deferred("q", "a")))
	ctx := ended(t)
	require.Error(t, s.Defer(ctx, part, deferred("q", "b")))
	_, err := s.Remove(ctx, part, "q", dedup.Deferred{Key: deferred("", "a")[0].Key})
	require.Error(t, err)
	_, _, err = s.Due(ctx, part, 1)
	require.Error(t, err)
	queues, err := s.Queues(t.Context(), part, "", 9)
	require.NoError(t, err)
	require.Equal(t, []int{1}, []int{queues[0].Length})
}

func ended(t *testing.T) context.Context {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	return ctx
}
