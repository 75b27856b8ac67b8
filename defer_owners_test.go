package idem_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/dedup/memstore"
)

// Rule 4: two owners run one queue, because one of them does not know yet that it has lost the
// partition. The first postpones an event that the other one waits for. The events behind it must
// wait for both.
func TestDefer_PostponedByTheOtherOwner(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		runs := map[string]int{}
		b.on(func(_ context.Context, e idem.Event[payload]) error {
			runs[e.ID]++
			switch {
			case e.ID == "a1" && runs["a1"] == 1:
				return errBoom
			case e.ID == "a1":
				time.Sleep(20 * time.Second) // the other one begins meanwhile
			case e.ID == "a2" && runs["a2"] == 1:
				time.Sleep(20 * time.Second)
				return errBoom
			}
			b.add("done %s", e.ID)
			return nil
		}, once, idem.KeyOrdered(time.Second, 2*time.Minute))
		before := b.start()
		stop := b.runsDeferred()
		_, err := before.HandleBatch(t.Context(), []*idem.Message{
			inQueue("a", "a1", 1), inQueue("a", "a2", 2), inQueue("a", "a3", 3), inQueue("a", "a4", 4),
		})
		require.NoError(t, err)
		time.Sleep(5 * time.Second)
		synctest.Wait()
		b.start()
		stopNext := b.runsDeferred()
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		stop()
		stopNext()
		require.NoError(t, before.Close())
		require.Equal(t, []string{"done a1", "done a2", "done a3", "done a4"}, done(b))
	})
}

// T-05, rule 4: events that cannot run do not delay the others, however many there are.
func TestDefer_StuckQueuesDoNotStarveOthers(t *testing.T) {
	const stuck = 600
	for name, release := range map[string]func(b *bench){
		"type without handler": func(*bench) {},
		"no producer for their dead letters": func(b *bench) {
			b.cfg.Producer = nil
			b.on(func(context.Context, idem.Event[payload]) error { return idem.Permanent(errBoom) }, once, idem.KeyOrdered(time.Second))
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *bench) {
				l := &looks{spy: b.store}
				b.cfg.Store = l
				b.on(failing(stuck, errBoom), once, idem.KeyOrdered(time.Second))
				old := b.start()
				for i := range stuck {
					require.NoError(t, old.Handle(t.Context(), inQueue(fmt.Sprintf("stuck-%d", i), fmt.Sprintf("s%d", i), int64(i))))
				}
				require.NoError(t, old.Close())
				b.router = idem.NewRouter()
				release(b)
				fails := 1
				idem.On(b.router, "refund", func(_ context.Context, e idem.Event[payload]) error {
					if fails--; fails >= 0 {
						return errBoom
					}
					b.add("done %s", e.ID)
					return nil
				}, once, idem.KeyOrdered(2*time.Second))
				b.start()
				defer b.runsDeferred()()
				m := inQueue("z", "z1", 1000)
				m.Value = []byte(`{"event_id":"z1","type":"refund","amount":7}`)
				require.NoError(t, b.p.Handle(t.Context(), m))
				time.Sleep(time.Minute)
				synctest.Wait()
				require.Equal(t, []string{"done z1"}, done(b))
				l.mu.Lock()
				defer l.mu.Unlock()
				require.Less(t, l.n, 2500, "questions in a minute")
			})
		})
	}
}

// looks counts the questions for due events.
type looks struct {
	*spy
	n int
}

func (l *looks) Due(ctx context.Context, part dedup.DeferredPartition, limit int) ([]dedup.Deferred, time.Duration, error) {
	l.mu.Lock()
	l.n++
	l.mu.Unlock()
	return l.spy.Due(ctx, part, limit)
}

// T-07: while all workers are busy, the table is not asked again and again for other due events.
func TestDefer_BusyTakerLooksSeldom(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		l := &looks{spy: b.store}
		b.cfg.Store = l
		fail := true
		b.on(func(context.Context, idem.Event[payload]) error {
			if fail {
				return errBoom
			}
			time.Sleep(20 * time.Second)
			return nil
		}, once, idem.KeyOrdered(time.Second))
		b.start()
		for i := range 60 {
			require.NoError(t, b.p.Handle(t.Context(), inQueue(fmt.Sprint(i), fmt.Sprint(i), int64(i))))
		}
		fail = false
		defer b.runsDeferred()()
		time.Sleep(18 * time.Second)
		synctest.Wait()
		l.mu.Lock()
		defer l.mu.Unlock()
		require.Less(t, l.n, 30)
	})
}

// rule 4: handlers of one scope with stores of their own have queues of their own, in these.
func TestDefer_TwoStores(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		other := &spy{Store: memstore.New(), journal: &journal{}}
		fail := true
		handle := func(_ context.Context, e idem.Event[payload]) error {
			if fail {
				return errBoom
			}
			b.add("done %s", e.ID)
			return nil
		}
		b.on(handle, once, idem.KeyOrdered(time.Second))
		idem.On(b.router, "refund", handle, once, idem.KeyOrdered(time.Second), idem.Store(other))
		old := b.start()
		refund := inQueue("a", "r1", 2)
		refund.Value = []byte(`{"event_id":"r1","type":"refund","amount":7}`)
		for _, m := range []*idem.Message{inQueue("a", "a1", 1), refund} {
			require.NoError(t, old.Handle(t.Context(), m))
		}
		require.NoError(t, old.Close())
		for id, store := range map[string]*spy{"a1": b.store, "r1": other} {
			queues, err := store.Queues(t.Context(), dedup.DeferredPartition{Scope: "g", Topic: "orders", Partition: 1}, "", 2)
			require.NoError(t, err)
			require.Len(t, queues, 1, "%s is where its record is", id)
		}
		fail = false
		b.start()
		defer b.runsDeferred()()
		time.Sleep(time.Minute)
		synctest.Wait()
		require.ElementsMatch(t, []string{"done a1", "done r1"}, done(b))
	})
}

// Rule 4: the release before was KeyOrdered, this one is not. The deferred events run all the same.
func TestDefer_HandlerIsNoLongerKeyOrdered(t *testing.T) {
	for name, opts := range map[string][]idem.Option{"blocking": {once}, "retry topics": {once, idem.RetryTopics(time.Minute)}} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *bench) {
				b.on(failing(1, errBoom), once, idem.KeyOrdered(time.Second))
				old := b.start()
				_, err := old.HandleBatch(t.Context(), []*idem.Message{inQueue("a", "a1", 1), inQueue("a", "a2", 2)})
				require.NoError(t, err)
				require.NoError(t, old.Close())
				b.router = idem.NewRouter()
				b.on(func(_ context.Context, e idem.Event[payload]) error {
					b.add("done %s", e.ID)
					return nil
				}, opts...)
				b.start()
				require.True(t, b.p.RunsDeferred())
				defer b.runsDeferred()()
				time.Sleep(time.Minute)
				synctest.Wait()
				require.Equal(t, []string{"done a1", "done a2"}, done(b))
			})
		})
	}
}

// Rule 4: an event waits behind another one of its key, at its first attempt. A copy in another
// partition, where that is not known, runs, fails and is deferred for its next attempt. The waiting
// event must go on with that attempt, since the store lets no earlier one run.
func TestDefer_CopyFailsElsewhere(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.on(func(_ context.Context, e idem.Event[payload]) error {
			if e.Attempt == 1 {
				return errBoom
			}
			b.add("done %s", e.ID)
			return nil
		}, once, idem.KeyOrdered(time.Minute))
		other := b.start()
		b.start()
		defer b.runsDeferred()()
		_, err := b.p.HandleBatch(t.Context(), []*idem.Message{inQueue("a", "a1", 1), inQueue("a", "a2", 2)})
		require.NoError(t, err)
		copied := inQueue("a", "a2", 7)
		copied.Partition = 2
		other.Assigned("orders", 2)
		ctx, cancel := context.WithCancelCause(t.Context())
		taken := make(chan error, 1)
		go func() { taken <- other.RunDeferred(ctx, "orders", 2) }()
		require.NoError(t, other.Handle(t.Context(), copied))
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		cancel(idem.ErrStopping)
		require.NoError(t, <-taken)
		require.Equal(t, []string{"done a1", "done a2"}, done(b), "%v", b.all())
		require.NoError(t, other.Close())
	})
}

// joiner lets its test act while a queue is looked at and while it is ended.
type joiner struct {
	*spy
	onLook, onRemove func()
}

func (j *joiner) Look(ctx context.Context, r []dedup.Request, a []dedup.Answer) error {
	j.onLook()
	return j.spy.Look(ctx, r, a)
}

func (j *joiner) Remove(ctx context.Context, part dedup.DeferredPartition, queue string, events ...dedup.Deferred) (bool, error) {
	empty, err := j.spy.Remove(ctx, part, queue, events...)
	j.onRemove()
	return empty, err
}

// Rule 4: a queue ends after an event of its key has found the queue, and before that event joins
// it. The event must not begin a queue that its owner does not know, because later events would
// overtake it.
func TestDefer_QueueEndsBeforeItIsJoined(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		looked, removed := make(chan struct{}), make(chan struct{})
		var once1, once2 sync.Once
		b.cfg.Store = &joiner{
			spy:      b.store,
			onLook:   func() { once1.Do(func() { close(looked) }) },
			onRemove: func() { once2.Do(func() { close(removed) }); <-looked },
		}
		fails := 1
		b.on(func(_ context.Context, e idem.Event[payload]) error {
			if fails--; fails >= 0 {
				return errBoom
			}
			b.add("done %s", e.ID)
			return nil
		}, once, idem.KeyOrdered(time.Second))
		b.start()
		defer b.runsDeferred()()
		require.NoError(t, b.p.Handle(t.Context(), inQueue("a", "a1", 1)))
		<-removed // a1 is done and its queue is gone, which its owner is about to learn
		for i, id := range []string{"a2", "a3"} {
			require.NoError(t, b.p.Handle(t.Context(), inQueue("a", id, int64(i+2))))
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Equal(t, []string{"done a1", "done a2", "done a3"}, done(b))
	})
}

// Rule 4, in a transaction: the group with the events behind a deferred one is rolled back before
// their handlers run. The queue is read first.
func TestDefer_DeferredByTheOwnerBeforeInATransaction_Rule4(t *testing.T) {
	inGroupBubble(t, func(t *testing.T, b *bench, s *groupStore) {
		b.onGroup(func(_ context.Context, _ *groupTx, e idem.Event[payload]) error {
			if e.ID == "a1" {
				return errBoom
			}
			return nil
		}, once, idem.KeyOrdered(time.Hour))
		before := b.start()
		next := b.start()
		next.Assigned("orders", 1)
		require.NoError(t, next.Handle(t.Context(), inQueue("b", "b1", 0)))
		require.NoError(t, before.Handle(t.Context(), inQueue("a", "a1", 1)))
		s.state[dedup.Key{Scope: "g", Type: "paid", ID: "a1"}] = dedup.Answer{Verdict: dedup.Rescheduled}
		n, err := next.HandleBatch(t.Context(), []*idem.Message{
			inQueue("a", "a1", 1), inQueue("a", "a2", 2), inQueue("b", "b2", 3),
		})
		require.NoError(t, err)
		require.Equal(t, 3, n)
		require.Equal(t, []string{"b1", "b2"}, s.effects, "a2 waits behind a1")
		require.NoError(t, before.Close())
	})
}
