package idem_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/dedup"
)

var once = idem.Retry(idem.RetryPolicy{MaxAttempts: 1})

// inQueue is a message with a Kafka key.
func inQueue(key, id string, offset int64) *idem.Message {
	m := message(id, offset)
	m.Key = []byte(key)
	return m
}

// runsDeferred runs RunDeferred until the test ends it.
func (b *bench) runsDeferred() (stop func()) {
	b.p.Assigned("orders", 1)
	ctx, cancel := context.WithCancelCause(b.t.Context())
	done := make(chan error, 1)
	go func() { done <- b.p.RunDeferred(ctx, "orders", 1) }()
	return func() {
		cancel(idem.ErrStopping)
		require.NoError(b.t, <-done)
	}
}

// T-06, rule 4: events behind a failing event of their Kafka key wait with it, and other keys go
// on.
func TestDefer_FollowersWaitOthersGoOn(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		fails := 2
		b.on(func(_ context.Context, e idem.Event[payload]) error {
			if e.ID == "a1" && fails > 0 {
				fails--
				return errBoom
			}
			b.add("done %s", e.ID)
			return nil
		}, once, idem.KeyOrdered(5*time.Second, time.Minute))
		b.start()
		defer b.runsDeferred()()
		n, err := b.p.HandleBatch(t.Context(), []*idem.Message{
			inQueue("a", "a1", 1), inQueue("a", "a2", 2), inQueue("b", "b1", 3), inQueue("a", "a3", 4), inQueue("b", "b2", 5),
		})
		require.NoError(t, err)
		require.Equal(t, 5, n)
		require.Equal(t, []string{"done b1", "done b2"}, done(b))
		time.Sleep(6 * time.Second)
		synctest.Wait()
		require.Equal(t, []string{"done b1", "done b2"}, done(b), "the first retry failed")
		require.NoError(t, b.p.Handle(t.Context(), inQueue("a", "a4", 6)))
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Equal(t, []string{"done b1", "done b2", "done a1", "done a2", "done a3", "done a4"}, done(b))
		require.NoError(t, b.p.Handle(t.Context(), inQueue("a", "a5", 7)))
		require.Equal(t, "done a5", done(b)[6], "the queue has ended")
		require.Empty(t, b.sent.deadLetters())
	})
}

func done(b *bench) (lines []string) {
	for _, l := range b.all() {
		if strings.HasPrefix(l, "done ") {
			lines = append(lines, l)
		}
	}
	return lines
}

// rule 4: the followers of a dead head stay until a person replays or skips it.
func TestDefer_DeadHeadBlocks(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		broken := true
		b.on(func(_ context.Context, e idem.Event[payload]) error {
			if e.ID == "a1" && broken {
				return errBoom
			}
			b.add("done %s", e.ID)
			return nil
		}, once, idem.KeyOrdered(time.Second))
		b.start()
		defer b.runsDeferred()()
		_, err := b.p.HandleBatch(t.Context(), []*idem.Message{inQueue("a", "a1", 1), inQueue("a", "a2", 2)})
		require.NoError(t, err)
		time.Sleep(time.Hour)
		synctest.Wait()
		require.Len(t, b.sent.deadLetters(), 1)
		require.Empty(t, done(b))
		key := dedup.Key{Scope: "g", Type: "paid", ID: "a1"}
		part, head, ok, err := b.store.FindDeferred(t.Context(), "g", "orders", key)
		require.NoError(t, err)
		require.True(t, ok && head.Blocked)

		broken = false // replay: reopened, and due at its new position
		head.Position, err = b.store.Reopen(t.Context(), key)
		require.NoError(t, err)
		head.Blocked, head.Wait = false, 0
		moved, err := b.store.Postpone(t.Context(), part, head)
		require.NoError(t, err)
		require.True(t, moved)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		require.Equal(t, []string{"done a1", "done a2"}, done(b))
	})
}

func TestDefer_ContinueAfterDead(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.on(func(_ context.Context, e idem.Event[payload]) error {
			if e.ID == "a1" {
				return errBoom
			}
			b.add("done %s", e.ID)
			return nil
		}, once, idem.KeyOrdered(time.Second), idem.ContinueAfterDead())
		b.start()
		defer b.runsDeferred()()
		_, err := b.p.HandleBatch(t.Context(), []*idem.Message{inQueue("a", "a1", 1), inQueue("a", "a2", 2)})
		require.NoError(t, err)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		require.Len(t, b.sent.deadLetters(), 1)
		require.Equal(t, []string{"done a2"}, done(b))
	})
}

// Rule 4: the former owner defers an event after the next owner has looked for deferred events. The
// next owner gets the event again, because its offset was not marked, and so learns of the
// deferral.
func TestDefer_DeferredByTheOwnerBefore(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.on(func(_ context.Context, e idem.Event[payload]) error {
			if e.ID == "a1" {
				return errBoom
			}
			b.add("done %s", e.ID)
			return nil
		}, once, idem.KeyOrdered(time.Hour))
		before := b.start()
		next := b.start()
		next.Assigned("orders", 1)
		require.NoError(t, next.Handle(t.Context(), inQueue("b", "b1", 0)))
		require.NoError(t, before.Handle(t.Context(), inQueue("a", "a1", 1)))
		n, err := next.HandleBatch(t.Context(), []*idem.Message{inQueue("a", "a1", 1), inQueue("a", "a2", 2), inQueue("b", "b2", 3)})
		require.NoError(t, err)
		require.Equal(t, 3, n)
		require.Equal(t, []string{"done b1", "done b2"}, done(b))
		require.NoError(t, before.Close())
	})
}

// Rule 4: a call that fails for two events of a Kafka key defers the second one only when the first
// is settled. The first would wait behind it in the store otherwise.
func TestDefer_CallKeepsTheOrderOfItsKey_Rule4(t *testing.T) {
	for name, c := range map[string]struct {
		first     error // of the first event
		more      int   // further failures of the first event
		completed error // of the store, at the first completion
	}{
		"failure":        {first: errBoom},
		"deferred later": {first: errBoom, more: 4},
		"outage":         {first: idem.Unavailable(errBoom)},
		"lost claim":     {completed: &dedup.LostError{Claims: []int{0}}},
		"delayed itself": {first: idem.RetryAfter(time.Hour, errBoom)},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *bench) {
				if c.completed != nil {
					b.store.completeErr = times(1, c.completed)
				}
				began, second := time.Now(), time.Duration(0)
				fail := times(1, idem.BatchError{0: c.first, 1: idem.RetryAfter(time.Minute, errBoom)})
				failMore := times(c.more, errBoom)
				b.onBatch(func(_ context.Context, events []idem.Event[payload]) error {
					if events[0].ID == "a2" {
						second = time.Since(began)
					}
					if events[0].ID == "a1" && len(events) == 1 {
						return failMore()
					}
					return fail()
				}, idem.SameKey(), idem.KeyOrdered(time.Second))
				b.start()
				defer b.runsDeferred()()
				_, err := b.p.HandleBatch(t.Context(), []*idem.Message{inQueue("a", "a1", 1), inQueue("a", "a2", 2)})
				require.NoError(t, err)
				time.Sleep(2 * time.Hour)
				synctest.Wait()
				want := append([]string{"batch [a1 a2]"}, slices.Repeat([]string{"batch [a1]"}, 1+c.more)...)
				require.Equal(t, append(want, "batch [a2]"), calls(b))
				require.GreaterOrEqual(t, second, time.Minute)
				require.Empty(t, b.sent.deadLetters())
			})
		})
	}
}

// Rules 4 and 42: two events of a queue share a call, and the second one asks for a pause. The event
// waits at its place in the queue, also while the first one is deferred again.
func TestDefer_CallOfAQueueKeepsThePause_Rule42(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		began, second := time.Now(), time.Duration(0)
		failFirst, failMore := times(5, errBoom), times(4, errBoom)
		failBoth := times(1, idem.BatchError{0: errBoom, 1: idem.RetryAfter(time.Hour, errBoom)})
		b.onBatch(func(_ context.Context, events []idem.Event[payload]) error {
			switch {
			case events[0].ID == "a0":
				return failFirst()
			case len(events) == 2:
				return failBoth()
			case events[0].ID == "a1":
				return failMore()
			}
			second = time.Since(began)
			return nil
		}, idem.SameKey(), idem.KeyOrdered(time.Second))
		b.start()
		defer b.runsDeferred()()
		require.NoError(t, b.p.Handle(t.Context(), inQueue("a", "a0", 1)))
		_, err := b.p.HandleBatch(t.Context(), []*idem.Message{inQueue("a", "a1", 2), inQueue("a", "a2", 3)})
		require.NoError(t, err)
		time.Sleep(3 * time.Hour)
		synctest.Wait()
		want := append(slices.Repeat([]string{"batch [a0]"}, 6), "batch [a1 a2]")
		want = append(want, slices.Repeat([]string{"batch [a1]"}, 5)...)
		require.Equal(t, append(want, "batch [a2]"), calls(b))
		require.GreaterOrEqual(t, second, time.Hour)
		require.Empty(t, b.sent.deadLetters())
	})
}

// calls returns the calls of a batch handler.
func calls(b *bench) (lines []string) {
	for _, l := range b.all() {
		if strings.HasPrefix(l, "batch ") {
			lines = append(lines, l)
		}
	}
	return lines
}

func TestDefer_WantsAStoreThatCan(t *testing.T) {
	b := newBench(t)
	b.cfg.Store = struct{ dedup.Store }{b.store}
	b.on(succeed, idem.KeyOrdered(time.Second))
	_, err := idem.NewProcessor(b.router, b.cfg)
	require.ErrorContains(t, err, "KeyOrdered keeps waiting events in the store")
}

// A deferred event of a type without a handler keeps its place.
func TestDefer_TypeWithoutHandlerStays(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.on(failing(1, errBoom), once, idem.KeyOrdered(time.Second))
		b.start()
		require.NoError(t, b.p.Handle(t.Context(), inQueue("a", "a1", 1)))
		require.NoError(t, b.p.Close())
		b.router = idem.NewRouter()
		idem.On(b.router, "other", succeed, idem.KeyOrdered(time.Second))
		b.start()
		stop := b.runsDeferred()
		time.Sleep(time.Minute)
		stop()
		_, _, ok, err := b.store.FindDeferred(t.Context(), "g", "orders", dedup.Key{Scope: "g", Type: "paid", ID: "a1"})
		require.NoError(t, err)
		require.True(t, ok)
		require.Contains(t, b.log.String(), "no handler is registered")
	})
}

// Rules 4 and 8 at random: events of a few keys fail now and then. Workers lose their partition at
// any moment, and others go on from the settled offset. Now and then the store forgets all events
// from before that offset. Each event is applied once or more, no event is lost or too old, and the
// first applications of each key are in order.
func TestDefer_Random(t *testing.T) {
	seed := rand.Uint64()
	for i := range uint64(60) {
		s := seed + i
		if !t.Run(fmt.Sprintf("seed-%d", s), func(t *testing.T) { deferSchedule(t, s) }) {
			return
		}
	}
}

func deferSchedule(t *testing.T, seed uint64) {
	synctest.Test(t, func(t *testing.T) {
		const keys, events = 4, 60
		var mu sync.Mutex
		source := rand.New(rand.NewPCG(seed, 0))
		draw := func(n int) int {
			mu.Lock()
			defer mu.Unlock()
			return source.IntN(n)
		}
		b := newBench(t)
		store := &forgetful{spy: b.store}
		b.cfg.Store = store
		fails, applied := map[string]int{}, map[string][]string{}
		once := map[string]int{}
		var log []*idem.Message
		for i := range events {
			key := fmt.Sprint(draw(keys))
			id := fmt.Sprintf("%s-%03d", key, i)
			log = append(log, dated(key, id, int64(i), time.Now().Add(time.Duration(i)*time.Second)))
			if draw(6) == 0 {
				fails[id] = 1 + draw(2)
			}
		}
		b.on(func(ctx context.Context, e idem.Event[payload]) error {
			pause := time.Duration(draw(400)) * time.Millisecond
			mu.Lock()
			fail := fails[e.ID] > 0
			fails[e.ID]--
			mu.Unlock()
			select {
			case <-time.After(pause):
			case <-ctx.Done():
				return context.Cause(ctx)
			}
			if fail {
				return errBoom
			}
			mu.Lock()
			defer mu.Unlock()
			if once[e.ID]++; once[e.ID] == 1 {
				key := string(e.Message.Key)
				applied[key] = append(applied[key], e.ID)
			}
			return nil
		}, idem.Retry(idem.RetryPolicy{MaxAttempts: 1}), idem.KeyOrdered(time.Second, 5*time.Second))

		for settled, kills := 0, draw(6); ; kills-- {
			p, err := idem.NewProcessor(b.router, b.cfg)
			require.NoError(t, err)
			p.Assigned("orders", 1)
			ctx, cancel := context.WithCancelCause(t.Context())
			if kills > 0 {
				time.AfterFunc(time.Duration(draw(12_000))*time.Millisecond, func() { cancel(idem.ErrPartitionLost) })
			} else {
				time.AfterFunc(10*time.Minute, func() { cancel(idem.ErrStopping) })
			}
			taken := make(chan error, 1)
			go func() { taken <- p.RunDeferred(ctx, "orders", 1) }()
			for settled < events && ctx.Err() == nil {
				n, err := p.HandleBatch(ctx, log[settled:min(settled+1+draw(8), events)])
				settled += n
				if err != nil && ctx.Err() == nil && !errors.Is(err, idem.ErrBusy) {
					require.NoError(t, err)
				}
			}
			<-ctx.Done()
			require.NoError(t, <-taken)
			require.NoError(t, p.Close())
			if kills <= 0 {
				break
			}
			settled = max(0, settled-draw(10)) // not all of it was committed
			if settled > 0 && draw(2) == 0 {
				store.forget(log[settled-1].Time)
			}
		}
		mu.Lock()
		defer mu.Unlock()
		got := 0
		for key, ids := range applied {
			require.IsIncreasing(t, ids, "key %s, seed %d", key, seed)
			got += len(ids)
		}
		require.Equal(t, events, got, "seed %d: %v\n%s", seed, applied, b.log)
		require.Empty(t, b.sent.deadLetters())
	})
}
