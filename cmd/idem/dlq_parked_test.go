package main

import (
	"context"
	"io"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/dedup/memstore"
	"github.com/idem-go/idem/dedup/pgstore"
	"github.com/idem-go/idem/internal/letters"
	"github.com/idem-go/idem/internal/testenv"
)

// A dead event of an ordered Kafka key goes on in its place when it is replayed, and what waited behind it follows: the
// command, the ledger and the engine together (rule 4).
func TestReplayOfADeadHead(t *testing.T) {
	t.Run("memory", func(t *testing.T) { replayOfADeadHead(t, memstore.New(memstore.Volatile())) })
	t.Run("postgres", func(t *testing.T) {
		pool, err := pgxpool.New(t.Context(), testenv.Postgres(t))
		require.NoError(t, err)
		t.Cleanup(pool.Close)
		require.NoError(t, pgstore.Migrate(t.Context(), pool))
		replayOfADeadHead(t, pgstore.New(pool))
	})
}

func replayOfADeadHead(t *testing.T, store dedup.Store) {
	w := newLetterWorld(t)
	w.store = store
	var order []string
	head, second := w.event("head", ""), w.event("second", "")
	second.Key, second.Partition = head.Key, head.Partition

	broken := func(id string) error {
		if id == "head" {
			return errBroken
		}
		order = append(order, id)
		return nil
	}
	stop := w.takeUp(broken, head, second)
	require.Eventually(t, func() bool { return len(w.letters()) == 1 }, 20*time.Second, 20*time.Millisecond)
	stop()
	require.Empty(t, order)
	require.Equal(t, map[string][]letters.Verdict{"head": {letters.SeenParked}}, byEvent(w.verdicts(letters.Filter{}, letters.Decisions{})))

	got, _ := w.replay(letters.Filter{}, replayFlags{}, letters.Decisions{})
	require.Equal(t, map[letters.Verdict]int{letters.SeenParked: 1}, got.Verdicts)
	require.Empty(t, w.copies())
	waits, _ := w.replay(letters.Filter{}, replayFlags{}, letters.Decisions{})
	require.Equal(t, map[letters.Verdict]int{letters.SeenWaiting: 1}, waits.Verdicts)

	stop = w.takeUp(func(id string) error { order = append(order, id); return nil })
	require.Eventually(t, func() bool {
		records, err := store.(dedup.Operator).Inspect(t.Context(), w.key("second"))
		return err == nil && len(records) == 1 && records[0].State == dedup.Finished
	}, 20*time.Second, 20*time.Millisecond)
	stop()
	require.Equal(t, []string{"head", "second"}, order)
	require.True(t, slices.Equal([]letters.Verdict{letters.SeenDone}, byEvent(w.verdicts(letters.Filter{}, letters.Decisions{}))["head"]))
}

// Who gives up an event that waits behind a dead one without saying where it is parked gives up that one only: when the head goes
// on, what is behind both follows (rule 4).
func TestSkipOfAParkedEventWithoutItsTopic(t *testing.T) {
	w := newLetterWorld(t)
	head, second, third := w.event("head", ""), w.event("second", ""), w.event("third", "")
	second.Key, second.Partition, third.Key, third.Partition = head.Key, head.Partition, head.Key, head.Partition
	stop := w.takeUp(func(string) error { return errBroken }, head, second, third)
	require.Eventually(t, func() bool { return len(w.letters()) == 1 }, 20*time.Second, 20*time.Millisecond)
	stop()
	require.NoError(t, w.store.(dedup.Operator).Discard(t.Context(), w.key("second"), time.Hour, "not needed"))
	got, _ := w.replay(letters.Filter{}, replayFlags{}, letters.Decisions{})
	require.Equal(t, 1, got.Replayed)

	var order []string
	stop = w.takeUp(func(id string) error { order = append(order, id); return nil })
	require.Eventually(t, func() bool {
		records, err := w.store.(dedup.Operator).Inspect(t.Context(), w.key("third"))
		return err == nil && len(records) == 1 && records[0].State == dedup.Finished
	}, 20*time.Second, 20*time.Millisecond)
	stop()
	require.Equal(t, []string{"head", "third"}, order)
	require.Len(t, w.letters(), 1)
}

// takeUp is the group with a handler that keeps the order of Kafka keys. It hands in messages and takes up what waits
// until stop is called.
func (w *letterWorld) takeUp(fn func(id string) error, messages ...*idem.Message) (stop func()) {
	w.t.Helper()
	r := idem.NewRouter()
	idem.On(r, "paid", func(_ context.Context, e idem.Event[struct{}]) error { return fn(e.ID) },
		idem.KeyOrdered(time.Millisecond), idem.Retry(idem.RetryPolicy{MaxAttempts: 1}))
	p, err := idem.NewProcessor(r, idem.Config{
		Store: w.store, Scope: "g", Producer: w.producer, Logger: slog.New(slog.NewTextHandler(io.Discard, nil)),
	})
	require.NoError(w.t, err)
	p.Assigned("orders", 1)
	for _, m := range messages {
		require.EqualValues(w.t, 1, m.Partition)
		require.NoError(w.t, p.Handle(w.t.Context(), m))
	}
	ctx, cancel := context.WithCancelCause(w.t.Context())
	done := make(chan error, 1)
	go func() { done <- p.TakeUp(ctx, "orders", 1) }()
	return func() {
		cancel(idem.ErrStopping)
		require.NoError(w.t, <-done)
		p.Close()
	}
}
