package pgstore_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/dedup/pgstore"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
)

var errRefused = errors.New("refused")

// deferringEngine makes a processor that runs the deferred events of the partition of
// engine.message until the test ends it.
func deferringEngine(t *testing.T, s dedup.Store, letters idem.Producer, register func(r *idem.Router)) (p *idem.Processor, stop func()) {
	t.Helper()
	r := idem.NewRouter(idem.ID(idem.FromHeader("event-id")), idem.Type(idem.FromHeader("event-type")))
	register(r)
	p, err := idem.NewProcessor(r, idem.Config{
		Store: s, Scope: "orders", Producer: letters, BusyWait: idem.Forever, Logger: slog.New(slog.NewTextHandler(io.Discard, nil)),
	})
	require.NoError(t, err)
	p.Assigned("payments", 0)
	ctx, cancel := context.WithCancelCause(t.Context())
	done := make(chan error, 1)
	go func() { done <- p.RunDeferred(ctx, "payments", 0) }()
	return p, func() {
		cancel(idem.ErrStopping)
		require.NoError(t, <-done)
		require.NoError(t, p.Close())
	}
}

var oneTry = idem.Retry(idem.RetryPolicy{MaxAttempts: 1})

// rule 4: the next release cannot decode the head of a queue with a transactional handler. The head
// blocks the queue like any other dead event, and its record shows that. A replay after a further
// release lets the head run in its place.
func TestUnreadableHeadBlocks_Rule4(t *testing.T) {
	t.Parallel()
	s, _ := newStore(t)
	e := &engine{t: t, runs: make(map[string]int)}
	old, stop := deferringEngine(t, s, e, func(r *idem.Router) {
		idem.OnTx(r, "paid", func(context.Context, pgx.Tx, idem.Event[payload]) error { return errRefused }, oneTry, idem.KeyOrdered(time.Second))
	})
	for _, id := range []string{"a1", "a2"} {
		m := e.message("paid", id)
		m.Key = []byte("a")
		require.NoError(t, old.Handle(t.Context(), m))
	}
	stop()

	var unlearned atomic.Bool
	unlearned.Store(true)
	_, stop = deferringEngine(t, s, e, func(r *idem.Router) {
		idem.OnTx(r, "paid", e.write, oneTry, idem.KeyOrdered(time.Second), idem.Decode(func(*idem.Message, any) error {
			if unlearned.Load() {
				return errRefused
			}
			return nil
		}))
	})
	defer stop()
	key := dedup.Key{Scope: "orders", Type: "paid", ID: "a1"}
	var part dedup.DeferredPartition
	var head dedup.Deferred
	require.Eventually(t, func() bool {
		var ok bool
		var err error
		part, head, ok, err = s.FindDeferred(t.Context(), "orders", "payments", key)
		require.NoError(t, err)
		require.True(t, ok, "it keeps its place")
		return head.Blocked
	}, 30*time.Second, 50*time.Millisecond)
	records, err := s.Inspect(t.Context(), key)
	require.NoError(t, err)
	require.Len(t, records, 1)
	require.Equal(t, dedup.GivenUp, records[0].State)
	runs, letters := e.counts("a2")
	require.Zero(t, runs)
	require.Equal(t, 1, letters)

	unlearned.Store(false)
	head.Position, err = s.Reopen(t.Context(), key)
	require.NoError(t, err)
	head.Blocked, head.Wait = false, 0
	moved, err := s.Postpone(t.Context(), part, head)
	require.NoError(t, err)
	require.True(t, moved)
	require.Eventually(t, func() bool {
		records, err := s.Inspect(t.Context(), dedup.Key{Scope: "orders", Type: "paid", ID: "a2"})
		return err == nil && len(records) == 1 && records[0].State == dedup.Finished
	}, 30*time.Second, 50*time.Millisecond)
	for _, id := range []string{"a1", "a2"} {
		runs, letters := e.counts(id)
		require.Equal(t, 1, runs, id)
		require.Equal(t, 1, letters)
	}
}

// T-05, rule 4: 600 queues with a type that has no handler any longer keep no other queue from its
// turn.
func TestStuckQueuesStarveNoOther_Rule4(t *testing.T) {
	t.Parallel()
	s, _ := newStore(t)
	e := &engine{t: t, runs: make(map[string]int)}
	part := dedup.DeferredPartition{Scope: "orders", Topic: "payments"}
	old, stop := deferringEngine(t, s, e, func(r *idem.Router) {
		refuse := func(context.Context, idem.Event[payload]) error { return errRefused }
		idem.On(r, "paid", refuse, oneTry, idem.KeyOrdered(time.Millisecond))
		idem.On(r, "gone", refuse, oneTry, idem.KeyOrdered(time.Hour))
	})
	var msgs []*idem.Message
	for i := range 600 {
		m := e.message("gone", fmt.Sprint("gone-", i))
		m.Key = []byte(fmt.Sprint("gone-", i))
		msgs = append(msgs, m)
	}
	n, err := old.HandleBatch(t.Context(), msgs)
	require.NoError(t, err)
	require.Len(t, msgs, n)
	stop()
	queues, err := s.Queues(t.Context(), part, "", 1000)
	require.NoError(t, err)
	require.Len(t, queues, 600)
	for i, q := range queues { // all have waited for long
		first, err := s.First(t.Context(), part, q.Name, 1)
		require.NoError(t, err)
		require.Len(t, first, 1)
		first[0].Position.Retry, first[0].Wait = first[0].Position.Retry+1, 0
		moved, err := s.Postpone(t.Context(), part, first[0])
		require.NoError(t, err)
		require.True(t, moved, i)
	}

	fail := atomic.Bool{}
	fail.Store(true)
	p, stop := deferringEngine(t, s, e, func(r *idem.Router) {
		idem.On(r, "paid", func(_ context.Context, ev idem.Event[payload]) error {
			if fail.CompareAndSwap(true, false) {
				return errRefused
			}
			e.ran(ev.ID)
			return nil
		}, oneTry, idem.KeyOrdered(50*time.Millisecond))
	})
	defer stop()
	m := e.message("paid", "p1")
	m.Key = []byte("p")
	require.NoError(t, p.Handle(t.Context(), m))
	require.Eventually(t, func() bool { runs, _ := e.counts("p1"); return runs == 1 }, 30*time.Second, 20*time.Millisecond)
	left, err := s.Queues(t.Context(), part, "", 1000)
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(left), 600)
}

// rule 4: two copies of an event have different Kafka keys. One is deferred behind another event, then the other one runs and fails. The
// table has an event in one queue, where it waits for its next attempt.
func TestDeferredUnderAnotherKafkaKey_Rule4(t *testing.T) {
	for name, on := range map[string]func(r *idem.Router, handle func(id string) error, opts ...idem.Option){
		"On": func(r *idem.Router, handle func(id string) error, opts ...idem.Option) {
			idem.On(r, "paid", func(_ context.Context, e idem.Event[payload]) error { return handle(e.ID) }, opts...)
		},
		"OnTx": func(r *idem.Router, handle func(id string) error, opts ...idem.Option) {
			idem.OnTx(r, "paid", func(_ context.Context, _ pgx.Tx, e idem.Event[payload]) error { return handle(e.ID) }, opts...)
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, _ := newStore(t)
			e := &engine{t: t, runs: make(map[string]int)}
			p, stop := deferringEngine(t, s, e, func(r *idem.Router) {
				on(r, func(id string) error {
					e.ran(id)
					if runs, _ := e.counts(id); runs == 1 {
						return errRefused
					}
					return nil
				}, oneTry, idem.KeyOrdered(500*time.Millisecond))
			})
			defer stop()
			for _, m := range []struct{ key, id string }{{"b", "b1"}, {"b", "x"}, {"a", "x"}} {
				record := e.message("paid", m.id)
				record.Key = []byte(m.key)
				require.NoError(t, p.Handle(t.Context(), record))
			}
			for _, id := range []string{"b1", "x"} {
				require.Eventually(t, func() bool {
					records, err := s.Inspect(t.Context(), dedup.Key{Scope: "orders", Type: "paid", ID: id})
					return err == nil && len(records) == 1 && records[0].State == dedup.Finished
				}, 30*time.Second, 50*time.Millisecond, id)
				runs, letters := e.counts(id)
				require.Equal(t, 2, runs)
				require.Zero(t, letters)
			}
		})
	}
}

// doneMeanwhile is a producer. During its first message, another worker finishes an event.
type doneMeanwhile struct {
	*engine
	store *pgstore.Store
	key   dedup.Key
	once  sync.Once
}

func (d *doneMeanwhile) Produce(ctx context.Context, msgs ...*idem.Message) error {
	d.once.Do(func() {
		req := dedup.Request{Key: d.key, Position: dedup.Position{Retry: 1}, Origin: dedup.Origin{Topic: "payments", Offset: 1, Time: time.Now()}, Retention: time.Hour, AnyAge: true}
		answers := make([]dedup.Answer, 1)
		nothing := func(pgx.Tx) ([]dedup.Completion, error) { return nil, nil }
		require.NoError(d.t, d.store.ClaimTx(ctx, time.Minute, []dedup.Request{req}, answers, nothing))
		require.Equal(d.t, dedup.Fresh, answers[0].Verdict)
	})
	return d.engine.Produce(ctx, msgs...)
}

// rules 4 and 6: another worker finishes the head of a queue while this one dead-letters it. The store's answer stands: the event is done,
// and those behind it go on without a person.
func TestHeadDoneMeanwhileDoesNotBlock_Rule4(t *testing.T) {
	s, _ := newStore(t)
	e := &engine{t: t, runs: make(map[string]int)}
	letters := &doneMeanwhile{engine: e, store: s, key: dedup.Key{Scope: "orders", Type: "paid", ID: "a1"}}
	p, stop := deferringEngine(t, s, letters, func(r *idem.Router) {
		idem.OnTx(r, "paid", func(ctx context.Context, tx pgx.Tx, ev idem.Event[payload]) error {
			e.ran(ev.ID)
			switch runs, _ := e.counts(ev.ID); {
			case ev.ID == "a1" && runs == 1:
				return errRefused
			case ev.ID == "a1":
				return idem.Permanent(errRefused)
			}
			return nil
		}, oneTry, idem.KeyOrdered(500*time.Millisecond))
	})
	defer stop()
	for _, id := range []string{"a1", "a2"} {
		m := e.message("paid", id)
		m.Key = []byte("a")
		require.NoError(t, p.Handle(t.Context(), m))
	}
	require.Eventually(t, func() bool {
		runs, _ := e.counts("a2")
		return runs == 1
	}, 20*time.Second, 50*time.Millisecond)
}
