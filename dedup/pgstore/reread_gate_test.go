package pgstore_test

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/dedup"
)

// An event of a transactional handler cannot be decoded now. It waits while its registry is down, goes on in a retry topic when its tries
// are spent, and its effect is there once. Then its copy, delivered again, is known as done.
func TestUndecodedEventIsMovedOn_Rule3(t *testing.T) {
	s, _ := newStore(t)
	says := []error{
		idem.Unavailable(errors.New("registry is down")), idem.Unavailable(errors.New("registry is down")),
		idem.NotApplied(errors.New("registry said 500")), // spends the one try
	}
	e := newEngine(t, s, func(e *engine, r *idem.Router) {
		idem.OnTx(r, "paid", e.write, oneTry, idem.RetryTopics(100*time.Millisecond, time.Second), idem.Decode(func(m *idem.Message, _ any) error {
			if id, _ := idem.FromHeader("event-id").Extract(m); id != "e2" || len(says) == 0 {
				return nil
			}
			err := says[0]
			says = says[1:]
			return err
		}))
	})
	n, err := e.p.HandleBatch(t.Context(), []*idem.Message{e.message("paid", "e1"), e.message("paid", "e2"), e.message("paid", "e3")})
	require.NoError(t, err)
	require.Equal(t, 3, n)
	require.Empty(t, says)
	require.Len(t, e.deadLetters, 1)
	moved := e.deadLetters[0]
	require.Equal(t, "payments.orders.retry.100ms", moved.Topic)
	state := func() dedup.State {
		records, err := s.Inspect(t.Context(), dedup.Key{Scope: "orders", Type: "paid", ID: "e2"})
		require.NoError(t, err)
		require.Len(t, records, 1)
		return records[0].State
	}
	require.Equal(t, dedup.Waiting, state())
	for range 2 {
		require.NoError(t, e.p.Handle(t.Context(), moved))
		require.Equal(t, dedup.Finished, state())
	}
	for _, id := range []string{"e1", "e2", "e3"} {
		runs, letters := e.counts(id)
		require.Equal(t, 1, runs, id)
		require.Equal(t, 1, letters)
	}
}
