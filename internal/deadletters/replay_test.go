package deadletters

import (
	"context"
	"fmt"
	"testing"

	"github.com/IBM/sarama"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/deadletter"
	"github.com/idem-go/idem/dedup"
)

// places are where the dead letters of an event are.
func (w *world) places(id string) (at []Place) {
	w.t.Helper()
	for _, m := range w.deadLetters() {
		if headerText(m, deadletter.HeaderEventID) == id {
			at = append(at, Place{m.Partition, m.Offset})
		}
	}
	return at
}

// A plan shows the effects of a replay and has none. The replay reports the result of every single
// dead letter, and records itself once (rule 34).
func TestPlanAndReplay(t *testing.T) {
	w := newWorld(t)
	w.fail(w.event("a", ""), w.event("b", ""), w.event("c", ""))
	q := w.open()
	p, err := q.Plan(t.Context(), Filter{}, Decisions{}, 0)
	require.NoError(t, err)
	require.Equal(t, map[Verdict]int{SeenDead: 3}, p.Counts)
	require.Equal(t, []string{"orders.g.retry"}, p.RetryTopics)
	require.Empty(t, p.Missing)
	require.False(t, p.More)
	require.Equal(t, 3, p.Matched)
	for _, r := range p.Rows {
		require.Equal(t, ActReopen.String(), r.Action)
	}
	require.Empty(t, w.copies(), "it was a plan")
	p, err = q.Plan(t.Context(), Filter{}, Decisions{}, 2)
	require.NoError(t, err)
	require.Len(t, p.Rows, 2)
	require.True(t, p.More)

	var done []Done
	var audits []map[string]any
	replay := Replay{
		Producer: w.producer, Filter: Filter{At: append(w.places("a"), w.places("c")...), Twins: true},
		Each:  func(d Done) { done = append(done, d) },
		Audit: func(fields map[string]any) { audits = append(audits, fields) },
	}
	for _, want := range []Verdict{SeenDead, SeenReopened} {
		done, audits = nil, nil
		result, err := q.Replay(t.Context(), replay)
		require.NoError(t, err)
		require.Equal(t, OutcomeDone, result.Outcome)
		require.Equal(t, map[Verdict]int{want: 2}, result.Verdicts)
		require.Len(t, done, 2)
		for _, d := range done {
			require.True(t, d.Replayed)
			require.Equal(t, want, d.Verdict)
			require.NoError(t, d.Err)
		}
		require.Equal(t, []map[string]any{{
			"topic": "orders.g.dlq", "group": "g", "outcome": "done", "replayed": 2, "verdicts": map[Verdict]int{want: 2},
		}}, audits)
	}
	require.Equal(t, map[string][]string{"a": {"1", "1"}, "c": {"1", "1"}}, w.copiesByID())
	ran := map[string]int{}
	w.handle(func(id string) error { ran[id]++; return nil }, w.copies()...)
	require.Equal(t, map[string]int{"a": 1, "c": 1}, ran)

	done = nil
	result, err := q.Replay(t.Context(), replay)
	require.NoError(t, err)
	require.Zero(t, result.Replayed)
	require.Len(t, done, 2)
	for _, d := range done {
		require.False(t, d.Replayed)
		require.Equal(t, SeenDone, d.Verdict)
	}
}

// Naming one of several dead letters that differ is a decision; naming rows of a list is not (rule
// 34).
func TestTwinsOfNamedDeadLetters(t *testing.T) {
	w := newWorld(t)
	first, second := w.event("torn", `,"n":1`), w.event("torn", `,"n":2`)
	w.fail(first, second)
	at := w.places("torn")
	require.Len(t, at, 2)
	verdict := func(f Filter) Verdict {
		p, err := w.open().Plan(t.Context(), f, Decisions{}, 0)
		require.NoError(t, err)
		require.Len(t, p.Rows, 1)
		return p.Rows[0].Verdict
	}
	for _, place := range at {
		require.Equal(t, SeenDead, verdict(Filter{At: []Place{place}}))
		require.Equal(t, SeenOther, verdict(Filter{At: []Place{place}, Twins: true}))
	}

	// Of equal ones the one that was named is replayed.
	same := []*idem.Message{w.event("same", ""), w.event("same", "")}
	w.fail(same...)
	for _, place := range w.places("same") {
		require.Equal(t, SeenDead, verdict(Filter{At: []Place{place}, Twins: true}))
	}
}

type produceFunc func(ctx context.Context, m ...*idem.Message) error

func (f produceFunc) Produce(ctx context.Context, m ...*idem.Message) error { return f(ctx, m...) }

// The dead letter at which a replay ends is named, and on record; the next one does the rest at the
// same positions (T-02).
func TestReplayThatEnds(t *testing.T) {
	w := newWorld(t)
	w.fail(w.events("e", 5)...)
	q := w.open()
	var done []Done
	outcomes := []any{}
	replay := func(ctx context.Context, p idem.Producer) (Result, error) {
		done = nil
		return q.Replay(ctx, Replay{
			Producer: p, Each: func(d Done) { done = append(done, d) }, Audit: func(f map[string]any) { outcomes = append(outcomes, f["outcome"]) },
		})
	}
	result, err := replay(t.Context(), produceFunc(func(ctx context.Context, m ...*idem.Message) error {
		if len(done) == 2 {
			return errBroken
		}
		return w.producer.Produce(ctx, m...)
	}))
	require.ErrorIs(t, err, errBroken)
	require.Equal(t, OutcomeFailed, result.Outcome)
	require.Equal(t, 2, result.Replayed)
	require.Len(t, done, 3)
	require.ErrorIs(t, done[2].Err, errBroken)
	require.False(t, done[2].Replayed)

	ctx, cancel := context.WithCancel(t.Context())
	result, err = replay(ctx, produceFunc(func(ctx context.Context, m ...*idem.Message) error {
		cancel()
		return w.producer.Produce(ctx, m...)
	}))
	require.Error(t, err)
	require.Equal(t, OutcomeInterrupted, result.Outcome)
	require.Equal(t, 1, result.Replayed)
	require.Len(t, done, 1)

	_, err = replay(t.Context(), w.producer)
	require.NoError(t, err)
	require.Len(t, done, 5)
	require.Equal(t, []any{"failed", "interrupted", "done"}, outcomes)
	copies := w.copiesByID()
	require.Len(t, copies, 5)
	for id, positions := range copies {
		for _, p := range positions {
			require.Equal(t, "1", p, id)
		}
	}
}

// Copies that have nowhere to go are announced by the plan, and their dead letters stay as they
// are.
func TestReplayWithoutARetryTopic(t *testing.T) {
	w := newWorld(t)
	w.fail(w.event("e", ""))
	admin, err := sarama.NewClusterAdminFromClient(w.client)
	require.NoError(t, err)
	require.NoError(t, admin.DeleteTopic("orders.g.retry"))
	q := w.open()
	p, err := q.Plan(t.Context(), Filter{}, Decisions{}, 0)
	require.NoError(t, err)
	require.Equal(t, []string{"orders.g.retry"}, p.Missing)
	var done []Done
	result, err := q.Replay(t.Context(), Replay{Producer: w.producer, Each: func(d Done) { done = append(done, d) }})
	require.ErrorIs(t, err, ErrNoRetryTopic)
	require.Equal(t, OutcomeFailed, result.Outcome)
	require.Len(t, done, 1)
	require.Equal(t, SeenNoTopic, done[0].Verdict)
	require.Equal(t, ActSkip.String(), done[0].Action)
}

// A copy that is too large does not hold up the others, and the replay does not end as done.
func TestReplay_CopyTooLarge(t *testing.T) {
	w := newWorld(t)
	w.fail(w.event("large", ""), w.event("small", ""))
	var outcome any
	result, err := w.open().Replay(t.Context(), Replay{
		Producer: produceFunc(func(ctx context.Context, m ...*idem.Message) error {
			if headerText(m[0], deadletter.HeaderEventID) == "large" {
				return fmt.Errorf("refused: %w", idem.ErrTooLarge)
			}
			return w.producer.Produce(ctx, m...)
		}),
		Audit: func(f map[string]any) { outcome = f["outcome"] },
	})
	require.ErrorIs(t, err, ErrCopyTooLarge)
	require.ErrorIs(t, err, idem.ErrTooLarge)
	require.ErrorContains(t, err, "dead letter "+w.places("large")[0].String())
	require.Equal(t, OutcomeFailed, result.Outcome)
	require.Equal(t, OutcomeFailed, outcome)
	require.Equal(t, map[Verdict]int{SeenTooLarge: 1, SeenDead: 1}, result.Verdicts)
	require.Equal(t, map[string][]string{"small": {"1"}}, w.copiesByID())
}

// A named place without a record is reported, whether the topic ends before it or has lost it. A
// place with a record that another part of the filter refuses is not reported as empty.
func TestReplay_PlaceWithoutRecord(t *testing.T) {
	w := newWorld(t)
	w.fail(w.event("a", ""), w.event("b", ""))
	a, b, gone := w.places("a")[0], w.places("b")[0], Place{1, 999}
	for _, twins := range []bool{false, true} {
		var done []Done
		f := Filter{At: []Place{gone, a}, Twins: twins}
		result, err := w.open().Replay(t.Context(), Replay{
			Producer: w.producer, Filter: f, Each: func(d Done) { done = append(done, d) },
		})
		require.NoError(t, err)
		require.Equal(t, 1, result.Replayed)
		require.Equal(t, 1, result.Verdicts[SeenGone], "%+v", result)
		require.Equal(t, []Attention{{"1/999", SeenGone, "the topic has no such record"}}, result.Attention)
		require.Len(t, done, 2)
		require.Equal(t, "1/999", done[1].Record)
	}
	result, err := w.open().Replay(t.Context(), Replay{
		Producer: w.producer, Filter: Filter{At: []Place{b}, Classes: []string{string(idem.ClassTooOld)}},
	})
	require.NoError(t, err)
	require.Empty(t, result.Verdicts)

	q := w.open()
	s, err := q.Survey(t.Context(), Filter{At: []Place{gone}})
	require.NoError(t, err)
	require.Equal(t, map[Verdict]int{SeenGone: 1}, q.NoResult(s).Verdicts)
}

// lookup is a client that tells of each look for a topic.
type lookup struct {
	sarama.Client
	seen func(topic string)
}

func (c lookup) Partitions(topic string) ([]int32, error) {
	c.seen(topic)
	return c.Client.Partitions(topic)
}

// A discard that ends before the last judgement of a replay holds. Between that judgement and the
// store no other step waits.
func TestReplay_DiscardedMeanwhile(t *testing.T) {
	w := newWorld(t)
	w.fail(w.event("a", ""))
	q, discarded := w.open(), 0
	q.Client = lookup{w.client, func(topic string) {
		if topic == "orders.g.retry" {
			n, err := w.open().Discard(t.Context(), Discard{Reason: "a test"})
			require.NoError(t, err)
			discarded += n
		}
	}}
	result, err := q.Replay(t.Context(), Replay{Producer: w.producer})
	require.NoError(t, err)
	require.Equal(t, 1, discarded)
	require.Equal(t, map[Verdict]int{SeenDiscarded: 1}, result.Verdicts)
	require.Empty(t, w.copies())
}

// Without a store no event is known, so no verdict is given and no copy is published.
func TestWithoutStores(t *testing.T) {
	w := newWorld(t)
	w.fail(w.event("e", ""))
	q := w.open()
	q.Stores = nil
	_, err := q.Plan(t.Context(), Filter{}, Decisions{}, 0)
	require.ErrorContains(t, err, "no store")
	result, err := q.Replay(t.Context(), Replay{Producer: w.producer})
	require.ErrorContains(t, err, "no store")
	require.Zero(t, result.Replayed)
	require.Empty(t, w.copies())
}

// A dead letter is left alone if the stores give it another verdict than a person has seen in a
// plan, also if the verdict changes right before the replay.
func TestReplay_Planned(t *testing.T) {
	w := newWorld(t)
	w.fail(w.events("e", 3)...)
	plan, err := w.open().Plan(t.Context(), Filter{}, Decisions{}, 0)
	require.NoError(t, err)
	planned, reopen := map[string]Row{}, func(id string) {
		_, err := w.store.(dedup.Operator).Reopen(t.Context(), dedup.Key{Scope: "g", Type: "paid", ID: id})
		require.NoError(t, err)
	}
	for _, r := range plan.Rows {
		require.Equal(t, SeenDead, r.Verdict)
		planned[r.Record] = r
	}
	reopen("e2") // since the plan
	asked, done := map[string]int{}, map[string]Done{}
	result, err := w.open().Replay(t.Context(), Replay{
		Producer: w.producer,
		Planned: func(r *Row) bool {
			if asked[r.ID]++; r.ID == "e1" && asked[r.ID] == 1 {
				reopen("e1") // by another person, after the first answer of the store
			}
			return r.Verdict == planned[r.Record].Verdict && r.Action == planned[r.Record].Action
		},
		Each: func(d Done) { done[d.ID] = d },
	})
	require.NoError(t, err)
	require.Equal(t, 1, result.Replayed)
	require.Equal(t, map[Verdict]int{SeenDead: 1, SeenReopened: 2}, result.Verdicts)
	require.True(t, done["e0"].Replayed)
	for _, id := range []string{"e1", "e2"} {
		require.True(t, done[id].Changed, id)
		require.False(t, done[id].Replayed, id)
		require.Equal(t, SeenReopened, done[id].Verdict, id)
	}
	require.Len(t, w.copies(), 1)
}
