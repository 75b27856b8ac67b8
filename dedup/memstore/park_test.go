package memstore_test

import (
	"context"
	"testing"
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/dedup/memstore"
	"github.com/stretchr/testify/require"
)

var lot = dedup.Lot{Scope: "s", Topic: "t", Partition: 1}

func parked(queue string, ids ...string) []dedup.Parked {
	events := make([]dedup.Parked, len(ids))
	for i, id := range ids {
		events[i] = dedup.Parked{Key: dedup.Key{Scope: "s", ID: id}, Queue: queue, Data: []byte(id)}
	}
	return events
}

// H-21: what is parked is bounded, and nothing that is parked is let go for it.
func TestFullRefusesToPark(t *testing.T) {
	s := memstore.New(memstore.Capacity(3))
	finish(t, s, 0, 3, time.Hour) // other room
	require.NoError(t, s.Park(t.Context(), lot, parked("q", "a", "b")))
	for range 2 {
		err := s.Park(t.Context(), lot, parked("r", "b", "c", "d"))
		require.ErrorIs(t, err, dedup.ErrFull)
		require.ErrorIs(t, err, dedup.ErrUnavailable)
	}
	elsewhere := dedup.Lot{Scope: "s", Topic: "another"}
	require.ErrorIs(t, s.Park(t.Context(), elsewhere, parked("r", "c", "d")), dedup.ErrFull)
	queues, err := s.Queues(t.Context(), lot, "", 9)
	require.NoError(t, err)
	require.Len(t, queues, 1)
	require.Equal(t, 2, queues[0].Length)
	require.NoError(t, s.Park(t.Context(), elsewhere, parked("r", "a", "a")))
	_, err = s.Remove(t.Context(), lot, "q", dedup.Parked{Key: parked("", "a")[0].Key})
	require.NoError(t, err)
	require.NoError(t, s.Park(t.Context(), lot, parked("r", "c")))
	require.ErrorIs(t, s.Park(t.Context(), lot, parked("r", "d")), dedup.ErrFull)
}

// A caller may do what he likes with his slices.
func TestParkedAreCopies(t *testing.T) {
	s := memstore.New()
	mine := parked("q", "a")
	require.NoError(t, s.Park(t.Context(), lot, mine))
	mine[0].Data[0] = 'X'
	moved := parked("q", "a")[0]
	for retry := range uint32(3) {
		heads, _, err := s.Due(t.Context(), lot, 1)
		require.NoError(t, err)
		require.Equal(t, "a", string(heads[0].Data))
		heads[0].Data[0] = 'Y'
		moved.Data = []byte("a")
		moved.Position.Retry = retry + 1
		ok, err := s.Postpone(t.Context(), lot, moved)
		require.NoError(t, err)
		require.True(t, ok)
		moved.Data[0] = 'Z'
	}
}

func TestParkObeysItsContext(t *testing.T) {
	s := memstore.New()
	require.NoError(t, s.Park(t.Context(), lot, parked("q", "a")))
	ctx := ended(t)
	require.Error(t, s.Park(ctx, lot, parked("q", "b")))
	_, err := s.Remove(ctx, lot, "q", dedup.Parked{Key: parked("", "a")[0].Key})
	require.Error(t, err)
	_, _, err = s.Due(ctx, lot, 1)
	require.Error(t, err)
	queues, err := s.Queues(t.Context(), lot, "", 9)
	require.NoError(t, err)
	require.Equal(t, []int{1}, []int{queues[0].Length})
}

func ended(t *testing.T) context.Context {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	return ctx
}
