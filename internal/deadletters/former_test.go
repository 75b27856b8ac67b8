package deadletters

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/deadletter"
	"github.com/idem-go/idem/dedup"
)

// handleByTenant is the group after a release that added the tenant to the identity.
func (w *world) handleByTenant(fn func(id string) error, options []idem.Option, messages ...*idem.Message) {
	w.t.Helper()
	r := idem.NewRouter(idem.Tenant(idem.FromJSON("tenant")))
	idem.On(r, "paid", func(_ context.Context, e idem.Event[struct{}]) error { return fn(e.ID) }, options...)
	p, err := idem.NewProcessor(r, idem.Config{
		Store: w.store, Scope: "g", Group: "g", Producer: w.producer, Logger: slog.New(slog.NewTextHandler(io.Discard, nil)),
	})
	require.NoError(w.t, err)
	defer p.Close()
	n, err := p.HandleBatch(w.t.Context(), messages)
	require.NoError(w.t, err)
	require.Len(w.t, messages, n)
}

// A dead letter of an event that has another identity by now is replayed once. The old key is
// settled with the event, so that no replay publishes it again and no purge stops at it.
func TestReplay_IdentityChanged(t *testing.T) {
	for name, outcome := range map[string]struct {
		err  error
		note string
		dead int // dead letters afterwards
	}{
		"handled":   {nil, "its identity has changed, handled as", 2},
		"dead anew": {idem.Permanent(errors.New("still broken")), "its identity has changed, goes on as", 4},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.fail(w.event("a", `,"tenant":"acme"`), w.event("b", `,"tenant":"acme"`))
			result, err := w.open().Replay(t.Context(), Replay{Producer: w.producer})
			require.NoError(t, err)
			require.Equal(t, 2, result.Replayed)
			ran := map[string]int{}
			w.handleByTenant(func(id string) error { ran[id]++; return outcome.err }, nil, w.copies()...)
			require.Equal(t, map[string]int{"a": 1, "b": 1}, ran)

			old := 0
			_, err = w.open().EachJudged(t.Context(), Filter{}, nil, Decisions{}, func(j *Judged) (bool, error) {
				if j.DeadLetter.Key.Tenant != "" {
					require.Equal(t, SeenDead, j.Verdict, "it is dead under its new key, and can be replayed")
					return true, nil
				}
				old++
				require.Equal(t, SeenDiscarded, j.Verdict)
				require.Contains(t, j.Note, outcome.note)
				require.True(t, j.Settled(false), "a purge stops at it")
				return true, nil
			})
			require.NoError(t, err)
			require.Equal(t, 2, old)
			require.Len(t, w.deadLetters(), outcome.dead)
			n := len(w.copies())
			again, err := w.open().Replay(t.Context(), Replay{Producer: w.producer, Filter: Filter{Classes: []string{string(idem.ClassPermanent)}}})
			require.NoError(t, err)
			require.Equal(t, outcome.dead-2, again.Replayed, "only what is dead under its new key")
			require.Len(t, w.copies(), n+outcome.dead-2)
		})
	}
}

// A copy settles no key that does not wait for it, for all headers of the copy (G-03).
func TestReplay_ForgedFormerIdentity_G03(t *testing.T) {
	w := newWorld(t)
	w.fail(w.event("a", `,"tenant":"acme"`), w.event("victim", `,"tenant":"acme"`))
	_, err := w.open().Replay(t.Context(), Replay{Producer: w.producer, Filter: Filter{ID: "a"}})
	require.NoError(t, err)
	victim := dedup.Key{Scope: "g", Type: "paid", ID: "victim"}
	for _, id := range []string{"victim", "unknown"} {
		forged := w.copies()[0]
		for i := range forged.Headers {
			if forged.Headers[i].Key == deadletter.HeaderEventID {
				forged.Headers[i].Value = []byte(id)
			}
		}
		w.handleByTenant(func(string) error { return nil }, nil, forged)
	}
	records, err := w.store.(dedup.Operator).Inspect(t.Context(), victim, dedup.Key{Scope: "g", Type: "paid", ID: "unknown"})
	require.NoError(t, err)
	require.Len(t, records, 1)
	require.Equal(t, dedup.GivenUp, records[0].State)
	require.False(t, records[0].Discarded(), "it is still to be replayed")
}

// ID, type or both of events are found in other places now. Their dead letters run once under the
// new key, and the old key is settled.
func TestReplay_PlacesChanged(t *testing.T) {
	none := func() []idem.Option { return nil }
	for name, c := range map[string]struct {
		typ  string
		opts func() []idem.Option
		id   string // afterwards
	}{
		"ID":   {"paid", func() []idem.Option { return []idem.Option{idem.ID(idem.FromJSON("payment"))} }, "p-1"},
		"type": {"payment.paid", func() []idem.Option { return []idem.Option{idem.Type(idem.FromJSON("kind"))} }, "a"},
		"both": {"payment.paid", func() []idem.Option {
			return []idem.Option{idem.ID(idem.FromJSON("payment")), idem.Type(idem.FromJSON("kind"))}
		}, "p-1"},
		"neither": {"paid", none, "a"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			original := w.event("a", `,"payment":"p-1","kind":"payment.paid"`)
			w.fail(original)
			result, err := w.open().Replay(t.Context(), Replay{Producer: w.producer})
			require.NoError(t, err)
			require.Equal(t, 1, result.Replayed)
			ran := map[string]int{}
			w.handleAs(c.typ, func(id string) error { ran[id]++; return nil }, c.opts(), append(w.copies(), w.copies()[0], original)...)
			require.Equal(t, map[string]int{c.id: 1}, ran, "the redelivery is a duplicate under the new key too")
			again, err := w.open().Replay(t.Context(), Replay{Producer: w.producer})
			require.NoError(t, err)
			require.Zero(t, again.Replayed)
			require.Len(t, w.copies(), 1)
			_, err = w.open().EachJudged(t.Context(), Filter{}, nil, Decisions{}, func(j *Judged) (bool, error) {
				require.True(t, j.Settled(false), "a purge stops at %s", j.Verdict)
				return true, nil
			})
			require.NoError(t, err)
		})
	}
}

// handleAs is the group after a release with a handler of this type and these places.
func (w *world) handleAs(typ string, fn func(id string) error, options []idem.Option, messages ...*idem.Message) {
	w.t.Helper()
	r := idem.NewRouter()
	idem.On(r, typ, func(_ context.Context, e idem.Event[struct{}]) error { return fn(e.ID) }, options...)
	p, err := idem.NewProcessor(r, idem.Config{
		Store: w.store, Scope: "g", Group: "g", Producer: w.producer, Logger: slog.New(slog.NewTextHandler(io.Discard, nil)),
	})
	require.NoError(w.t, err)
	defer p.Close()
	for _, m := range messages {
		require.NoError(w.t, p.Handle(w.t.Context(), m))
	}
}
