package main

import (
	"bytes"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/dedup"
)

// An event that joined a queue before anybody claimed it has no record. The command explains how to
// find it, and shows the Kafka key as its producer wrote it (rule 4).
func TestGetOfADeferredEventWithoutRecord(t *testing.T) {
	s, known := memory()
	part := dedup.DeferredPartition{Scope: "billing", Topic: "orders", Partition: 2}
	head, follower := inScope("order", "head"), inScope("order", "follower")
	finish(t, s, claim(t, s, head, dedupOrigin(1)), "failed: broken")
	var events []dedup.Deferred
	for i, key := range []dedup.Key{head, follower} {
		events = append(events, dedup.Deferred{Key: key, Queue: "kcustomer-7", Origin: dedupOrigin(int64(i)), Data: []byte("{}")})
	}
	require.NoError(t, s.Defer(t.Context(), part, events))
	get := []string{"event", "get", "follower", "-G", "billing", "--store", inMemory, "--type", "order"}
	commandWith(t, known, "", get...).failed(t, exitFound, "--type and --topic")
	out := commandWith(t, known, "", append(get, "--topic", "orders")...).ok(t)
	require.Contains(t, out, `key "customer-7"`)
	require.Contains(t, out, `behind "head"`)
	require.NotContains(t, out, "with claims", "nobody knows that")
	none := commandWith(t, known, "", "event", "get", "nobody", "-G", "billing", "--store", inMemory, "--type", "order", "--topic", "orders")
	none.failed(t, exitFound, "not known")
	require.NotContains(t, none.stderr, "--topic")
}

// An event waits for its last attempt, first of its key. The attempt fails while a person looks at
// the question, so the event is dead and blocks its key. A release lets the key go on all the same
// (rule 4).
func TestReleaseOfAnEventThatIsBlockedMeanwhile_Rule4(t *testing.T) {
	s, known := memory()
	part := dedup.DeferredPartition{Scope: "billing", Topic: "orders", Partition: 2}
	key := inScope("order", "head")
	c := claim(t, s, key, dedupOrigin(1))
	require.NoError(t, s.Complete(t.Context(), []dedup.Completion{{Claim: c, Retention: time.Hour, Retry: 1}}))
	waiting := dedup.Deferred{
		Key: key, Queue: "kcustomer-7", Origin: dedupOrigin(1), Data: []byte("{}"),
		Position: dedup.Position{Retry: 1}, Wait: time.Hour,
	}
	require.NoError(t, s.Defer(t.Context(), part, []dedup.Deferred{waiting}))

	args := []string{"event", "release", "head", "--type", "order", "-G", "billing", "--store", inMemory}
	dry := commandWith(t, known, "", append(args, "--dry-run")...)
	require.Contains(t, dry.ok(t), "it runs again in 1h")

	fail := func() {
		reqs := []dedup.Request{{Key: key, Position: waiting.Position, Origin: waiting.Origin, Retention: time.Hour}}
		var answers [1]dedup.Answer
		token := dedup.NewToken()
		require.NoError(t, s.Claim(t.Context(), token, time.Minute, reqs, answers[:]))
		require.True(t, answers[0].Verdict.Held())
		finish(t, s, reqs[0].Held(token, answers[0]), "no such account")
		blocked := waiting
		blocked.Blocked = true
		moved, err := s.Postpone(t.Context(), part, blocked)
		require.NoError(t, err)
		require.True(t, moved)
	}
	var out, said bytes.Buffer
	a := &app{
		stdin: strings.NewReader("y\n"), stdout: &out, known: known,
		stderr: io.MultiWriter(&said, &onWrite{substring: "Go on?", then: fail}),
	}
	require.Zero(t, a.run(t.Context(), args), &said)
	first, err := s.First(t.Context(), part, waiting.Queue, 1)
	require.NoError(t, err)
	require.False(t, first[0].Blocked, "the key stands still: %s", &out)
	require.LessOrEqual(t, first[0].Wait, time.Duration(0))
	require.Equal(t, dedup.Position{Generation: 1}, first[0].Position)
	require.Contains(t, out.String(), "as soon as possible")
}

// A person gives an event up while its worker handles it. The worker fails during the question, so
// the event is dead and blocks its key. A skip lets the key go on all the same (rule 4).
func TestSkipOfAnEventThatIsBlockedMeanwhile_Rule4(t *testing.T) {
	for name, before := range map[string]func(*testing.T, operated, dedup.Key){
		"claimed": func(t *testing.T, s operated, key dedup.Key) { claim(t, s, key, dedupOrigin(0)) },
		"unknown": func(*testing.T, operated, dedup.Key) {},
	} {
		t.Run(name, func(t *testing.T) {
			s, known := memory()
			key := inScope("order", "head")
			before(t, s, key)
			var part dedup.DeferredPartition
			fail := func() { part = deferEvent(t, s, key, inScope("order", "second")) }
			var out, said bytes.Buffer
			a := &app{
				stdin: strings.NewReader("y\n"), stdout: &out, known: known,
				stderr: io.MultiWriter(&said, &onWrite{substring: "Go on?", then: fail}),
			}
			args := []string{
				"event", "skip", "head", "--type", "order", "--topic", "orders", "-G", "billing", "--store", inMemory,
			}
			require.Zero(t, a.run(t.Context(), args), &said)
			first, err := s.First(t.Context(), part, "customer-1", 1)
			require.NoError(t, err)
			require.Equal(t, "second", first[0].Key.ID, "the key stands still: %s", &out)
			require.Contains(t, out.String(), "1 behind it go on")
		})
	}
}

// A skip that died before it took the event out of its queue is repeated (rule 4).
func TestRepeatOfASkip_Rule4(t *testing.T) {
	s, known := memory()
	key := inScope("order", "head")
	part := deferEvent(t, s, key, inScope("order", "second"))
	require.NoError(t, s.Discard(t.Context(), key, time.Hour, "and then it died"))
	event := func(verb string, more ...string) ran {
		args := []string{
			"event", verb, "head", "--type", "order", "--topic", "orders", "-G", "billing", "--store", inMemory,
		}
		return commandWith(t, known, "", append(args, more...)...)
	}
	require.Contains(t, event("get").ok(t), "idem event skip takes it out of its queue")
	require.Contains(t, event("skip", "-y").ok(t), "1 behind it go on")
	first, err := s.First(t.Context(), part, "customer-1", 1)
	require.NoError(t, err)
	require.Equal(t, "second", first[0].Key.ID)
}

// skip of a handled event is refused, and so on record: else a person repeats the effect by hand.
// The event only leaves its queue. This holds too if it is handled while the person reads (rule 4).
func TestSkipOfAHandledEventThatIsDeferred_Rule4(t *testing.T) {
	for _, meanwhile := range []bool{false, true} {
		s, known := memory()
		key := inScope("order", "head")
		part := deferEvent(t, s, key, inScope("order", "second"))
		handle := func() { finish(t, s, claim(t, s, key, dedupOrigin(0)), "") }
		args := []string{
			"event", "skip", "head", "--type", "order", "--topic", "orders", "-G", "billing", "--store", inMemory,
		}
		heads := func(id string) {
			first, err := s.First(t.Context(), part, "customer-1", 1)
			require.NoError(t, err)
			require.Equal(t, id, first[0].Key.ID)
		}
		if !meanwhile {
			handle()
			dry := commandWith(t, known, "", append(args, "--dry-run")...)
			dry.failed(t, exitFound, "handled already", "takes it out of its queue")
			heads("head")
			asked := commandWith(t, known, "n\n", args...)
			asked.failed(t, exitFound, "it is only taken out of its queue")
			heads("head")
		}
		var out, said bytes.Buffer
		a := &app{stdin: strings.NewReader("y\n"), stdout: &out, stderr: &said, known: known}
		if meanwhile {
			a.stderr = io.MultiWriter(&said, &onWrite{substring: "Go on?", then: handle})
		}
		require.Equal(t, exitFound, a.run(t.Context(), args), "%s%s", &out, &said)
		require.Contains(t, said.String(), "handled already")
		require.Contains(t, said.String(), "no longer deferred; 1 behind it go on")
		require.NotContains(t, out.String(), "skipped")
		r := ran{stderr: said.String()}
		require.Equal(t, "refused", r.audits(t)[0]["outcome"])
		heads("second")
	}
}

// An event that waits behind a blocked one, or for its time, does not run at once after a release,
// and the command does not say so (rule 4).
func TestReleaseOfAnEventThatWaits_Rule4(t *testing.T) {
	s, known := memory()
	deferredEvents(t, s)
	out := commandWith(t, known, "", "event", "release", "second", "--type", "order", "-G", "billing", "--store", inMemory, "-y").ok(t)
	require.Contains(t, out, `it waits behind "first", which was given up`)
}
