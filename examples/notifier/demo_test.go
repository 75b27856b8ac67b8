package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/dedup/memstore"
	"github.com/idem-go/idem/dedup/sqlstore"
	"github.com/idem-go/idem/examples/internal/cli"
)

// play runs a short demonstration, or the whole one.
func play(t *testing.T, store dedup.Store, short bool, change ...func(*demo)) (summary, string) {
	t.Helper()
	var out bytes.Buffer
	d := newDemo(&out, slog.New(slog.DiscardHandler), store)
	if short {
		d.events, d.copies, d.feeding = 300, 100, 2*time.Second
	}
	for _, c := range change {
		c(d)
	}
	s, err := d.run(t.Context())
	require.NoError(t, err, out.String())
	s.print(&out)
	return s, out.String()
}

// A worker is killed and replaced, a second one joins, and there are copies under other keys and
// poison. No event is lost, and only events in flight at the kill may go out twice.
func TestDemo_Idempotent(t *testing.T) {
	s, out := play(t, memstore.New(), testing.Short())
	require.Empty(t, s.problems(), out)
	require.Equal(t, s.events, s.sent)
	require.Equal(t, 3, s.deadLettered)
	require.Equal(t, 1, s.kills)
	require.GreaterOrEqual(t, s.lanes, 1)
	require.Less(t, s.lanes, 6, "two workers share the partitions at the kill")
	copies := 100
	if !testing.Short() {
		copies = 350
		require.Less(t, s.took, 30*time.Second)
	}
	require.GreaterOrEqual(t, s.duplicates, copies-s.repeats)
	require.Contains(t, out, "OK in ")
}

// A second demonstration on the file of the first one, with a Kafka that is new, finds only
// duplicates.
func TestDemoAgain_Idempotent(t *testing.T) {
	file := filepath.Join(t.TempDir(), "demo.db")
	open := func() *sqlstore.Store {
		store, path, err := openDemoStore(t.Context(), "sqlite:"+file)
		require.NoError(t, err)
		require.Equal(t, file, path)
		return store
	}
	first := open()
	s, out := play(t, first, true)
	require.NoError(t, first.Close())
	require.Empty(t, s.problems(), out)
	require.Zero(t, s.known, out)
	require.Equal(t, s.events, s.sent, out)

	second := open()
	defer second.Close()
	s, out = play(t, second, true)
	require.Empty(t, s.problems(), out)
	require.Equal(t, s.events, s.known, out)
	require.Zero(t, s.sent, out)
	require.Zero(t, s.repeats, out)
	require.GreaterOrEqual(t, s.duplicates, s.events+100, out)
	require.Contains(t, out, "an earlier run had handled all 300 events")
}

// forgetful is a store that loses completions.
type forgetful struct{ *memstore.Store }

func (f forgetful) Complete(ctx context.Context, done []dedup.Completion) error {
	releases := make([]dedup.Release, len(done))
	for i, c := range done {
		releases[i] = dedup.Release{Claim: c.Claim, Retention: c.Retention}
	}
	return f.Release(ctx, releases)
}

// hasty is a store that takes an event for done as soon as a worker has claimed it. So does a
// worker that sets a mark with SETNX and skips marked events.
type hasty struct{ *memstore.Store }

func (h hasty) Claim(ctx context.Context, t dedup.Token, lease time.Duration, reqs []dedup.Request,
	answers []dedup.Answer,
) error {
	err := h.Store.Claim(ctx, t, lease, reqs, answers)
	for i := range answers {
		if v := answers[i].Verdict; v == dedup.Busy || v == dedup.Uncertain {
			answers[i] = dedup.Answer{Verdict: dedup.Done}
		}
	}
	return err
}

// The demonstration can fail, because it shows measured results.
func TestDemoShowsBrokenStores(t *testing.T) {
	if testing.Short() {
		t.Skip("plays twice")
	}
	s, out := play(t, forgetful{memstore.New()}, true)
	require.Greater(t, s.repeats, 50, out)
	require.Contains(t, out, "FAILED")
	require.Contains(t, out, "more than the")

	// The kill hits a notification that is not out yet, but for the moment between the look and the
	// kill, in which the only one in flight may go out. Then another kill is needed.
	for range 3 {
		s, out = play(t, hasty{memstore.New()}, true, func(d *demo) { d.before, d.after = 2*d.before, 1 })
		if s.lost > 0 {
			break
		}
	}
	require.Positive(t, s.lost, out)
	require.Contains(t, out, "lost")
	require.Contains(t, out, "FAILED")
}

func TestSummaryProblems(t *testing.T) {
	good := summary{
		events: 10, poison: 3, deliveries: 15, sent: 10, duplicates: 2, deadLettered: 3, repeats: 2, kills: 1, lanes: 2,
	}
	require.Empty(t, good.problems())
	for want, change := range map[string]func(*summary){
		"1 lost":            func(s *summary) { s.lost = 1 },
		"3 repeats":         func(s *summary) { s.repeats = 3 },
		"another idem":      func(s *summary) { s.mixups = 1 },
		"2 dead letters":    func(s *summary) { s.deadLettered = 2 },
		"not all was handl": func(s *summary) { s.hung = true },
	} {
		bad := good
		change(&bad)
		require.Contains(t, strings.Join(bad.problems(), "; "), want)
	}
}

func TestPlan(t *testing.T) {
	p := newPlan("n", 1000, 350, 1)
	require.Len(t, p.events, 1000)
	require.Len(t, p.records, 1353)
	count, keys, bare := make(map[event]int), make(map[event]map[string]bool), 0
	for _, r := range p.records {
		var n notification
		if json.Unmarshal(r.Value, &n) != nil || n.EventID == "" || n.Template == "birthday" {
			bare++
			continue
		}
		e := event{n.Type, n.EventID}
		count[e]++
		if keys[e] == nil {
			keys[e] = make(map[string]bool)
		}
		keys[e][string(r.Key)] = true
	}
	require.Equal(t, 3, bare)
	require.Len(t, count, 1000, "every event is written, and no other")
	other, none := 0, 0
	for e := range keys {
		switch {
		case keys[e][""]:
			none++
		case len(keys[e]) > 1:
			other++
		}
	}
	require.Greater(t, none, 50, "copies without a key")
	require.Greater(t, other, 50, "copies under another key")
	ids := make(map[string]int)
	for e := range count {
		ids[e.id]++
	}
	require.Equal(t, 3, ids["evt-0000"], "an ID goes out on several channels")
}

// An unplugged worker has no effect.
func TestPlug(t *testing.T) {
	p := newPlug()
	store := &pluggedStore{memstore.New(), p}
	key := dedup.Key{Scope: "s", Type: "t", ID: "1"}
	req := []dedup.Request{{Key: key, Retention: time.Hour}}
	answers := make([]dedup.Answer, 1)
	token := dedup.NewToken()
	require.NoError(t, store.Claim(t.Context(), token, time.Minute, req, answers))
	claim := req[0].Held(token, answers[0])

	p.pull()
	p.pull()
	require.ErrorIs(t, store.Complete(t.Context(), []dedup.Completion{{Claim: claim, Retention: time.Hour}}), errUnplugged)
	require.ErrorIs(t, store.Release(t.Context(), []dedup.Release{{Claim: claim, Retention: time.Hour}}), errUnplugged)
	require.ErrorIs(t, store.Renew(t.Context(), time.Minute, []dedup.Claim{claim}), errUnplugged)
	require.ErrorIs(t, store.Claim(t.Context(), token, time.Minute, req, answers), errUnplugged)
	require.NoError(t, store.Store.Claim(t.Context(), dedup.NewToken(), time.Minute, req, answers))
	require.Equal(t, dedup.Busy, answers[0].Verdict, "nothing was completed or released")
	require.Error(t, p.do(func() error { panic("has an effect") }))
	_, err := p.Dial("tcp", "127.0.0.1:1")
	require.Error(t, err)
}

// An interrupted demonstration reports the interruption and fails.
func TestDemoInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var out bytes.Buffer
	file := filepath.Join(t.TempDir(), "demo.db")
	require.Equal(t, cli.ExitError, run(ctx, []string{"-store", "sqlite:" + file}, &out, io.Discard))
	require.Contains(t, out.String(), "FAILED")
}

func TestScreen(t *testing.T) {
	var out bytes.Buffer
	s := newScreen(&out)
	require.False(t, s.terminal)
	s.progress(func() string { return "one" })
	s.progress(func() string { return "two" })
	require.Equal(t, 1, strings.Count(out.String(), "\n"), "a line a second where nothing can be updated in place")
	out.Reset()
	s.terminal, s.last = true, time.Time{}
	s.progress(func() string { return "one" })
	s.say("stays")
	require.Contains(t, out.String(), "\r\x1b[K")
	require.Equal(t, 1, strings.Count(out.String(), "\n"))
	f, err := os.Create(t.TempDir() + "/file")
	require.NoError(t, err)
	defer f.Close()
	require.False(t, isTerminal(f))
}
