package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/internal/events"
	"github.com/idem-go/idem/internal/testenv"
)

func onMemory(args ...string) []string {
	return append([]string{"event"}, append(args, "--store", inMemory, "-G", "billing")...)
}

// event get explains every state and the next step of the event.
func TestEventGet(t *testing.T) {
	s, known := memory()
	ctx := t.Context()
	finish(t, s, claim(t, s, inScope("order", "done"), dedupOrigin(1)), "")
	finish(t, s, claim(t, s, inScope("order", "dead"), dedupOrigin(2)), "no such account")
	claim(t, s, inScope("order", "claimed"), dedupOrigin(3))
	doubt := claim(t, s, inScope("order", "released"), dedupOrigin(4))
	require.NoError(t, s.Release(ctx, []dedup.Release{{Claim: doubt, Outcome: dedup.Unknown, Retention: time.Hour}}))
	moved := claim(t, s, inScope("order", "waiting"), dedupOrigin(5))
	require.NoError(t, s.Complete(ctx, []dedup.Completion{{Claim: moved, Retention: time.Hour, Retry: 1}}))
	require.NoError(t, s.Discard(ctx, inScope("order", "discarded"), time.Hour, "the customer is gone"))

	for id, want := range map[string][]string{
		"done":      {"state", "done", "duplicates", "orders/2 offset 1 of 2026-01-02 03:04:05Z"},
		"dead":      {"dead", "no such account", "idem dlq replay"},
		"claimed":   {"claimed", "being handled", "orders/2 offset 3"},
		"released":  {"released, in doubt", "as uncertain"},
		"waiting":   {"waiting", "generation 0, attempt 1"},
		"discarded": {"dead, given up by a person", "the customer is gone", "for good"},
	} {
		out := commandWith(t, known, "", onMemory("get", id, "--type", "order")...).ok(t)
		for _, w := range append(want, "memory", "billing") {
			require.Contains(t, out, w, id)
		}
		var report eventReport
		commandWith(t, known, "", onMemory("get", id, "--type", "order", "-o", "json")...).json(t, &report)
		require.Len(t, report.Events, 1)
		require.Equal(t, id, report.Events[0].ID)
		require.Equal(t, id == "done" || id == "discarded", report.Events[0].Settled, id)
	}
	r := commandWith(t, known, "", onMemory("get", "other", "--type", "order", "-o", "json")...)
	r.failed(t, exitFound, "not known", `"other"`, `"billing"`, "retention")
	require.JSONEq(t, `{"events": []}`, r.stdout)
}

// The answer of the store does not depend on Kafka: event get shows it, and then the failure.
func TestEventGetWithoutDeadLetters(t *testing.T) {
	s, known := memory()
	finish(t, s, claim(t, s, inScope("order", "1"), dedupOrigin(1)), "")
	get := onMemory("get", "1", "--type", "order", "--dead-letters", "-o", "json")
	away := commandWith(t, known, "", append(get, "--brokers", testenv.FreeAddr(t))...)
	away.failed(t, exitFailure, "kafka")
	var report eventReport
	require.NoError(t, json.Unmarshal([]byte(away.stdout), &report))
	require.Len(t, report.Events, 1)
	require.Nil(t, report.DeadLetters, "none were read")

	cluster, brokers := fakeKafka(t, 1, kfake.SeedTopics(1, "orders", "orders.billing.dlq"))
	cluster.ControlKey(int16(kmsg.ListOffsets), func(req kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		resp := req.ResponseKind().(*kmsg.ListOffsetsResponse)
		for _, asked := range req.(*kmsg.ListOffsetsRequest).Topics {
			one := kmsg.ListOffsetsResponseTopic{Topic: asked.Topic}
			for _, p := range asked.Partitions {
				one.Partitions = append(one.Partitions, kmsg.ListOffsetsResponseTopicPartition{
					Partition: p.Partition, ErrorCode: kerr.TopicAuthorizationFailed.Code,
				})
			}
			resp.Topics = append(resp.Topics, one)
		}
		return resp, nil, true
	})
	refused := commandWith(t, known, "", append(get, brokers[:2]...)...)
	refused.failed(t, exitFailure, "not authorized")
	require.NoError(t, json.Unmarshal([]byte(refused.stdout), &report))
	require.Len(t, report.Events, 1)
	require.Nil(t, report.DeadLetters, "none were read")
}

// Without a type all types are looked through, and an event of several types is not confused with
// another.
func TestEventOfSeveralTypes(t *testing.T) {
	s, known := memory()
	finish(t, s, claim(t, s, inScope("order", "1"), dedupOrigin(1)), "")
	finish(t, s, claim(t, s, inScope("payment", "1"), dedupOrigin(2)), "")
	out := commandWith(t, known, "", onMemory("get", "1")...).ok(t)
	require.Contains(t, out, "order")
	require.Contains(t, out, "payment")
	for _, verb := range []string{"release", "skip"} {
		commandWith(t, known, "", onMemory(verb, "1", "-y")...).failed(t, exitUsage, `--type "order"`, `--type "payment"`)
	}
	require.Equal(t, 2, s.Len())
	commandWith(t, known, "", onMemory("release", "1", "--type", "order", "-y")...).ok(t)
	require.Equal(t, dedup.Done, toldNext(t, s, inScope("payment", "1")))
	require.Equal(t, dedup.Fresh, toldNext(t, s, inScope("order", "1")))
}

// With --source the ID is the one that handlers see.
func TestEventOfCloudEvents(t *testing.T) {
	s, known := memory()
	for _, source := range []string{"/shop", "/" + strings.Repeat("long", 70)} {
		id, err := idem.StandardID().Extract(&idem.Message{Headers: []idem.Header{
			{Key: "ce_source", Value: []byte(source)}, {Key: "ce_id", Value: []byte("1")},
		}})
		require.NoError(t, err)
		finish(t, s, claim(t, s, inScope("order", id), dedupOrigin(1)), "")
		commandWith(t, known, "", onMemory("get", "1", "--type", "order", "--source", source)...).ok(t)
	}
	commandWith(t, known, "", onMemory("get", "1", "--type", "order")...).failed(t, exitFound, "--source")
}

// release forgets: the next delivery is fresh, and the audit line names the user.
func TestEventRelease(t *testing.T) {
	s, known := memory()
	key := inScope("order", "1")
	finish(t, s, claim(t, s, key, dedupOrigin(7)), "")

	r := commandWith(t, known, "", onMemory("release", "1", "--type", "order")...)
	r.failed(t, exitFound, "done", "a second time", "Go on?", "not confirmed")
	require.Equal(t, "refused", r.audits(t)[0]["outcome"])
	require.Equal(t, dedup.Done, toldNext(t, s, key))

	r = commandWith(t, known, "y\n", onMemory("release", "1", "--type", "order", "--reason", "ticket 12")...)
	require.Contains(t, r.ok(t), "idem rewind -G billing --topic orders --to 2026-01-02T03:04:05Z (partition 2, offset 7)")
	line := r.audits(t)[0]
	for field, want := range map[string]any{
		"audit": "event release", "outcome": "done", "event_id": "1", "type": "order", "scope": "billing", "store": "memory",
		"before": "done", "reason": "ticket 12",
	} {
		require.Equal(t, want, line[field], field)
	}
	require.NotEmpty(t, line["time"])
	require.NotEmpty(t, line["user"])
	require.Equal(t, dedup.Fresh, toldNext(t, s, key))

	r = commandWith(t, known, "", onMemory("release", "1", "--type", "order", "-y")...)
	r.failed(t, exitFound, "is being handled", "lease")
	require.Equal(t, "refused", r.audits(t)[0]["outcome"])
	r = commandWith(t, known, "", onMemory("release", "2", "--type", "order", "-y")...)
	r.failed(t, exitFound, "not known")
	require.Equal(t, "2", r.audits(t)[0]["event_id"])
}

// skip gives up events, also those that the store does not know yet, but never handled ones.
func TestEventSkip(t *testing.T) {
	s, known := memory()
	finish(t, s, claim(t, s, inScope("order", "done"), dedupOrigin(1)), "")
	finish(t, s, claim(t, s, inScope("order", "dead"), dedupOrigin(2)), "why not")
	held := claim(t, s, inScope("order", "held"), dedupOrigin(3))

	commandWith(t, known, "", onMemory("skip", "dead")...).failed(t, exitFound, "not confirmed")
	commandWith(t, known, "", onMemory("skip", "done", "-y")...).failed(t, exitFound, "handled already")
	for _, id := range []string{"dead", "held", "unknown"} {
		r := commandWith(t, known, "", onMemory("skip", id, "--type", "order", "-y", "--reason", "by hand", "-o", "json")...)
		r.ok(t)
		require.Equal(t, "event skip", r.audits(t)[0]["audit"])
		records, err := s.Inspect(t.Context(), inScope("order", id))
		require.NoError(t, err)
		require.True(t, records[0].Discarded(), id)
		require.Equal(t, dedup.ReasonDiscarded+"by hand", records[0].Reason)
		require.Equal(t, dedup.Dead, toldNext(t, s, inScope("order", id)), id)
	}
	err := s.Complete(t.Context(), []dedup.Completion{{Claim: held, Retention: time.Hour}})
	require.ErrorIs(t, err, dedup.ErrClaimLost)
	commandWith(t, known, "", onMemory("skip", "nobody", "-y")...).failed(t, exitFound, "not known")
}

// A service that is away is exit code 3, and on record as failed.
func TestStoreAway(t *testing.T) {
	s, known := memory()
	known[inMemory].store = away{s}
	for _, verb := range []string{"release", "skip"} {
		r := commandWith(t, known, "", onMemory(verb, "1", "--type", "order", "-y")...)
		r.failed(t, exitFailure, "store unavailable")
		require.Equal(t, "failed", r.audits(t)[0]["outcome"])
	}
	commandWith(t, known, "", onMemory("get", "1", "--type", "order")...).failed(t, exitFailure, "store unavailable")
	commandWith(t, known, "", onMemory("list")...).failed(t, exitUsage, "Postgres")
}

// away is a store that cannot be reached.
type away struct{ dedup.Store }

func (away) Inspect(context.Context, ...dedup.Key) ([]dedup.Record, error) {
	return nil, dedup.ErrUnavailable
}
func (away) Forget(context.Context, dedup.Key) error { return dedup.ErrUnavailable }
func (away) Discard(context.Context, dedup.Key, time.Duration, string) error {
	return dedup.ErrUnavailable
}
func (away) Import(context.Context, []dedup.Imported) (int, error) { return 0, dedup.ErrUnavailable }
func (away) Reopen(context.Context, dedup.Key) (dedup.Position, error) {
	return dedup.Position{}, dedup.ErrUnavailable
}

// A store that cannot search asks for the type, or takes those that the scope has registered.
func TestEventWithoutTypeOnAStoreThatCannotSearch(t *testing.T) {
	s, known := memory()
	finish(t, s, claim(t, s, inScope("order", "1"), dedupOrigin(1)), "")
	known[inMemory].store = &unlisted{Store: s, Operator: s}
	commandWith(t, known, "", onMemory("get", "1")...).failed(t, exitUsage, "--type")
	known[inMemory].store = &typed{unlisted{Store: s, Operator: s}, []string{"invoice", "order"}}
	require.Contains(t, commandWith(t, known, "", onMemory("get", "1")...).ok(t), "order")
	known[inMemory].store = &typed{unlisted{Store: s, Operator: s}, nil}
	commandWith(t, known, "", onMemory("get", "1")...).failed(t, exitUsage, "--type")
}

type unlisted struct {
	dedup.Store
	dedup.Operator
}

type typed struct {
	unlisted
	types []string
}

func (s *typed) Types(context.Context, string) ([]string, error) { return s.types, nil }

// event list chooses by state and age, and reports whether there are more events.
func TestEventList(t *testing.T) {
	s, known := memory()
	for i := range 5 {
		finish(t, s, claim(t, s, inScope("order", fmt.Sprint("done-", i)), dedupOrigin(1)), "")
	}
	finish(t, s, claim(t, s, inScope("order", "dead"), dedupOrigin(2)), strings.Repeat("long \x1b", 50))
	claim(t, s, inScope("order", "claimed"), dedupOrigin(3))
	for status, want := range map[string][]string{
		"failed": {"dead"}, "dead": {"dead"}, "pending": {"claimed"}, "claimed": {"claimed"}, "stuck": {}, "waiting": {}, "failed,pending": {"dead", "claimed"},
		"done": {"done-0", "done-1", "done-2", "done-3", "done-4"},
	} {
		var all []listed
		commandWith(t, known, "", onMemory("list", "--status", status, "-o", "json")...).json(t, &all)
		ids := []string{}
		for _, l := range all {
			ids = append(ids, l.ID)
		}
		require.ElementsMatch(t, want, ids, status)
	}
	r := commandWith(t, known, "", onMemory("list", "--limit", "2")...)
	require.Equal(t, 3, strings.Count(r.ok(t), "\n"))
	require.Contains(t, r.stderr, "more than 2")
	r = commandWith(t, known, "", onMemory("list", "--status", "failed")...)
	require.Contains(t, r.ok(t), "...")
	require.NotContains(t, r.stdout, "\x1b")
	require.Equal(t, 1, strings.Count(commandWith(t, known, "", onMemory("list", "--until", "1h")...).ok(t), "\n"), "all of them are young")
	commandWith(t, known, "", onMemory("list", "--limit", "7")...).ok(t)
}

// deferEvent puts events of one Kafka key into the store, the first of them given up.
func deferEvent(t *testing.T, deferrer dedup.Deferrer, keys ...dedup.Key) dedup.DeferredPartition {
	t.Helper()
	part := dedup.DeferredPartition{Scope: "billing", Topic: "orders", Partition: 2}
	var events []dedup.Deferred
	for i, key := range keys {
		events = append(events, dedup.Deferred{
			Key: key, Queue: "customer-1", Position: dedup.Position{Retry: 1}, Origin: dedupOrigin(int64(i)), Data: []byte("{}"),
		})
	}
	require.NoError(t, deferrer.Defer(t.Context(), part, events))
	events[0].Blocked = true
	moved, err := deferrer.Postpone(t.Context(), part, events[0])
	require.NoError(t, err)
	require.True(t, moved)
	return part
}

// deferredEvents are three events of one key of which the first was given up (rule 4).
func deferredEvents(t *testing.T, s operated) (part dedup.DeferredPartition) {
	t.Helper()
	first, second, third := inScope("order", "first"), inScope("order", "second"), inScope("order", "third")
	finish(t, s, claim(t, s, first, dedupOrigin(0)), "no such account")
	for i, key := range []dedup.Key{second, third} {
		c := claim(t, s, key, dedupOrigin(int64(i+1)))
		require.NoError(t, s.Complete(t.Context(), []dedup.Completion{{Claim: c, Retention: time.Hour, Retry: 1}}))
	}
	for i := range 20 { // other queues, before and behind it
		other := dedup.Deferred{Key: inScope("order", fmt.Sprint("other-", i)), Queue: fmt.Sprint(string(rune('a'+i)), "-customer"), Origin: dedupOrigin(9)}
		require.NoError(t, s.Defer(t.Context(), dedup.DeferredPartition{Scope: "billing", Topic: "orders", Partition: 2}, []dedup.Deferred{other}))
	}
	return deferEvent(t, s, first, second, third)
}

// operated is a store with all that the verbs of events use.
type operated interface {
	dedup.Store
	dedup.Operator
	dedup.Deferrer
}

// event get shows that an event is deferred, the event that it waits for, and how many wait with
// it.
func TestDeferredGet_Rule4(t *testing.T) {
	s, known := memory()
	deferredEvents(t, s)
	checkDeferredGet(t, known, inMemory)
}

func checkDeferredGet(t *testing.T, known map[string]*openedStore, url string) {
	t.Helper()
	get := func(id string) (events.View, string) {
		args := []string{"event", "get", id, "--type", "order", "-G", "billing", "--store", url}
		var report eventReport
		commandWith(t, known, "", append(args, "-o", "json")...).json(t, &report)
		require.Len(t, report.Events, 1)
		return report.Events[0], commandWith(t, known, "", args...).ok(t)
	}
	first, text := get("first")
	require.Equal(t, &events.DeferredView{Topic: "orders", Partition: 2, Queue: "customer-1", Head: true, HeadID: "first", Blocked: true, Others: 2}, first.Deferred)
	require.Contains(t, text, "2 behind it, blocked")
	third, text := get("third")
	require.Equal(t, &events.DeferredView{Topic: "orders", Partition: 2, Queue: "customer-1", HeadID: "first", Blocked: true, Others: 2}, third.Deferred)
	require.Contains(t, text, `waits behind "first", which was given up`)
}

// skip of the first of a queue lets those behind it go on.
func TestDeferredSkip_Rule4(t *testing.T) {
	s, known := memory()
	checkDeferredSkip(t, known, inMemory, s, deferredEvents(t, s))
}

func checkDeferredSkip(t *testing.T, known map[string]*openedStore, url string, s operated, part dedup.DeferredPartition) {
	t.Helper()
	r := commandWith(t, known, "", "event", "skip", "first", "--type", "order", "-G", "billing", "--store", url, "-y")
	require.Contains(t, r.ok(t), "2 behind it go on")
	require.Equal(t, "orders/2", r.audits(t)[0]["deferred"])
	first, err := s.First(t.Context(), part, "customer-1", 1)
	require.NoError(t, err)
	require.Len(t, first, 1)
	head := first[0]
	require.Equal(t, "second", head.Key.ID)
	require.False(t, head.Blocked)
	require.LessOrEqual(t, head.Wait, time.Duration(0))
	require.Equal(t, dedup.Dead, toldNext(t, s, inScope("order", "first")))
}

// release of the first of a queue lets it run again, and a repeat finishes an interrupted release.
func TestDeferredRelease_Rule4(t *testing.T) {
	s, known := memory()
	checkDeferredRelease(t, known, inMemory, s, deferredEvents(t, s))
}

func checkDeferredRelease(t *testing.T, known map[string]*openedStore, url string, s operated, part dedup.DeferredPartition) {
	t.Helper()
	require.NoError(t, s.Forget(t.Context(), inScope("order", "first"))) // and then it died
	args := []string{"event", "release", "first", "-G", "billing", "--store", url, "-y", "--type", "order", "--topic", "orders"}
	require.Contains(t, commandWith(t, known, "", args...).ok(t), "deferred, first of its key")
	due, _, err := s.Due(t.Context(), part, 100)
	require.NoError(t, err)
	var head *dedup.Deferred
	for i := range due {
		if due[i].Key.ID == "first" {
			head = &due[i]
		}
	}
	require.NotNil(t, head, "it is not due")
	require.False(t, head.Blocked)
	require.Equal(t, dedup.Position{Generation: 1}, head.Position)
	require.Equal(t, []byte("{}"), head.Data)
	reqs := []dedup.Request{{Key: head.Key, Position: head.Position, Origin: head.Origin, Retention: time.Hour}}
	var answers [1]dedup.Answer
	require.NoError(t, s.Claim(t.Context(), dedup.NewToken(), time.Minute, reqs, answers[:]))
	require.Equal(t, dedup.Fresh, answers[0].Verdict)
}
