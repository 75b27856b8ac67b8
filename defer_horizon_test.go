package idem_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/deadletter"
	"github.com/idem-go/idem/dedup"
)

// forgetful is a store with a horizon. From before the horizon it knows only the events that it has
// a record of.
type forgetful struct {
	*spy
	mu      sync.Mutex
	horizon time.Time
}

// forget moves the horizon on. It never goes back.
func (f *forgetful) forget(before time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if before.After(f.horizon) {
		f.horizon = before
	}
}

func (f *forgetful) tooOld(ctx context.Context, r *dedup.Request) (bool, error) {
	f.mu.Lock()
	old := !r.AnyAge && r.Position == (dedup.Position{}) && r.Origin.Time.Before(f.horizon)
	f.mu.Unlock()
	if !old {
		return false, nil
	}
	records, err := f.Inspect(ctx, r.Key)
	return len(records) == 0, err
}

// Claim asks for one event at a time, so that events that are too old leave no record.
func (f *forgetful) Claim(ctx context.Context, t dedup.Token, lease time.Duration, r []dedup.Request, a []dedup.Answer) error {
	for i := range r {
		old, err := f.tooOld(ctx, &r[i])
		if err != nil {
			return err
		}
		if old {
			a[i] = dedup.Answer{Verdict: dedup.TooOld}
			continue
		}
		if err := f.spy.Claim(ctx, t, lease, r[i:i+1], a[i:i+1]); err != nil {
			return err
		}
	}
	return nil
}

func (f *forgetful) Look(ctx context.Context, r []dedup.Request, a []dedup.Answer) error {
	if err := f.spy.Look(ctx, r, a); err != nil {
		return err
	}
	for i := range r {
		old, err := f.tooOld(ctx, &r[i])
		if err != nil {
			return err
		}
		if old {
			a[i] = dedup.Answer{Verdict: dedup.TooOld}
		}
	}
	return nil
}

// dated is a message with a Kafka key and a broker time.
func dated(key, id string, offset int64, at time.Time) *idem.Message {
	m := inQueue(key, id, offset)
	m.Time = at
	return m
}

// Rule 8: the head of a queue is blocked for longer than the store remembers. The events behind it
// have never run, and run then under each policy for events that are too old.
func TestDefer_FollowersOutlastTheHorizon(t *testing.T) {
	for name, policy := range map[string]idem.Option{
		"dead letter": idem.WhenTooOld(idem.DeadLetterTooOld), "stop": idem.WhenTooOld(idem.StopTooOld),
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *bench) {
				store := &forgetful{spy: b.store}
				b.cfg.Store = store
				broken := true
				b.on(func(_ context.Context, e idem.Event[payload]) error {
					if e.ID == "a1" && broken {
						return errBoom
					}
					b.add("done %s", e.ID)
					return nil
				}, once, idem.KeyOrdered(time.Second), policy)
				b.start()
				defer b.runsDeferred()()
				began := time.Now()
				require.NoError(t, b.p.Handle(t.Context(), dated("a", "a1", 1, began)))
				_, err := b.p.HandleBatch(t.Context(), []*idem.Message{dated("a", "a2", 2, began), dated("a", "a3", 3, began)})
				require.NoError(t, err)
				time.Sleep(time.Hour)
				synctest.Wait()
				require.Len(t, b.sent.deadLetters(), 1, "the head")
				store.forget(time.Now())

				broken = false
				key := dedup.Key{Scope: "g", Type: "paid", ID: "a1"}
				part, head, ok, err := b.store.FindDeferred(t.Context(), "g", "orders", key)
				require.NoError(t, err)
				require.True(t, ok && head.Blocked)
				head.Position, err = b.store.Reopen(t.Context(), key)
				require.NoError(t, err)
				head.Blocked, head.Wait = false, 0
				_, err = b.store.Postpone(t.Context(), part, head)
				require.NoError(t, err)
				time.Sleep(10 * time.Second)
				synctest.Wait()
				require.Equal(t, []string{"done a1", "done a2", "done a3"}, done(b))
				require.Len(t, b.sent.deadLetters(), 1)
			})
		})
	}
}

// Rule 8: an event that was too old when it came is not deferred, or it would run at any age later.
// The handler's policy decides, as if no event of its key waited. An event that was deferred in
// time and comes again keeps its place.
func TestDefer_TooOldIsNotDeferred(t *testing.T) {
	for name, tooOld := range map[string]struct {
		policy  idem.Option
		settled int
		letters int
	}{
		"dead letter": {idem.WhenTooOld(idem.DeadLetterTooOld), 3, 1},
		"stop":        {idem.WhenTooOld(idem.StopTooOld), 1, 0},
		"run":         {idem.WhenTooOld(idem.RunTooOld), 3, 0},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *bench) {
				store := &forgetful{spy: b.store}
				b.cfg.Store = store
				b.on(failing(1, errBoom), once, idem.KeyOrdered(24*time.Hour), tooOld.policy)
				b.start()
				began := time.Now()
				_, err := b.p.HandleBatch(t.Context(), []*idem.Message{dated("a", "a1", 1, began), dated("a", "a2", 2, began)})
				require.NoError(t, err)
				store.forget(began.Add(time.Minute))
				n, err := b.p.HandleBatch(t.Context(), []*idem.Message{
					dated("a", "a2", 2, began), dated("a", "old", 0, began), dated("a", "a3", 3, began.Add(time.Hour)),
				})
				require.Equal(t, tooOld.settled, n)
				if n < 3 {
					require.ErrorIs(t, err, idem.ErrTooOld)
				}
				letters := b.sent.deadLetters()
				require.Len(t, letters, tooOld.letters)
				for _, l := range letters {
					require.Equal(t, "old", headerOf(l, deadletter.HeaderEventID))
					require.Equal(t, string(idem.ClassTooOld), headerOf(l, deadletter.HeaderErrorClass))
				}
				waits, err := b.store.First(t.Context(), dedup.DeferredPartition{Scope: "g", Topic: "orders", Partition: 1}, "ka", 9)
				require.NoError(t, err)
				got := []string{}
				for _, e := range waits {
					got = append(got, e.Key.ID)
				}
				want := []string{"a1", "a2", "a3"}
				if name == "run" {
					want = []string{"a1", "a2", "old", "a3"}
				}
				require.Equal(t, want, got)
			})
		})
	}
}

// Rule 8: a copy of a handled event does not wait in a queue until the store has forgotten the
// event.
func TestDefer_DoneIsNotDeferred(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.on(func(_ context.Context, e idem.Event[payload]) error {
			if e.ID == "a2" {
				return errBoom
			}
			b.add("done %s", e.ID)
			return nil
		}, once, idem.KeyOrdered(time.Hour))
		b.start()
		_, err := b.p.HandleBatch(t.Context(), []*idem.Message{inQueue("a", "a1", 1), inQueue("a", "a2", 2)})
		require.NoError(t, err)
		n, err := b.p.HandleBatch(t.Context(), []*idem.Message{inQueue("a", "a1", 3), inQueue("a", "a3", 4), inQueue("a", "a1", 5)})
		require.NoError(t, err)
		require.Equal(t, 3, n)
		require.Equal(t, []string{"done a1"}, done(b))
		waits, err := b.store.First(t.Context(), dedup.DeferredPartition{Scope: "g", Topic: "orders", Partition: 1}, "ka", 9)
		require.NoError(t, err)
		require.Len(t, waits, 2, "a2 and a3")
	})
}

// Rule 4, as docs/guarantees.md says: the dead letter of an event that never waited in the store
// holds up no other. The dead letter of an event that waited blocks its key.
func TestDefer_OnlyADeadEventThatWaitedBlocks_Rule4(t *testing.T) {
	for name, c := range map[string]struct {
		transient int
		want      []string
	}{
		"dead at the first run": {0, []string{"done a2"}},
		"dead after a wait":     {1, nil},
	} {
		inBubble(t, func(t *testing.T, b *bench) {
			b.on(func(_ context.Context, e idem.Event[payload]) error {
				switch {
				case e.ID != "a1":
					b.add("done %s", e.ID)
					return nil
				case c.transient > 0:
					c.transient--
					return errBoom
				}
				return idem.Permanent(errBoom)
			}, once, idem.KeyOrdered(time.Second))
			b.start()
			defer b.runsDeferred()()
			require.NoError(t, b.p.Handle(t.Context(), inQueue("a", "a1", 1)))
			time.Sleep(time.Minute)
			synctest.Wait()
			require.NoError(t, b.p.Handle(t.Context(), inQueue("a", "a2", 2)))
			time.Sleep(time.Minute)
			synctest.Wait()
			require.Len(t, b.sent.deadLetters(), 1, name)
			require.Equal(t, c.want, done(b), name)
		})
	}
}

// Rule 4: an event was dead before its Kafka key had a queue. The next owner gets all events of the
// key again. The dead event joins no queue, where it would block the key.
func TestDefer_DeadBeforeTheQueueBlocksNothing_Rule4(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		fails := 1
		b.on(func(_ context.Context, e idem.Event[payload]) error {
			switch {
			case e.ID == "a1":
				return idem.Permanent(errBoom)
			case e.ID == "a2" && fails > 0:
				fails--
				return errBoom
			}
			b.add("done %s", e.ID)
			return nil
		}, once, idem.KeyOrdered(time.Minute))
		old := b.start()
		msgs := []*idem.Message{inQueue("a", "a1", 1), inQueue("a", "a2", 2), inQueue("a", "a3", 3)}
		for _, m := range msgs[:2] { // and no commit of their offsets
			require.NoError(t, old.Handle(t.Context(), m))
		}
		require.NoError(t, old.Close())

		b.start()
		defer b.runsDeferred()()
		n, err := b.p.HandleBatch(t.Context(), msgs)
		require.NoError(t, err)
		require.Equal(t, 3, n)
		time.Sleep(time.Hour)
		synctest.Wait()
		require.Equal(t, []string{"done a2", "done a3"}, done(b))
		require.Len(t, b.sent.deadLetters(), 1)
		part := dedup.DeferredPartition{Scope: "g", Topic: "orders", Partition: 1}
		queues, err := b.store.Queues(t.Context(), part, "", 2)
		require.NoError(t, err)
		require.Empty(t, queues)
	})
}
