package main

import (
	"bytes"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/idem-go/idem/examples/internal/cli"
)

// Each event is delivered three times, in another order and under other keys. A worker that is
// stopped by SIGTERM repeats no event. A killed worker repeats at most the event in flight in each
// lane (R-04, K-39).
func TestWorker_Idempotent(t *testing.T) {
	forEachStore(t, func(t *testing.T, s *setup) {
		const more = 500
		events, kills := 0, 0
		// Another worker follows one that has handled all events before its end comes.
		middle := func(end func(*process)) {
			for range 5 {
				if events-s.printed() < more/2 {
					s.produce(t, s.records(events, more, 3))
					events += more
				}
				enough := s.printed() + more/4
				w := s.start(t)
				s.await(t, enough)
				end(w)
				if s.printed() < events {
					return
				}
			}
			require.Fail(t, "each worker handled all events before its end")
		}
		middle(func(w *process) { require.Zero(t, w.terminate(t), "SIGTERM: drained, committed, left") })
		middle(func(w *process) { w.kill(); kills++ })

		w := s.start(t)
		s.awaitCommits(t)
		require.Zero(t, w.terminate(t))
		got := s.check(t, events)
		require.LessOrEqual(t, got.repeats, kills*lanes, "at a kill: one in flight in each lane")
		t.Logf("%+v", got)
	})
}

// A clean stop neither loses nor repeats an event.
func TestCleanStops_Idempotent(t *testing.T) {
	forEachStore(t, func(t *testing.T, s *setup) {
		const events, stops = 400, 3
		s.produce(t, s.records(0, events, 2))
		for i := range stops {
			w := s.start(t)
			s.await(t, events*(i+1)/(stops+1))
			require.Zero(t, w.terminate(t))
		}
		w := s.start(t)
		s.awaitCommits(t)
		require.Zero(t, w.terminate(t))
		require.Equal(t, figures{sent: events}, s.check(t, events))
	})
}

// killed lets a worker handle events in portions and kills it at a random moment of each portion
// but the last.
func killed(t *testing.T, s *setup, kills, events int) figures {
	t.Helper()
	portion := (events + kills) / (kills + 1)
	for from := 0; from < events; from += portion {
		n := min(portion, events-from)
		s.produce(t, s.records(from, n, 1))
		copies := s.records(from, n, 1) // of half of them
		rand.Shuffle(len(copies), func(i, j int) { copies[i], copies[j] = copies[j], copies[i] })
		s.produce(t, rekey(copies[:n/2]))
		if kills == 0 {
			break
		}
		w := s.start(t)
		s.await(t, s.printed()+1+rand.IntN(n*9/10))
		timer := time.NewTimer(rand.N(2 * time.Millisecond))
		<-timer.C
		w.kill()
		kills--
	}
	w := s.start(t)
	s.awaitCommits(t)
	require.Zero(t, w.terminate(t))
	return s.check(t, events)
}

// rekey gives copies another key or no key.
func rekey(records []*kgo.Record) []*kgo.Record {
	for i, r := range records {
		r.Key = nil
		if i%2 == 0 {
			r.Key = []byte{byte('a' + rand.IntN(26)), byte('a' + rand.IntN(26))}
		}
	}
	return records
}

// A worker that marks an event as done before it has handled it, or skips an event that another
// worker holds, loses events when it is killed. This worker is killed repeatedly and loses
// no event. NOTIFIER_SOAK=1 selects the long form: 18 kills while it handles 6,000 events.
func TestKilledAgainAndAgain_Idempotent(t *testing.T) {
	kills, events := 4, 1200
	if os.Getenv("NOTIFIER_SOAK") != "" {
		kills, events = 18, 6000
	}
	forEachStore(t, func(t *testing.T, s *setup) {
		got := killed(t, s, kills, events)
		require.LessOrEqual(t, got.repeats, kills*lanes)
		t.Logf("soak: %s seed=0 size=%d kills=%d cuts=0 rebalances=0 outcome=none lost, %+v", t.Name(), events, kills, got)
	})
}

// kcat is an independent client. It writes every event three times: with a key, in another order
// without a key, and backwards.
func TestKcat_Idempotent(t *testing.T) {
	if _, err := exec.LookPath("kcat"); err != nil {
		t.Skip("kcat is not installed")
	}
	forEachStore(t, func(t *testing.T, s *setup) {
		const events = 300
		var keyed, shuffled, backwards []string
		for i, r := range s.records(0, events, 1) {
			keyed = append(keyed, string(rune('a'+i%26))+"|"+string(r.Value))
			shuffled = append(shuffled, string(r.Value))
			backwards = append([]string{"again|" + string(r.Value)}, backwards...)
		}
		rand.Shuffle(events, func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
		kcat(t, s, keyed, "-K", "|")
		kcat(t, s, shuffled)
		kcat(t, s, backwards, "-K", "|")
		w := s.start(t)
		s.await(t, events)
		s.awaitCommits(t)
		require.Zero(t, w.terminate(t))
		require.Equal(t, figures{sent: events}, s.check(t, events))
	})
}

func kcat(t *testing.T, s *setup, lines []string, more ...string) {
	t.Helper()
	args := append([]string{"-P", "-b", strings.Join(s.brokers, ","), "-t", s.topic}, more...)
	cmd := exec.CommandContext(t.Context(), "kcat", args...)
	cmd.Stdin = strings.NewReader(strings.Join(lines, "\n") + "\n")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
}

// The store in memory works with a real broker and warns about its limits (rule 31).
func TestMemoryStoreWarns_Idempotent(t *testing.T) {
	s := newSetup(t, "memory")
	s.produce(t, s.records(0, 100, 2))
	w := s.start(t, "-health", "127.0.0.1:0")
	s.awaitCommits(t)
	require.Zero(t, w.terminate(t))
	require.Equal(t, figures{sent: 100}, s.check(t, 100))
	text, err := os.ReadFile(s.stderr.Name())
	require.NoError(t, err)
	require.True(t, bytes.Contains(text, []byte("the store is in memory")), "%s", text)
	require.True(t, bytes.Contains(text, []byte("counts.duplicates=100")), "%s", text)
}

// A missing topic ends the worker soon; the worker does not wait for it (K-36).
func TestMissingTopic(t *testing.T) {
	s := newSetup(t, "memory")
	s.topic += "-misspelt"
	began := time.Now()
	require.Equal(t, cli.ExitError, s.start(t).wait())
	require.Less(t, time.Since(began), 15*time.Second)
	text, err := os.ReadFile(s.stderr.Name())
	require.NoError(t, err)
	require.True(t, bytes.Contains(text, []byte("topics do not exist: "+s.topic)), "%s", text)
}
