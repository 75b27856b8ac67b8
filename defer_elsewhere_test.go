package idem_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/deadletter"
	"github.com/idem-go/idem/dedup"
)

// rule 4: two copies of an event have different Kafka keys. One of them is deferred behind another
// event, then the other one runs and fails. The store keeps an event in one queue, so the event
// waits there for its next attempt, and is not lost.
func TestDefer_DeferredUnderAnotherKafkaKey_Rule4(t *testing.T) {
	for name, failures := range map[string]int{"its queue goes on before it is due": 1, "its queue goes on later": 3} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *bench) {
				runs := map[string]int{}
				b.on(func(_ context.Context, e idem.Event[payload]) error {
					runs[e.ID]++
					if e.ID == "x" && runs["x"] <= 2 || e.ID == "b1" && runs["b1"] <= failures {
						return errBoom
					}
					b.add("done %s", e.ID)
					return nil
				}, once, idem.KeyOrdered(time.Second, time.Minute, 10*time.Minute))
				b.start()
				defer b.runsDeferred()()
				n, err := b.p.HandleBatch(t.Context(), []*idem.Message{
					inQueue("b", "b1", 1), inQueue("b", "x", 2), inQueue("a", "x", 3), inQueue("a", "a2", 4), inQueue("b", "b3", 5),
				})
				require.NoError(t, err)
				require.Equal(t, 5, n)
				time.Sleep(time.Hour)
				synctest.Wait()
				require.ElementsMatch(t, []string{"done b1", "done x", "done a2", "done b3"}, done(b))
				require.Equal(t, 3, runs["x"], "no attempt is repeated, none is left out")
				_, _, waits, err := b.store.FindDeferred(t.Context(), b.cfg.Scope, "orders", dedup.Key{Scope: b.cfg.Scope, Type: "paid", ID: "x"})
				require.NoError(t, err)
				require.False(t, waits)
			})
		})
	}
}

// Rule 4: the next release gives events another identity. An event that an earlier release has
// deferred keeps its place under its former key. A further failure must find the event there.
func TestDefer_DeferredUnderFormerIdentity_Rule4(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		runs := map[string]int{}
		handle := func(_ context.Context, e idem.Event[payload]) error {
			runs[e.ID]++
			if e.ID == "a1" && runs["a1"] <= 3 {
				return errBoom
			}
			b.add("done %s", e.ID)
			return nil
		}
		ordered := idem.KeyOrdered(time.Second, time.Minute, 2*time.Minute)
		b.on(handle, once, ordered)
		old := b.start()
		for i, id := range []string{"a1", "a2"} {
			require.NoError(t, old.Handle(t.Context(), inQueue("a", id, int64(i))))
		}
		require.NoError(t, old.Close())

		b.router = idem.NewRouter(idem.Tenant(idem.Fixed("shop")))
		b.on(handle, once, ordered)
		b.start()
		defer b.runsDeferred()()
		time.Sleep(time.Hour)
		synctest.Wait()
		require.Equal(t, []string{"done a1", "done a2"}, done(b))
		require.Equal(t, 4, runs["a1"])
	})
}

// rules 3 and 6d: the deferred copy has another content than the one that runs and fails. The
// failing one keeps the event, and the other one becomes a dead letter: it does not vanish.
func TestDefer_DeferredUnderAnotherKafkaKeyDiffers_Rule6d(t *testing.T) {
	for name, offsets := range map[string][2]int64{
		"records":                  {2, 3},
		"messages without a place": {-1, -1},
	} {
		t.Run(name, func(t *testing.T) { deferredCopyDiffers(t, offsets[0], offsets[1]) })
	}
}

func deferredCopyDiffers(t *testing.T, first, second int64) {
	inBubble(t, func(t *testing.T, b *bench) {
		fails := map[string]int{"b1": 1, "x": 1}
		b.on(func(_ context.Context, e idem.Event[payload]) error {
			if fails[e.ID]--; fails[e.ID] >= 0 {
				return errBoom
			}
			b.add("done %s %d", e.ID, e.Data.Amount)
			return nil
		}, once, idem.KeyOrdered(time.Second, time.Minute))
		b.start()
		defer b.runsDeferred()()
		wrong, corrected := inQueue("b", "x", first), inQueue("a", "x", second)
		corrected.Value = []byte(`{"event_id":"x","type":"paid","amount":8}`)
		for _, m := range []*idem.Message{inQueue("b", "b1", 1), wrong, corrected} {
			require.NoError(t, b.p.Handle(t.Context(), m))
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		require.Equal(t, []string{"done b1 7", "done x 8"}, done(b))
		letters := b.sent.deadLetters()
		require.Len(t, letters, 1)
		l, err := deadletter.Parse(letters[0])
		require.NoError(t, err)
		require.Equal(t, idem.ClassConflict, l.Class)
		require.Equal(t, string(wrong.Value), string(l.Message.Value))
		require.Equal(t, max(first, 0), l.Message.Offset)
	})
}

// taken is a store in which an operator takes an event out of its queue just before a look for that
// event.
type taken struct {
	*spy
	queue string
	key   dedup.Key
}

func (s *taken) FindDeferred(ctx context.Context, scope, topic string, key dedup.Key) (dedup.DeferredPartition, dedup.Deferred, bool, error) {
	if queue := s.queue; queue != "" && key == s.key {
		s.queue = ""
		if _, err := s.spy.Remove(ctx, dedup.DeferredPartition{Scope: scope, Topic: topic, Partition: 1}, queue, dedup.Deferred{Key: key}); err != nil {
			return dedup.DeferredPartition{}, dedup.Deferred{}, false, err
		}
	}
	return s.spy.FindDeferred(ctx, scope, topic, key)
}

// Rule 4: the copy under the other Kafka key is taken out of its queue while the failing copy is
// deferred. No copy is left to be postponed, so the failing one gets a queue of its own.
func TestDefer_TakenOutMeanwhile_Rule4(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.cfg.Store = &taken{spy: b.store, queue: "kb", key: dedup.Key{Scope: b.cfg.Scope, Type: "paid", ID: "x"}}
		fails := map[string]int{"b1": 1, "x": 1}
		b.on(func(_ context.Context, e idem.Event[payload]) error {
			if fails[e.ID]--; fails[e.ID] >= 0 {
				return errBoom
			}
			b.add("done %s", e.ID)
			return nil
		}, once, idem.KeyOrdered(time.Second))
		b.start()
		defer b.runsDeferred()()
		_, err := b.p.HandleBatch(t.Context(), []*idem.Message{inQueue("b", "b1", 1), inQueue("b", "x", 2), inQueue("a", "x", 3)})
		require.NoError(t, err)
		time.Sleep(time.Hour)
		synctest.Wait()
		require.ElementsMatch(t, []string{"done b1", "done x"}, done(b))
	})
}
