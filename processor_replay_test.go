package idem_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/dedup/memstore"
)

// produced keeps the topics of published messages.
type produced struct{ topics []string }

func (p *produced) Produce(_ context.Context, msgs ...*idem.Message) error {
	for _, m := range msgs {
		p.topics = append(p.topics, m.Topic)
	}
	return nil
}

// In a replay no copy reaches a retry topic, no event is deferred, and no deferred event of the
// live group runs. The router stays as it is for the live processor.
func TestReplay_RetriesInPlaceOnly(t *testing.T) {
	for name, delayed := range map[string]idem.Option{
		"retry topics": idem.RetryTopics(time.Second, time.Minute), "key order": idem.KeyOrdered(time.Second),
	} {
		for _, suffix := range []string{"", ".replay.fix"} {
			t.Run(name+suffix, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					runs := 0
					r := idem.NewRouter()
					idem.On(r, "paid", func(context.Context, idem.Event[payload]) error {
						runs++
						return errors.New("down")
					}, idem.ID(idem.FromJSON("event_id")), idem.Type(idem.FromJSON("type")), delayed,
						idem.Retry(idem.RetryPolicy{MaxAttempts: 3}))
					store, sent := memstore.New(memstore.Volatile()), &produced{}
					cfg := idem.Config{
						Store: store, Scope: "g", Producer: sent,
						Logger: slog.New(slog.NewTextHandler(io.Discard, nil)),
						Replay: &idem.Replay{ScopeSuffix: suffix},
					}
					p, err := idem.NewProcessor(r, cfg)
					require.NoError(t, err)
					require.False(t, p.RunsDeferred())
					require.Empty(t, p.RetryDelays())
					require.NoError(t, p.Handle(t.Context(), message("e1", 1)))
					require.Equal(t, 3, runs)
					require.Equal(t, []string{"orders.g.dlq"}, sent.topics)
					known, err := store.Inspect(t.Context(), dedup.Key{Scope: "g" + suffix, Type: "paid", ID: "e1"})
					require.NoError(t, err)
					require.Equal(t, dedup.GivenUp, known[0].State)
					require.NoError(t, p.Close())

					cfg.Replay = nil
					live, err := idem.NewProcessor(r, cfg)
					require.NoError(t, err)
					require.True(t, live.RunsDeferred())
					if name == "retry topics" {
						require.Len(t, live.RetryDelays(), 2)
						require.Empty(t, live.KeyOrdered())
					} else {
						require.Equal(t, []string{"paid"}, live.KeyOrdered())
						require.Equal(t, live.KeyOrdered(), p.KeyOrdered(), "the registration counts")
					}
					require.NoError(t, live.Close())
				})
			})
		}
	}
}

// A suffix makes every event new once, also one that is older than the memory of the live scope,
// and applies to handlers with a scope of their own.
func TestReplay_ScopeSuffix(t *testing.T) {
	runs := 0
	r := idem.NewRouter()
	idem.On(r, "paid", func(context.Context, idem.Event[payload]) error { runs++; return nil },
		idem.ID(idem.FromJSON("event_id")), idem.Type(idem.FromJSON("type")), idem.Scope("own"),
		idem.WhenTooOld(idem.StopTooOld))
	r.NotFound(func(context.Context, *idem.Message) error { runs += 100; return nil })
	s := &spy{Store: memstore.New(memstore.Volatile()), journal: &journal{}}
	with := func(replay *idem.Replay) *idem.Processor {
		p, err := idem.NewProcessor(r, idem.Config{Store: s, Scope: "g", Replay: replay,
			Logger: slog.New(slog.NewTextHandler(io.Discard, nil))})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, p.Close()) })
		return p
	}
	require.NoError(t, with(nil).Handle(t.Context(), message("e1", 1)))
	require.False(t, s.anyAge)
	again := with(&idem.Replay{ScopeSuffix: ".replay.fix"})
	require.NoError(t, again.Handle(t.Context(), message("e1", 1)))
	require.True(t, s.anyAge)
	require.NoError(t, again.Handle(t.Context(), message("e1", 1)))
	require.Equal(t, 2, runs)
	require.NoError(t, with(&idem.Replay{}).Handle(t.Context(), message("e1", 1)))
	require.False(t, s.anyAge, "the scope of the group may have forgotten events")
	require.Equal(t, 2, runs)
	other := message("e2", 2)
	other.Value = []byte(`{"event_id":"e2","type":"other"}`)
	require.NoError(t, again.Handle(t.Context(), other))
	require.Equal(t, 2, runs, "NotFound runs at each delivery")

	_, err := idem.NewProcessor(r, idem.Config{Store: s, Scope: "g", Replay: &idem.Replay{}, Shadow: true})
	require.ErrorContains(t, err, "exclude each other")
	_, err = idem.NewProcessor(r, idem.Config{Store: s, Scope: "g",
		Replay: &idem.Replay{ScopeSuffix: strings.Repeat("x", 300)}})
	require.ErrorIs(t, err, dedup.ErrKey)
}

// A record without an ID would run at each replay in the scope of the group.
func TestReplay_RunNoID(t *testing.T) {
	runs := 0
	r := idem.NewRouter()
	idem.On(r, "paid", func(context.Context, idem.Event[payload]) error { runs++; return nil },
		idem.ID(idem.FromJSON("event_id")), idem.Type(idem.FromJSON("type")), idem.WhenNoID(idem.RunNoID))
	m := message("", 1)
	m.Value = []byte(`{"type":"paid"}`)
	for suffix, want := range map[string]int{"": 0, ".replay.fix": 1} {
		runs = 0
		p, err := idem.NewProcessor(r, idem.Config{Store: memstore.New(memstore.Volatile()), Scope: "g",
			Replay: &idem.Replay{ScopeSuffix: suffix}, Logger: slog.New(slog.NewTextHandler(io.Discard, nil))})
		require.NoError(t, err)
		require.NoError(t, p.Handle(t.Context(), m))
		require.Equal(t, want, runs, "suffix %q", suffix)
		require.NoError(t, p.Close())
	}
}
