package idem_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/idemtype"
	"github.com/idem-go/idem/observe"
)

// blips is a store that is away for the runners of partitions, and answers a claim after 20 ms.
type blips struct {
	*spy
	noDue, noDelay, noClaim atomic.Bool
}

func (s *blips) Due(ctx context.Context, at dedup.DeferredPartition, limit int) ([]dedup.Deferred, time.Duration, error) {
	if s.noDue.Load() {
		return nil, 0, dedup.ErrUnavailable
	}
	return s.spy.Due(ctx, at, limit)
}

func (s *blips) Delay(ctx context.Context, at dedup.DeferredPartition, wait time.Duration, queues ...string) error {
	if s.noDelay.Load() {
		return dedup.ErrUnavailable
	}
	return s.spy.Delay(ctx, at, wait, queues...)
}

func (s *blips) Claim(ctx context.Context, t dedup.Token, lease time.Duration, r []dedup.Request, a []dedup.Answer) error {
	time.Sleep(20 * time.Millisecond)
	if s.noClaim.Load() {
		return dedup.ErrUnavailable
	}
	return s.spy.Claim(ctx, t, lease, r, a)
}

func (s *blips) Complete(ctx context.Context, done []dedup.Completion) error {
	if s.noClaim.Load() {
		return dedup.ErrUnavailable
	}
	return s.spy.Complete(ctx, done)
}

func (s *blips) Release(ctx context.Context, r []dedup.Release) error {
	if s.noClaim.Load() {
		return dedup.ErrUnavailable
	}
	return s.spy.Release(ctx, r)
}

// hot registers a handler that runs without the store, and returns the number of its runs.
func (b *bench) hot(policy idem.UnavailablePolicy) *atomic.Int64 {
	var runs atomic.Int64
	idem.On(b.router, "hot", func(context.Context, idem.Event[payload]) error {
		runs.Add(1)
		return nil
	}, idem.WhenUnavailable(policy))
	return &runs
}

func hotEvent(i int) *idem.Message {
	m := inQueue(fmt.Sprint("k", i), fmt.Sprint("h", i), int64(i))
	m.Value = fmt.Appendf(nil, `{"event_id":"h%d","type":"hot"}`, i)
	return m
}

// hotLane handles ten events in a goroutine, until ctx ends.
func (b *bench) hotLane(ctx context.Context) *sync.WaitGroup {
	var lane sync.WaitGroup
	lane.Go(func() {
		for i := range 10 {
			if b.p.Handle(ctx, hotEvent(i)) != nil {
				return
			}
		}
	})
	return &lane
}

// A partition without traffic asks the store for due events only. An answer ends the outage that
// such a question has met, so no handler runs without the store an hour later (WhenUnavailable).
// That holds also if a lane met the outage and lost its partition.
func TestDefer_IdlePartitionFindsTheStoreBack(t *testing.T) {
	for name, withLane := range map[string]bool{"no lane met the outage": false, "a lane that has gone met it": true} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *bench) {
				store, o := &blips{spy: b.store}, &outages{}
				b.cfg.Store, b.cfg.Observers, b.cfg.BusyWait = store, []observe.Observer{o}, time.Hour
				b.on(succeed, idem.KeyOrdered(time.Second))
				runs := b.hot(idem.UnavailablePolicy{RunFor: 10 * time.Minute, MaxEvents: 1000})
				b.start()
				stop := b.runsDeferred()
				deliver := func() {
					var lanes sync.WaitGroup
					for i := range 4 {
						lanes.Go(func() {
							if err := b.p.Handle(t.Context(), hotEvent(i)); err != nil {
								t.Error(err)
							}
						})
					}
					lanes.Wait()
				}
				deliver()
				require.EqualValues(t, 4, runs.Load())
				store.noDue.Store(true)
				if withLane {
					store.noClaim.Store(true)
					ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
					defer cancel()
					require.ErrorIs(t, b.p.Handle(ctx, inQueue("a", "a1", 50)), idem.ErrStopping)
				}
				time.Sleep(10 * time.Second)
				require.NotEmpty(t, b.p.Status().Down)
				store.noDue.Store(false)
				store.noClaim.Store(false)
				time.Sleep(2 * time.Minute)
				require.Empty(t, b.p.Status().Down)
				synctest.Wait()
				require.Len(t, o.events, 2)
				time.Sleep(time.Hour)
				deliver()
				require.EqualValues(t, 4, runs.Load(), "duplicates ran although the store answers")
				stop()
			})
		})
	}
}

// The same for the pause of a queue whose head has no handler.
func TestDefer_StuckQueueFindsTheStoreBack(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		store := &blips{spy: b.store}
		b.cfg.Store = store
		b.on(func(context.Context, idem.Event[payload]) error { return errBoom }, once, idem.KeyOrdered(time.Second))
		old := b.start()
		require.NoError(t, old.Handle(t.Context(), inQueue("a", "a1", 1)))
		require.NoError(t, old.Close())
		b.router = idem.NewRouter()
		idem.On(b.router, "refund", succeed, idem.KeyOrdered(time.Second))
		b.start()
		store.noDelay.Store(true)
		stop := b.runsDeferred()
		time.Sleep(10 * time.Second)
		require.NotEmpty(t, b.p.Status().Down)
		store.noDelay.Store(false)
		time.Sleep(10 * time.Second)
		require.Empty(t, b.p.Status().Down)
		stop()
	})
}

// A store that is read-only answers the runners of partitions, and no claim. A blip of its answers
// ends no outage, so no more events run without the store than allowed.
func TestDefer_LooksEndNoOutageOfOthers(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		store := &blips{spy: b.store}
		b.cfg.Store, b.cfg.BusyWait = store, time.Hour
		b.on(succeed, idem.KeyOrdered(time.Second))
		runs := b.hot(idem.UnavailablePolicy{RunFor: time.Minute, MaxEvents: 2})
		b.start()
		stop := b.runsDeferred()
		store.noClaim.Store(true)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		lane := b.hotLane(ctx)
		time.Sleep(30 * time.Second)
		store.noDue.Store(true)
		time.Sleep(6 * time.Second)
		store.noDue.Store(false)
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		require.EqualValues(t, 2, runs.Load())
		require.NotContains(t, b.log.String(), "is back")
		cancel()
		lane.Wait()
		stop()
	})
}

// The same with a pause between two events, in which only looks ask the store. The log then calls
// the store back, and its allowance lasts.
func TestDefer_LooksGiveNoAllowance(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		store := &blips{spy: b.store}
		b.cfg.Store, b.cfg.BusyWait = store, time.Hour
		b.on(succeed, idem.KeyOrdered(time.Second))
		runs := b.hot(idem.UnavailablePolicy{RunFor: 10 * time.Minute, MaxEvents: 2})
		b.start()
		stop := b.runsDeferred()
		store.noClaim.Store(true)
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Minute)
		defer cancel()
		for i := range 10 {
			if b.p.Handle(ctx, hotEvent(i)) != nil {
				break
			}
			time.Sleep(3 * time.Minute)
		}
		require.Error(t, ctx.Err(), "the third event waits for the store")
		require.EqualValues(t, 2, runs.Load())
		store.noClaim.Store(false)
		require.NoError(t, b.p.Handle(t.Context(), hotEvent(2)))
		store.noClaim.Store(true)
		time.Sleep(time.Hour)
		require.NoError(t, b.p.Handle(t.Context(), hotEvent(20)))
		require.EqualValues(t, 4, runs.Load(), "a later outage has another allowance")
		store.noClaim.Store(false)
		stop()
	})
}

// knownOnly is a store that answers claims of known events only.
type knownOnly struct {
	*spy
	on atomic.Bool
}

func (s *knownOnly) Claim(ctx context.Context, t dedup.Token, lease time.Duration, r []dedup.Request, a []dedup.Answer) error {
	if s.on.Load() && !slices.ContainsFunc(r, func(q dedup.Request) bool { return q.Key.ID != "a0" && q.Key.ID != "a1" }) {
		for i := range a {
			a[i] = dedup.Answer{Verdict: dedup.Done, First: r[i].Origin}
		}
		return nil
	}
	if s.on.Load() {
		return dedup.ErrUnavailable
	}
	return s.spy.Claim(ctx, t, lease, r, a)
}

// The same for the duplicates of another lane, which a read-only store knows.
func TestUnavailable_DuplicatesGiveNoAllowance(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		store := &knownOnly{spy: b.store}
		b.cfg.Store, b.cfg.BusyWait = store, time.Hour
		b.on(succeed)
		runs := b.hot(idem.UnavailablePolicy{RunFor: time.Minute, MaxEvents: 2})
		b.start()
		store.on.Store(true)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		lane := b.hotLane(ctx)
		for range 30 {
			time.Sleep(20 * time.Second)
			_, err := b.p.HandleBatch(t.Context(), []*idem.Message{inQueue("x", "a0", 90), inQueue("x", "a1", 91)})
			require.NoError(t, err)
		}
		require.EqualValues(t, 2, runs.Load())
		cancel()
		lane.Wait()
	})
}

// The same for a partition that is assigned during the outage. Its queues are read.
func TestDefer_AssignmentEndsNoOutageOfOthers(t *testing.T) {
	for name, mode := range map[string][]idem.Option{"no handler in order": nil, "in order": {idem.KeyOrdered(time.Second)}} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *bench) {
				store := &blips{spy: b.store}
				b.cfg.Store, b.cfg.BusyWait = store, time.Hour
				b.on(succeed, mode...)
				runs := b.hot(idem.UnavailablePolicy{RunFor: time.Minute, MaxEvents: 2})
				b.start()
				store.noClaim.Store(true)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				lane := b.hotLane(ctx)
				time.Sleep(3 * time.Minute)
				stop := b.runsDeferred()
				lane.Go(func() { _ = b.p.Handle(ctx, inQueue("a", "a1", 50)) })
				time.Sleep(3 * time.Minute)
				synctest.Wait()
				require.EqualValues(t, 2, runs.Load())
				require.NotContains(t, b.log.String(), "is back")
				cancel()
				lane.Wait()
				stop()
			})
		})
	}
}

// halfDefer is a store that loses the answer of one Defer, and then finds no deferred events.
type halfDefer struct {
	*spy
	loses, down atomic.Bool
}

func (s *halfDefer) Defer(ctx context.Context, p dedup.DeferredPartition, es []dedup.Deferred) error {
	err := s.spy.Defer(ctx, p, es)
	if s.loses.CompareAndSwap(true, false) {
		s.down.Store(true)
		return dedup.ErrUnavailable
	}
	return err
}

func (s *halfDefer) FindDeferred(ctx context.Context, scope, topic string, key dedup.Key) (
	dedup.DeferredPartition, dedup.Deferred, bool, error) {
	if s.down.Load() {
		return dedup.DeferredPartition{}, dedup.Deferred{}, false, dedup.ErrUnavailable
	}
	return s.spy.FindDeferred(ctx, scope, topic, key)
}

// Rule 4: an event that the owner's lanes have not deferred dies in its queue. Later events of its
// Kafka key wait behind it.
func TestDefer_OwnerKnowsAQueueOfOthers_Rule4(t *testing.T) {
	for name, deferred := range map[string]func(t *testing.T, b, other *bench, s *halfDefer){
		"by an earlier owner": func(t *testing.T, _, other *bench, _ *halfDefer) {
			require.NoError(t, other.p.Handle(t.Context(), inQueue("a", "a1", 1)))
		},
		"by a member that reads the copy of a replay": func(t *testing.T, b, other *bench, _ *halfDefer) {
			m := inQueue("a", "a1", 1)
			m.Value = []byte(`{"event_id":"a1","type":"dead"}`)
			require.NoError(t, b.p.Handle(t.Context(), m))
			require.NoError(t, other.p.Handle(t.Context(), b.replayed()))
		},
		"by a call without an answer": func(t *testing.T, b, _ *bench, s *halfDefer) {
			s.loses.Store(true)
			var wait *idemtype.WaitError
			require.ErrorAs(t, b.p.Handle(t.Context(), inQueue("a", "a1", 1)), &wait)
			s.down.Store(false)
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *bench) {
				store := &halfDefer{spy: b.store}
				b.cfg.Store, b.cfg.BusyWait = store, time.Second
				var mu sync.Mutex
				var runs []string
				b.on(func(_ context.Context, e idem.Event[payload]) error {
					mu.Lock()
					defer mu.Unlock()
					runs = append(runs, e.ID)
					if e.ID == "a1" {
						return errBoom
					}
					return nil
				}, once, idem.KeyOrdered(time.Second))
				dead := times(1, idem.Permanent(errBoom))
				idem.On(b.router, "dead", func(context.Context, idem.Event[payload]) error {
					if err := dead(); err != nil {
						return err
					}
					return errBoom
				}, once, idem.KeyOrdered(time.Second))
				b.start()
				member, err := idem.NewProcessor(b.router, b.cfg)
				require.NoError(t, err)
				other := *b
				other.p = member
				stop := b.runsDeferred()
				require.NoError(t, b.p.Handle(t.Context(), inQueue("c", "c0", 0)), "reads the queues")
				deferred(t, b, &other, store)
				time.Sleep(10 * time.Second)
				synctest.Wait()
				require.NotEmpty(t, b.sent.deadLetters())
				require.NoError(t, b.p.Handle(t.Context(), inQueue("a", "a2", 2)))
				mu.Lock()
				defer mu.Unlock()
				require.False(t, slices.Contains(runs, "a2"), "it has overtaken a1: %v", runs)
				stop()
				require.NoError(t, member.Close())
			})
		})
	}
}

// A stop ends the wait of settled queues for their turn to be removed. Only the call that is under
// way waits for the store.
func TestDefer_StopWhileQueuesAreRemoved(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		store := &endless{spy: b.store}
		b.cfg.Store = store
		var fails atomic.Bool
		fails.Store(true)
		b.on(func(context.Context, idem.Event[payload]) error {
			if fails.Load() {
				return errBoom
			}
			return nil
		}, once, idem.KeyOrdered(time.Second))
		b.start()
		for i := range 8 {
			k := fmt.Sprint("k", i)
			require.NoError(t, b.p.Handle(t.Context(), inQueue(k, k, int64(i))))
		}
		fails.Store(false)
		store.removes.Store(true)
		stop := b.runsDeferred()
		time.Sleep(15 * time.Second)
		began := time.Now()
		stop()
		require.LessOrEqual(t, time.Since(began), 11*time.Second)
	})
}

// secondDefer is a store that answers no Defer but the first.
type secondDefer struct {
	*spy
	calls atomic.Int32
}

func (s *secondDefer) Defer(ctx context.Context, p dedup.DeferredPartition, es []dedup.Deferred) error {
	if s.calls.Add(1) > 1 {
		return dedup.ErrUnavailable
	}
	return s.spy.Defer(ctx, p, es)
}

// A call that cannot defer all events of its batch tells how many of them are settled.
func TestDefer_PartOfABatchIsSettled(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		store := &secondDefer{spy: b.store}
		b.on(func(_ context.Context, e idem.Event[payload]) error {
			if e.ID == "a0" {
				return errBoom
			}
			return nil
		}, once, idem.KeyOrdered(time.Hour))
		old := b.start()
		require.NoError(t, old.Handle(t.Context(), inQueue("a", "a0", 0)))
		require.NoError(t, old.Close())
		b.cfg.Store, b.cfg.BusyWait = store, time.Millisecond
		b.start()
		var batch []*idem.Message
		for i := range 300 {
			batch = append(batch, inQueue("a", fmt.Sprint("a", i+1), int64(i+1)))
		}
		settled, err := b.p.HandleBatch(t.Context(), batch)
		var wait *idem.WaitError
		require.ErrorAs(t, err, &wait)
		require.Equal(t, 256, settled)
	})
}
