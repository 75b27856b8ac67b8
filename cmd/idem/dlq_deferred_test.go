package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/deadletter"
	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/dedup/memstore"
	"github.com/idem-go/idem/dedup/pgstore"
	"github.com/idem-go/idem/internal/deadletters"
	"github.com/idem-go/idem/internal/testenv"
)

// A dead event of an ordered Kafka key goes on in its place when it is replayed, and the events
// behind it follow. The test has the command, the store and the engine together (rule 4).
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
	w := newDeadLetterWorld(t)
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
	stop := w.runDeferred(broken, head, second)
	require.Eventually(t, func() bool { return len(w.deadLetters()) == 1 }, 20*time.Second, 20*time.Millisecond)
	stop()
	require.Empty(t, order)
	require.Equal(t, map[string][]deadletters.Verdict{"head": {deadletters.SeenDeferred}}, byEvent(w.verdicts(deadletters.Filter{}, deadletters.Decisions{})))

	got, _ := w.replay(deadletters.Filter{}, replayFlags{}, deadletters.Decisions{})
	require.Equal(t, map[deadletters.Verdict]int{deadletters.SeenDeferred: 1}, got.Verdicts)
	require.Empty(t, w.copies())
	waits, _ := w.replay(deadletters.Filter{}, replayFlags{}, deadletters.Decisions{})
	require.Equal(t, map[deadletters.Verdict]int{deadletters.SeenWaiting: 1}, waits.Verdicts)

	stop = w.runDeferred(func(id string) error { order = append(order, id); return nil })
	require.Eventually(t, func() bool {
		records, err := store.(dedup.Operator).Inspect(t.Context(), w.key("second"))
		return err == nil && len(records) == 1 && records[0].State == dedup.Finished
	}, 20*time.Second, 20*time.Millisecond)
	stop()
	require.Equal(t, []string{"head", "second"}, order)
	require.True(t, slices.Equal([]deadletters.Verdict{deadletters.SeenDone}, byEvent(w.verdicts(deadletters.Filter{}, deadletters.Decisions{}))["head"]))
}

// A person gives up an event that waits behind a dead one, without the topic where the event is
// deferred. Only that event is given up. When the head goes on, the events behind both follow (rule
// 4).
func TestSkipOfADeferredEventWithoutItsTopic(t *testing.T) {
	w := newDeadLetterWorld(t)
	head, second, third := w.event("head", ""), w.event("second", ""), w.event("third", "")
	second.Key, second.Partition, third.Key, third.Partition = head.Key, head.Partition, head.Key, head.Partition
	stop := w.runDeferred(func(string) error { return errBroken }, head, second, third)
	require.Eventually(t, func() bool { return len(w.deadLetters()) == 1 }, 20*time.Second, 20*time.Millisecond)
	stop()
	require.NoError(t, w.store.(dedup.Operator).Discard(t.Context(), w.key("second"), time.Hour, "not needed"))
	got, _ := w.replay(deadletters.Filter{}, replayFlags{}, deadletters.Decisions{})
	require.Equal(t, 1, got.Replayed)

	var order []string
	stop = w.runDeferred(func(id string) error { order = append(order, id); return nil })
	require.Eventually(t, func() bool {
		records, err := w.store.(dedup.Operator).Inspect(t.Context(), w.key("third"))
		return err == nil && len(records) == 1 && records[0].State == dedup.Finished
	}, 20*time.Second, 20*time.Millisecond)
	stop()
	require.Equal(t, []string{"head", "third"}, order)
	require.Len(t, w.deadLetters(), 1)
}

// An older release gave a follower up as too old: it blocks its queue, and there is no record of
// it. A replay and "idem event release" let it run in its place, and the events behind it follow
// (rules 4 and 8).
func TestWaysOutOfABlockedQueueWithoutRecord(t *testing.T) {
	for name, end := range map[string]func(t *testing.T, w *deadLetterWorld){
		"replay": func(t *testing.T, w *deadLetterWorld) {
			got, _ := w.replay(deadletters.Filter{}, replayFlags{}, deadletters.Decisions{})
			require.Equal(t, map[deadletters.Verdict]int{deadletters.SeenDeferred: 1}, got.Verdicts)
		},
		"replay of what is forgotten": func(t *testing.T, w *deadLetterWorld) {
			got, _ := w.replay(deadletters.Filter{}, replayFlags{}, deadletters.Decisions{Forgotten: true})
			require.Equal(t, map[deadletters.Verdict]int{deadletters.SeenDeferred: 1}, got.Verdicts)
		},
		"release": func(t *testing.T, w *deadLetterWorld) {
			commandWith(t, map[string]*openedStore{inMemory: {name: "memory", store: w.store}}, "", "event", "release", "old", "-G", "g",
				"--store", inMemory, "--type", "paid", "--topic", "orders", "--yes").ok(t)
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newDeadLetterWorld(t)
			old, second := w.event("old", ""), w.event("second", "")
			old.Time = time.Now().Add(-30 * 24 * time.Hour)
			second.Key, second.Partition = old.Key, old.Partition
			require.NoError(t, w.ordered(time.Hour, func(string) error { return errBroken }, old, second).Close())
			w.blockWithoutRecord(old)
			require.Empty(t, w.copies())
			end(t, w)
			require.Empty(t, w.copies(), "a copy would join the queue and be dropped there")

			var order []string
			stop := w.runDeferred(func(id string) error { order = append(order, id); return nil })
			require.Eventually(t, func() bool {
				records, err := w.store.(dedup.Operator).Inspect(t.Context(), w.key("second"))
				return err == nil && len(records) == 1 && records[0].State == dedup.Finished
			}, 20*time.Second, 20*time.Millisecond)
			stop()
			require.Equal(t, []string{"old", "second"}, order)
		})
	}
}

// blockWithoutRecord leaves a deferred event as an older release left one that it called too old:
// with a dead letter, blocked, and without a record.
func (w *deadLetterWorld) blockWithoutRecord(m *idem.Message) {
	w.t.Helper()
	_, id, _ := strings.Cut(string(m.Key), "key of ")
	require.NoError(w.t, w.store.(dedup.Operator).Forget(w.t.Context(), w.key(id)))
	deferrer := w.store.(dedup.Deferrer)
	part, e, ok, err := deferrer.FindDeferred(w.t.Context(), "g", m.Topic, w.key(id))
	require.NoError(w.t, err)
	require.True(w.t, ok)
	e.Blocked = true
	moved, err := deferrer.Postpone(w.t.Context(), part, e)
	require.NoError(w.t, err)
	require.True(w.t, moved)
	letter := *m
	letter.Topic = w.topic + ".g.dlq"
	for name, value := range map[string]string{
		deadletter.HeaderTopic: m.Topic, deadletter.HeaderPartition: fmt.Sprint(m.Partition), deadletter.HeaderOffset: fmt.Sprint(m.Offset),
		deadletter.HeaderTime: m.Time.UTC().Format(time.RFC3339), deadletter.HeaderGroup: "g", deadletter.HeaderScope: "g", deadletter.HeaderEventType: "paid",
		deadletter.HeaderEventID: id, deadletter.HeaderErrorClass: string(idem.ClassTooOld), deadletter.HeaderError: "too old",
	} {
		letter.Headers = append(letter.Headers, idem.Header{Key: name, Value: []byte(value)})
	}
	require.NoError(w.t, w.producer.Produce(w.t.Context(), &letter))
}

// runDeferred is the group with a handler that keeps the order of Kafka keys. It hands in messages
// and runs deferred events until stop is called.
func (w *deadLetterWorld) runDeferred(fn func(id string) error, messages ...*idem.Message) (stop func()) {
	w.t.Helper()
	p := w.ordered(time.Millisecond, fn, messages...)
	ctx, cancel := context.WithCancelCause(w.t.Context())
	done := make(chan error, 1)
	go func() { done <- p.RunDeferred(ctx, "orders", 1) }()
	return func() {
		cancel(idem.ErrStopping)
		require.NoError(w.t, <-done)
		p.Close()
	}
}

// ordered hands messages to a handler that keeps the order of Kafka keys, and runs no deferred
// events.
func (w *deadLetterWorld) ordered(delay time.Duration, fn func(id string) error, messages ...*idem.Message) *idem.Processor {
	w.t.Helper()
	r := idem.NewRouter()
	idem.On(r, "paid", func(_ context.Context, e idem.Event[struct{}]) error { return fn(e.ID) },
		idem.KeyOrdered(delay), idem.Retry(idem.RetryPolicy{MaxAttempts: 1}))
	p, err := idem.NewProcessor(r, idem.Config{
		Store: w.store, Scope: "g", Producer: w.producer, Logger: slog.New(slog.NewTextHandler(io.Discard, nil)),
	})
	require.NoError(w.t, err)
	p.Assigned("orders", 1)
	for _, m := range messages {
		require.EqualValues(w.t, 1, m.Partition)
		require.NoError(w.t, p.Handle(w.t.Context(), m))
	}
	return p
}
