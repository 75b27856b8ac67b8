package idem_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/deadletter"
	"github.com/idem-go/idem/dedup"
)

// unreadables are the ways in which the next release cannot read events of the release before.
var unreadables = map[string]struct {
	class idem.Class
	with  func(wrong func(*idem.Message) bool) idem.Option
}{
	"identity": {idem.ClassNoID, func(wrong func(*idem.Message) bool) idem.Option {
		return idem.ID(idem.FromFunc("test", func(m *idem.Message) (string, error) {
			if wrong(m) {
				return "", fmt.Errorf("%w: not where this release looks", idem.ErrNotFound)
			}
			return idem.StandardID().Extract(m)
		}))
	}},
	"value": {idem.ClassUndecodable, func(wrong func(*idem.Message) bool) idem.Option {
		return idem.Decode(func(m *idem.Message, _ any) error {
			if wrong(m) {
				return errors.New("unknown field")
			}
			return nil
		})
	}},
}

// rule 4: the next release cannot identify or decode an event that waits. It blocks its queue like
// any other dead event, under the key at which it was deferred, and a replay after a further
// release lets it run in its place.
func TestDefer_UnreadableBlocks(t *testing.T) {
	for name, c := range unreadables {
		for _, bad := range []string{"a1", "a2"} {
			t.Run(name+" of "+bad, func(t *testing.T) {
				inBubble(t, func(t *testing.T, b *bench) {
					b.on(failing(1, errBoom), once, idem.KeyOrdered(time.Minute))
					old := b.start()
					require.NoError(t, old.Handle(t.Context(), inQueue("a", "a1", 1)))
					_, err := old.HandleBatch(t.Context(), []*idem.Message{inQueue("a", "a2", 2), inQueue("a", "a3", 3)})
					require.NoError(t, err)
					require.NoError(t, old.Close())

					var unlearned atomic.Bool
					unlearned.Store(true)
					b.router = idem.NewRouter()
					b.on(func(_ context.Context, e idem.Event[payload]) error {
						b.add("done %s", e.ID)
						return nil
					}, once, idem.KeyOrdered(time.Minute), c.with(func(m *idem.Message) bool { return unlearned.Load() && idOf(m) == bad }))
					b.start()
					defer b.runsDeferred()()
					time.Sleep(time.Hour)
					synctest.Wait()
					before := map[string][]string{"a1": nil, "a2": {"done a1"}}[bad]
					require.Equal(t, before, done(b))
					letters := b.sent.deadLetters()
					require.Len(t, letters, 1)
					require.Equal(t, string(c.class), headerOf(letters[0], deadletter.HeaderErrorClass))
					require.Equal(t, bad, headerOf(letters[0], deadletter.HeaderEventID))
					key := dedup.Key{Scope: "g", Type: "paid", ID: bad}
					records, err := b.store.Inspect(t.Context(), key)
					require.NoError(t, err)
					require.Len(t, records, 1)
					require.Equal(t, dedup.GivenUp, records[0].State)
					part, head, ok, err := b.store.FindDeferred(t.Context(), "g", "orders", key)
					require.NoError(t, err)
					require.True(t, ok && head.Blocked)

					unlearned.Store(false) // a further release, and a replay
					head.Position, err = b.store.Reopen(t.Context(), key)
					require.NoError(t, err)
					head.Blocked, head.Wait = false, 0
					moved, err := b.store.Postpone(t.Context(), part, head)
					require.NoError(t, err)
					require.True(t, moved)
					time.Sleep(10 * time.Second)
					synctest.Wait()
					require.Equal(t, []string{"done a1", "done a2", "done a3"}, done(b))
					require.Len(t, b.sent.deadLetters(), 1)
				})
			})
		}
	}
}

func idOf(m *idem.Message) string {
	id, _ := idem.StandardID().Extract(m)
	return id
}

// Rule 4: with ContinueAfterDead the events behind one that cannot be read any longer go on.
func TestDefer_UnreadableContinueAfterDead(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.on(failing(1, errBoom), once, idem.KeyOrdered(time.Second))
		old := b.start()
		_, err := old.HandleBatch(t.Context(), []*idem.Message{inQueue("a", "a1", 1), inQueue("a", "a2", 2)})
		require.NoError(t, err)
		require.NoError(t, old.Close())
		b.router = idem.NewRouter()
		wrong := unreadables["value"].with(func(m *idem.Message) bool { return idOf(m) == "a1" })
		b.on(func(_ context.Context, e idem.Event[payload]) error {
			b.add("done %s", e.ID)
			return nil
		}, wrong, once, idem.KeyOrdered(time.Second), idem.ContinueAfterDead())
		b.start()
		defer b.runsDeferred()()
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Equal(t, []string{"done a2"}, done(b))
		require.Len(t, b.sent.deadLetters(), 1)
	})
}

// rule 4: the next release cannot say of which type an event is that waits. It stays at the head of
// its queue, and runs when a further release can.
func TestDefer_WithoutTypeStays(t *testing.T) {
	for name, fault := range map[string]error{
		"not found":     idem.ErrNotFound,
		"permanent":     idem.Permanent(errBoom),
		"retry later":   idem.RetryAfter(time.Minute, errBoom),
		"not applied":   idem.NotApplied(errBoom),
		"a long outage": idem.Unavailable(errBoom),
	} {
		t.Run(name, func(t *testing.T) { typeStays(t, fault) })
	}
}

func typeStays(t *testing.T, fault error) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.on(failing(1, errBoom), once, idem.KeyOrdered(time.Second))
		old := b.start()
		require.NoError(t, old.Handle(t.Context(), inQueue("a", "a1", 1)))
		require.NoError(t, old.Handle(t.Context(), inQueue("a", "a2", 2)))
		require.NoError(t, old.Close())
		var unlearned atomic.Bool
		unlearned.Store(true)
		var reads atomic.Int32
		b.router = idem.NewRouter()
		b.on(func(_ context.Context, e idem.Event[payload]) error {
			b.add("done %s", e.ID)
			return nil
		}, once, idem.KeyOrdered(time.Second), idem.Type(idem.FromFunc("test", func(*idem.Message) (string, error) {
			switch {
			case !unlearned.Load():
				return "paid", nil
			case reads.Add(1) == 1: // the service that it asks is down at first
				return "", idem.Unavailable(errBoom)
			}
			return "", fault
		})))
		b.start()
		defer b.runsDeferred()()
		time.Sleep(20 * time.Minute)
		synctest.Wait()
		require.Empty(t, done(b))
		require.Empty(t, b.sent.deadLetters())
		require.Contains(t, b.log.String(), "no handler can be found")
		unlearned.Store(false)
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Equal(t, []string{"done a1", "done a2"}, done(b))
	})
}
