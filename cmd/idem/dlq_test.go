package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/deadletter"
	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/dedup/memstore"
	"github.com/idem-go/idem/internal/deadletters"
)

func decodeJSON[T any](t *testing.T, from io.Reader) (v T) {
	t.Helper()
	text, err := io.ReadAll(from)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, &v), "%s", text)
	return v
}

// A dead event is reopened, published to the group's own retry topic, and runs once, however many
// copies come (rule 6, T-02).
func TestReplayRunsDeadEventsOnce(t *testing.T) {
	w := newDeadLetterWorld(t)
	w.fail(w.events("a", 20)...)
	require.Len(t, w.deadLetters(), 20)
	require.Empty(t, w.copies())

	got, said := w.replay(deadletters.Filter{}, replayFlags{}, deadletters.Decisions{})
	require.Equal(t, 20, got.Replayed)
	require.Equal(t, map[deadletters.Verdict]int{deadletters.SeenDead: 20}, got.Verdicts)
	require.Equal(t, "done", got.Outcome)
	require.Contains(t, said, `"audit":"dlq replay"`)
	require.Contains(t, said, "has no members now")
	for id, positions := range w.copiesByID() {
		require.Equal(t, []string{"1"}, positions, id)
	}

	// Not run yet: the same position again, and the gate lets one of the copies run.
	again, _ := w.replay(deadletters.Filter{}, replayFlags{}, deadletters.Decisions{})
	require.Equal(t, map[deadletters.Verdict]int{deadletters.SeenReopened: 20}, again.Verdicts)
	for id, positions := range w.copiesByID() {
		require.Equal(t, []string{"1", "1"}, positions, id)
	}
	var ran applied
	w.handle(ran.run, w.copies()...)
	require.Len(t, ran.runs, 20)
	for id, n := range ran.runs {
		require.Equal(t, 1, n, id)
	}

	// Done: no copy is published any more.
	done, _ := w.replay(deadletters.Filter{}, replayFlags{}, deadletters.Decisions{})
	require.Equal(t, map[deadletters.Verdict]int{deadletters.SeenDone: 20}, done.Verdicts)
	require.Zero(t, done.Replayed)
	require.Len(t, w.copies(), 40)
}

// The verdict of plan for each state of the store (rule 34).
func TestPlanVerdicts(t *testing.T) {
	w := newDeadLetterWorld(t)
	ctx := t.Context()
	operator := w.store.(dedup.Operator)

	w.fail(w.event("dead", ""), w.event("done", ""), w.event("reopened", ""), w.event("discarded", ""), w.event("pending", ""),
		w.event("unknown", ""), w.event("moved", ""))
	w.fail(w.event("noid", ""))
	broken := w.event("", "")
	broken.Value = []byte(`{"type":"paid"}`)
	w.fail(broken)
	require.NoError(t, w.producer.Produce(ctx, &idem.Message{Topic: "orders.g.dlq", Value: []byte("by hand")}))

	for _, id := range []string{"done", "reopened", "pending", "moved"} {
		_, err := operator.Reopen(ctx, w.key(id))
		require.NoError(t, err)
	}
	claim := func(id string) dedup.Claim {
		r := dedup.Request{Key: w.key(id), Position: dedup.Position{Generation: 1}, Retention: time.Hour}
		answers, token := make([]dedup.Answer, 1), dedup.NewToken()
		require.NoError(t, w.store.Claim(ctx, token, time.Minute, []dedup.Request{r}, answers))
		require.Equal(t, dedup.Fresh, answers[0].Verdict)
		return r.Held(token, answers[0])
	}
	require.NoError(t, w.store.Complete(ctx, []dedup.Completion{{Claim: claim("done"), Retention: time.Hour}}))
	require.NoError(t, w.store.Complete(ctx, []dedup.Completion{{Claim: claim("moved"), Retention: time.Hour, Retry: 1}}))
	claim("pending")
	require.NoError(t, operator.Discard(ctx, w.key("discarded"), time.Hour, "customer is gone"))
	require.NoError(t, operator.Forget(ctx, w.key("unknown")))

	rows := w.verdicts(deadletters.Filter{}, deadletters.Decisions{})
	require.Equal(t, map[string][]deadletters.Verdict{
		"dead": {deadletters.SeenDead}, "done": {deadletters.SeenDone}, "reopened": {deadletters.SeenReopened}, "discarded": {deadletters.SeenDiscarded}, "pending": {deadletters.SeenPending},
		"unknown": {deadletters.SeenNever}, "moved": {deadletters.SeenWaiting}, "noid": {deadletters.SeenDead}, "": {deadletters.SeenNoID, deadletters.SeenForeign},
	}, byEvent(rows))
	for _, r := range rows {
		if r.Verdict == deadletters.SeenDiscarded {
			require.Equal(t, "customer is gone", r.Note)
		}
	}
	require.Empty(t, w.copies(), "plan publishes nothing")
}

// Dead letters of one event that differ are left alone until one is chosen; equal ones are one
// (rule 6).
func TestReplayWantsAChoiceBetweenPayloads(t *testing.T) {
	w := newDeadLetterWorld(t)
	w.fail(w.event("twin", ""), w.event("twin", ""), w.event("torn", `,"n":1`), w.event("torn", `,"n":2`), w.event("one", ""))
	require.Len(t, w.deadLetters(), 5)

	rows := w.verdicts(deadletters.Filter{}, deadletters.Decisions{})
	require.Equal(t, map[string][]deadletters.Verdict{
		"twin": {deadletters.SeenDead, deadletters.SeenInFlight}, "torn": {deadletters.SeenOther, deadletters.SeenOther}, "one": {deadletters.SeenDead},
	}, byEvent(rows))
	// A filter that finds only one of them does not choose.
	require.Equal(t, map[string][]deadletters.Verdict{"torn": {deadletters.SeenOther}},
		byEvent(w.verdicts(deadletters.Filter{ID: "torn", Classes: []string{"conflict"}}, deadletters.Decisions{})))

	got, _ := w.replay(deadletters.Filter{}, replayFlags{}, deadletters.Decisions{})
	require.Equal(t, 2, got.Replayed)
	require.Len(t, got.Attention, 2)
	require.Equal(t, deadletters.SeenOther, got.Attention[0].Verdict)
	require.Equal(t, map[string][]string{"twin": {"1"}, "one": {"1"}}, w.copiesByID())

	for record, r := range rows {
		if r.ID == "torn" && r.Class == "conflict" {
			at, err := parsePlace(record)
			require.NoError(t, err)
			got, _ := w.replay(deadletters.Filter{At: []deadletters.Place{at}}, replayFlags{}, deadletters.Decisions{})
			require.Equal(t, 1, got.Replayed)
		}
	}
	for _, m := range w.copies() {
		if headerText(m, deadletter.HeaderEventID) == "torn" {
			require.Contains(t, string(m.Value), `"n":2`)
		}
	}
	require.Equal(t, []string{"1"}, w.copiesByID()["torn"])
}

// A dead letter without identity is published once, and remembered (T-10). If it comes back, it is
// a new one, and stays.
func TestReplayRemembersDeadLettersWithoutIdentity(t *testing.T) {
	w := newDeadLetterWorld(t)
	broken := w.event("", "")
	broken.Value = []byte(`not json`)
	w.fail(broken)
	require.NoError(t, w.producer.Produce(t.Context(), w.deadLetters()[0])) // an acknowledgement was lost
	require.Len(t, w.deadLetters(), 2)
	settled := func() (n int) {
		for _, r := range w.verdicts(deadletters.Filter{}, deadletters.Decisions{}) {
			if (&deadletters.Judged{Verdict: r.Verdict}).Settled(false) {
				n++
			}
		}
		return n
	}
	require.Zero(t, settled())
	got, _ := w.replay(deadletters.Filter{}, replayFlags{}, deadletters.Decisions{})
	require.Equal(t, map[deadletters.Verdict]int{deadletters.SeenNoID: 1, deadletters.SeenReplayed: 1}, got.Verdicts)
	again, _ := w.replay(deadletters.Filter{}, replayFlags{}, deadletters.Decisions{})
	require.Equal(t, map[deadletters.Verdict]int{deadletters.SeenReplayed: 2}, again.Verdicts)
	require.Len(t, w.copies(), 1)
	require.Equal(t, "not json", string(w.copies()[0].Value))
	require.Empty(t, headerText(w.copies()[0], deadletter.HeaderGeneration))
	require.Equal(t, 2, settled())

	w.fail(w.copies()...) // the handler was not mended
	require.Len(t, w.deadLetters(), 3)
	require.Equal(t, 2, settled())
	got, _ = w.replay(deadletters.Filter{}, replayFlags{}, deadletters.Decisions{})
	require.Equal(t, map[deadletters.Verdict]int{deadletters.SeenNoID: 1, deadletters.SeenReplayed: 2}, got.Verdicts)
	require.Len(t, w.copies(), 2)
}

// An event that comes back each time is not reopened for ever (T-08).
func TestReplayStopsAtTheThirdGeneration(t *testing.T) {
	w := newDeadLetterWorld(t)
	w.fail(w.event("e", ""))
	for range deadletters.MaxGenerations {
		before := len(w.copies())
		got, _ := w.replay(deadletters.Filter{}, replayFlags{}, deadletters.Decisions{})
		require.Equal(t, 1, got.Replayed, "%+v", got)
		copies := w.copies()
		require.Len(t, copies, before+1)
		for _, m := range copies {
			w.fail(m)
		}
	}
	got, _ := w.replay(deadletters.Filter{}, replayFlags{}, deadletters.Decisions{})
	require.Zero(t, got.Replayed)
	require.Equal(t, 1+deadletters.MaxGenerations, got.Verdicts[deadletters.SeenOften], "%+v", got)
	got, _ = w.replay(deadletters.Filter{}, replayFlags{}, deadletters.Decisions{Again: true})
	require.Equal(t, 1, got.Replayed)
	// The copy has not run yet: no second decision is needed.
	got, _ = w.replay(deadletters.Filter{}, replayFlags{}, deadletters.Decisions{})
	require.Equal(t, 1, got.Replayed)
	require.Equal(t, []string{"1", "2", "3", "4", "4"}, w.copiesByID()["e"])
}

// A person decides that an event without a record runs, however old (rule 8). Otherwise it could
// come back as too old.
func TestReplayOfForgottenEvents(t *testing.T) {
	w := newDeadLetterWorld(t)
	w.fail(w.event("e", ""))
	require.NoError(t, w.store.(dedup.Operator).Forget(t.Context(), w.key("e")))
	got, _ := w.replay(deadletters.Filter{}, replayFlags{}, deadletters.Decisions{})
	require.Equal(t, map[deadletters.Verdict]int{deadletters.SeenNever: 1}, got.Verdicts)
	got, _ = w.replay(deadletters.Filter{}, replayFlags{}, deadletters.Decisions{Forgotten: true})
	require.Equal(t, map[deadletters.Verdict]int{deadletters.SeenNever: 1}, got.Verdicts)
	require.Equal(t, []string{"", "1"}, w.copiesByID()["e"])
	var ran applied
	w.handle(ran.run, w.copies()[0], w.copies()[1])
	require.Equal(t, map[string]int{"e": 1}, ran.runs)
}

// A dead letter without its value is not replayed. The note names the place of the record (rule
// 45).
func TestReplaySkipsOmittedValues(t *testing.T) {
	w := newDeadLetterWorld(t)
	w.fail(w.event("e", ""))
	l := w.deadLetters()[0]
	l.Value, l.Headers = nil, append(l.Headers, idem.Header{Key: deadletter.HeaderValueOmitted, Value: []byte("99")})
	l.Time = time.Now()
	require.NoError(t, w.producer.Produce(t.Context(), l))
	require.Equal(t, map[string][]deadletters.Verdict{"e": {deadletters.SeenDead, deadletters.SeenOmitted}}, byEvent(w.verdicts(deadletters.Filter{}, deadletters.Decisions{})))
	got, _ := w.replay(deadletters.Filter{}, replayFlags{}, deadletters.Decisions{})
	require.Equal(t, 1, got.Replayed)
	require.Contains(t, got.Attention[0].Note, "fetch it from orders/")
}

// Without a retry topic no change is made, and the error names the missing topic.
func TestReplayWithoutRetryTopic(t *testing.T) {
	w := newDeadLetterWorld(t)
	w.fail(w.event("e", ""))
	admin, err := sarama.NewClusterAdminFromClient(w.client)
	require.NoError(t, err)
	require.NoError(t, admin.DeleteTopic("orders.g.retry"))
	s := w.open()
	err = s.replay(t.Context(), w.producer, deadletters.Filter{}, replayFlags{})
	require.ErrorContains(t, err, "there is no topic orders.g.retry")
	require.ErrorContains(t, err, "kafka-topics.sh --create")
	require.Contains(t, s.err.String(), `"outcome":"failed"`)
	records, err := w.store.(dedup.Operator).Inspect(t.Context(), w.key("e"))
	require.NoError(t, err)
	require.Equal(t, dedup.GivenUp, records[0].State, "not reopened")
}

// failingProducer fails when its turn has come.
type failingProducer struct {
	idem.Producer
	left   int
	sent   bool // the record reaches the topic although the answer does not
	failed int
}

func (p *failingProducer) Produce(ctx context.Context, m ...*idem.Message) error {
	if p.left--; p.left >= 0 {
		return p.Producer.Produce(ctx, m...)
	}
	p.failed++
	if p.sent {
		if err := p.Producer.Produce(ctx, m...); err != nil {
			return err
		}
	}
	return errors.New("connection lost")
}

// If a request or an acknowledgement is lost, the next replay goes on at the same positions (T-02).
func TestReplayIsRepeatable(t *testing.T) {
	for _, sent := range []bool{false, true} {
		w := newDeadLetterWorld(t)
		w.fail(w.events("e", 10)...)
		for i := 0; ; i++ {
			s := w.open()
			p := &failingProducer{Producer: w.producer, left: i, sent: sent}
			err := s.replay(t.Context(), p, deadletters.Filter{}, replayFlags{})
			if p.failed == 0 {
				require.NoError(t, err)
				break
			}
			require.ErrorContains(t, err, "connection lost")
			require.Contains(t, s.err.String(), `"outcome":"failed"`)
			require.Contains(t, s.err.String(), fmt.Sprintf(`"replayed":%d`, i))
		}
		copies := w.copiesByID()
		require.Len(t, copies, 10)
		for id, positions := range copies {
			for _, p := range positions {
				require.Equal(t, "1", p, id)
			}
		}
		var ran applied
		w.handle(ran.run, w.copies()...)
		require.Len(t, ran.runs, 10)
		for id, n := range ran.runs {
			require.Equal(t, 1, n, id)
		}
	}
}

// An interrupted replay finishes the present dead letter, and reports its progress.
func TestReplayInterrupted(t *testing.T) {
	w := newDeadLetterWorld(t)
	w.fail(w.events("e", 10)...)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	s := w.open()
	p := produceFunc(func(ctx context.Context, m ...*idem.Message) error {
		cancel()
		return w.producer.Produce(ctx, m...)
	})
	err := s.replay(ctx, p, deadletters.Filter{}, replayFlags{})
	require.ErrorContains(t, err, "repeat the command")
	require.Contains(t, s.err.String(), `"outcome":"interrupted"`)
	got := decodeJSON[deadletters.Result](t, s.out)
	require.Equal(t, 1, got.Replayed)
	require.Len(t, w.copies(), 1)
}

type produceFunc func(ctx context.Context, m ...*idem.Message) error

func (f produceFunc) Produce(ctx context.Context, m ...*idem.Message) error { return f(ctx, m...) }

// --limit and --rate bound a replay.
func TestReplayBounds(t *testing.T) {
	w := newDeadLetterWorld(t)
	w.fail(w.events("e", 6)...)
	got, _ := w.replay(deadletters.Filter{}, replayFlags{limit: 2}, deadletters.Decisions{})
	require.Equal(t, 2, got.Replayed)
	require.Len(t, w.copies(), 2)
	var ran applied
	w.handle(ran.run, w.copies()...)
	began := time.Now()
	got, _ = w.replay(deadletters.Filter{}, replayFlags{limit: 4, rate: 20}, deadletters.Decisions{})
	require.Equal(t, 4, got.Replayed)
	require.GreaterOrEqual(t, time.Since(began), 150*time.Millisecond)
	require.Len(t, w.copiesByID(), 6)
}

// Without an answer no change is made.
func TestReplayAsks(t *testing.T) {
	w := newDeadLetterWorld(t)
	w.fail(w.event("e", ""))
	s := w.open()
	s.app.yes = false
	require.ErrorContains(t, s.replay(t.Context(), w.producer, deadletters.Filter{}, replayFlags{}), "not confirmed")
	require.Contains(t, s.err.String(), "orders.g.retry")
	require.Empty(t, w.copies())
}

// deferringStore keeps events in which one event is deferred.
type deferringStore struct {
	*memstore.Store
	deferred  dedup.Deferred
	postponed []dedup.Deferred
	lost      bool // the first Postpone fails
}

var partitionOfTest = dedup.DeferredPartition{Scope: "g", Topic: "orders", Partition: 1}

func (s *deferringStore) FindDeferred(_ context.Context, scope, topic string, key dedup.Key) (dedup.DeferredPartition, dedup.Deferred, bool, error) {
	return partitionOfTest, s.deferred, scope == "g" && topic == "orders" && key == s.deferred.Key, nil
}

func (s *deferringStore) Postpone(_ context.Context, part dedup.DeferredPartition, e dedup.Deferred) (bool, error) {
	if part != partitionOfTest {
		return false, errors.New("another lot")
	}
	if s.lost {
		s.lost = false
		return false, errors.New("connection lost")
	}
	s.deferred = e
	s.postponed = append(s.postponed, e)
	return true, nil
}

// An event that is deferred in the order of its Kafka key is not published: its owner takes it up
// (rule 4).
func TestReplayOfDeferredEvents(t *testing.T) {
	w := newDeadLetterWorld(t)
	w.fail(w.event("e", ""))
	store := &deferringStore{Store: w.store.(*memstore.Store), lost: true}
	store.deferred = dedup.Deferred{
		Key: w.key("e"), Queue: "key of e", Position: dedup.Position{Retry: 3}, Blocked: true, Wait: time.Hour, Data: []byte("kept"),
	}
	w.store = store
	require.Equal(t, map[string][]deadletters.Verdict{"e": {deadletters.SeenDeferred}}, byEvent(w.verdicts(deadletters.Filter{}, deadletters.Decisions{})))

	s := w.open()
	require.ErrorContains(t, s.replay(t.Context(), w.producer, deadletters.Filter{}, replayFlags{}), "connection lost")
	got, _ := w.replay(deadletters.Filter{}, replayFlags{}, deadletters.Decisions{})
	require.Equal(t, map[deadletters.Verdict]int{deadletters.SeenDeferred: 1}, got.Verdicts)
	require.Equal(t, []dedup.Deferred{{
		Key: w.key("e"), Queue: "key of e", Position: dedup.Position{Generation: 1}, Data: []byte("kept"),
	}}, store.postponed)

	got, _ = w.replay(deadletters.Filter{}, replayFlags{}, deadletters.Decisions{})
	require.Equal(t, map[deadletters.Verdict]int{deadletters.SeenWaiting: 1}, got.Verdicts)
	require.Len(t, store.postponed, 1)
	require.Empty(t, w.copies())
}

// Purge deletes up to the first dead letter that is not settled, in each partition (rule 34).
func TestPurge(t *testing.T) {
	w := newDeadLetterWorld(t)
	w.fail(w.events("e", 12)...)
	byPartition := map[int32][]string{}
	for _, m := range w.deadLetters() {
		byPartition[m.Partition] = append(byPartition[m.Partition], headerText(m, deadletter.HeaderEventID))
	}
	require.Greater(t, len(byPartition[0]), 3)
	require.Greater(t, len(byPartition[1]), 1)
	operator := w.store.(dedup.Operator)
	discard := func(ids ...string) {
		for _, id := range ids {
			require.NoError(t, operator.Discard(t.Context(), w.key(id), time.Hour, "no"))
		}
	}
	purge := func() (rows []purgeRow, said string) {
		s := w.open()
		require.NoError(t, s.purge(t.Context(), false))
		return decodeJSON[purgeView](t, s.out).Partitions, s.err.String()
	}
	_, said := purge()
	require.Contains(t, said, "no dead letters to delete")
	require.NotContains(t, said, "audit")

	discard(byPartition[0][0], byPartition[0][1], byPartition[0][3]) // the third one stays
	discard(byPartition[1]...)
	rows, said := purge()
	require.EqualValues(t, 2, rows[0].To)
	require.Equal(t, "0/2: dead", rows[0].StoppedBy)
	require.EqualValues(t, len(byPartition[1]), rows[1].To)
	require.Empty(t, rows[1].StoppedBy)
	require.Contains(t, said, `"audit":"dlq purge"`)

	var left []string
	for _, m := range w.deadLetters() {
		require.EqualValues(t, 0, m.Partition)
		left = append(left, headerText(m, deadletter.HeaderEventID))
	}
	require.Equal(t, byPartition[0][2:], left)
}

// ls and show print the dead letters. The value is shown only on request, and no control character
// reaches the terminal (G-04).
func TestListAndShow(t *testing.T) {
	w := newDeadLetterWorld(t)
	w.handle(func(string) error { return idem.Permanent(errors.New("bad\x1b[2Jnews")) }, w.event("a", ""), w.event("b", ""))
	flags := []string{"--brokers", w.brokers[0], "--group", "g", "--topic", "orders"}
	do := func(args ...string) (code int, out, said string) {
		var o, e bytes.Buffer
		code = runCommand(t.Context(), append(args, flags...), bytes.NewReader(nil), &o, &e)
		return code, o.String(), e.String()
	}
	code, out, said := do("dlq", "ls")
	require.Zero(t, code, said)
	require.Contains(t, out, "paid a")
	require.NotContains(t, out, "\x1b")
	require.Contains(t, said, "2 of 2 records, 2 shown")

	code, out, _ = do("dlq", "list", "--id", "b", "-o", "json") // an alias
	require.Zero(t, code)
	rows := decodeJSON[[]deadletters.Row](t, bytes.NewReader([]byte(out)))
	require.Len(t, rows, 1)
	require.Equal(t, "b", rows[0].ID)

	for _, c := range []struct {
		args []string
		n    int
	}{
		{nil, 2}, {[]string{"--limit", "1"}, 1}, {[]string{"--class", "permanent"}, 2}, {[]string{"--class", "failed"}, 0},
		{[]string{"--type", "paid"}, 2}, {[]string{"--type", "sold"}, 0}, {[]string{"--since", "1h"}, 2}, {[]string{"--until", "1h"}, 0},
		{[]string{"--at", rows[0].Record}, 1},
	} {
		code, out, _ := do(append([]string{"dlq", "ls", "-o", "json"}, c.args...)...)
		require.Zero(t, code)
		require.Len(t, decodeJSON[[]deadletters.Row](t, bytes.NewReader([]byte(out))), c.n, "%v", c.args)
	}

	code, out, _ = do("dlq", "show", rows[0].Record)
	require.Zero(t, code)
	require.Contains(t, out, "idem-origin-topic")
	require.NotContains(t, out, "event_id\"")
	_, out, _ = do("dlq", "show", rows[0].Record, "--payload")
	require.Contains(t, out, `{"event_id":"b"`)

	code, _, said = do("dlq", "show", "0/99")
	require.Equal(t, exitFound, code, said)
	code, _, _ = do("dlq", "show", "99")
	require.Equal(t, exitUsage, code)
	code, _, said = do("dlq", "plan")
	require.Equal(t, exitUsage, code, said)
	flags = []string{"--brokers", w.brokers[0], "--dlq", "elsewhere"}
	code, _, said = do("dlq", "ls")
	require.Equal(t, exitFound, code, said)
}

// The known parts of an event are shown although it has no identity.
func TestListWithoutIdentity(t *testing.T) {
	w := newDeadLetterWorld(t)
	id, typ := w.event("x", ""), w.event("x", "")
	id.Headers = []idem.Header{{Key: "event-id", Value: []byte("e1")}}
	typ.Headers = []idem.Header{{Key: "event-type", Value: []byte("paid")}}
	id.Value, typ.Value = []byte("no JSON"), []byte("no JSON")
	w.handle(func(string) error { return nil }, id, typ)
	var o, e bytes.Buffer
	flags := []string{"--brokers", w.brokers[0], "--group", "g", "--topic", "orders"}
	require.Zero(t, runCommand(t.Context(), append([]string{"dlq", "ls"}, flags...), bytes.NewReader(nil), &o, &e), e.String())
	require.Regexp(t, `not-json +- e1 `, o.String())
	require.Regexp(t, `not-json +paid - `, o.String())
	o.Reset()
	require.Zero(t, runCommand(t.Context(), append([]string{"dlq", "ls", "--type", "paid", "-o", "json"}, flags...), bytes.NewReader(nil), &o, &e), e.String())
	rows := decodeJSON[[]deadletters.Row](t, &o)
	require.Len(t, rows, 1)
	require.Equal(t, "paid", rows[0].Type)
	o.Reset()
	require.Zero(t, runCommand(t.Context(), append([]string{"dlq", "show", rows[0].Record}, flags...), bytes.NewReader(nil), &o, &e), e.String())
	require.Regexp(t, `idem-event-type +paid`, o.String())
}

// A dead letter that no handler can take is given up with a reason, which is put on record. Then no
// purge stops at it.
func TestDiscardCommand(t *testing.T) {
	w := newDeadLetterWorld(t)
	broken := w.event("", "")
	broken.Value = []byte(`not json`)
	w.fail(broken, w.event("e", ""))
	_, known := memory()
	known[inMemory].store = w.store
	do := func(args ...string) ran {
		return commandWith(t, known, "", append([]string{"dlq"}, append(args, "--brokers", strings.Join(w.brokers, ","), "-G", w.group,
			"--topic", w.topic, "--store", inMemory, "-y", "-o", "json")...)...)
	}
	do("discard", "--reason", "x").failed(t, exitUsage, "which dead letters")
	do("discard", "--id", "e").failed(t, exitUsage, "--reason")
	do("discard", "--id", "nobody", "--reason", "x").failed(t, exitFound, "no dead letter matches")
	for _, row := range w.verdicts(deadletters.Filter{}, deadletters.Decisions{}) {
		r := do("discard", "--at", row.Record, "--reason", "ticket 4711")
		require.Contains(t, r.ok(t), `"result": "discarded"`)
		audit := r.audits(t)
		require.Len(t, audit, 1)
		require.Equal(t, "dlq discard", audit[0]["audit"])
		require.Equal(t, "ticket 4711", audit[0]["reason"])
		require.Equal(t, []any{row.Record}, audit[0]["records"])
		require.EqualValues(t, 1, audit[0]["discarded"])
		require.Equal(t, "done", audit[0]["outcome"])
		require.Contains(t, do("discard", "--at", row.Record, "--reason", "again").ok(t), `"result": "left alone"`)
	}
	for _, row := range w.verdicts(deadletters.Filter{}, deadletters.Decisions{}) {
		require.Equal(t, deadletters.SeenDiscarded, row.Verdict)
		require.Equal(t, "ticket 4711", row.Note)
	}
	do("purge").ok(t)
	require.Empty(t, w.deadLetters())
}
