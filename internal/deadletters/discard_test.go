package deadletters

import (
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/deadletter"
	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/dedup/memstore"
)

// broken is a record that is no JSON.
func (w *world) broken() *idem.Message {
	m := w.event("", "")
	m.Value = []byte("no JSON")
	return m
}

// newCopies are the copies from n on.
func (w *world) newCopies(n int) []*idem.Message {
	w.t.Helper()
	all := w.copies()
	require.Greater(w.t, len(all), n)
	return all[n:]
}

// nextMillisecond waits for one: dead letters of a record are told apart by the millisecond of
// their failure, and a test is quicker.
func nextMillisecond() {
	for began := time.Now().UnixMilli(); time.Now().UnixMilli() == began; {
		runtime.Gosched()
	}
}

// A dead letter without identity that comes back each time is not published for ever (T-08). The
// same holds for an event that the store does not know.
func TestReplay_StopsWithoutARecord_T08(t *testing.T) {
	for name, kind := range map[string]struct {
		spoil   func(w *world) *idem.Message
		verdict Verdict
		dec     Decisions
	}{
		"no identity": {func(w *world) *idem.Message { return w.broken() }, SeenNoID, Decisions{}},
		"never seen": {func(w *world) *idem.Message {
			return w.event("7", `,"amount":`) // has an ID in a header, and cannot be decoded
		}, SeenNoID, Decisions{}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.fail(kind.spoil(w))
			for range MaxGenerations {
				n := len(w.copies())
				result, err := w.open().Replay(t.Context(), Replay{Producer: w.producer})
				require.NoError(t, err)
				require.Equal(t, 1, result.Replayed, "%+v", result)
				again, err := w.open().Replay(t.Context(), Replay{Producer: w.producer})
				require.NoError(t, err)
				require.Zero(t, again.Replayed, "it was published, and has not come back")
				nextMillisecond()
				w.fail(w.newCopies(n)...)
			}
			require.Len(t, w.deadLetters(), 1+MaxGenerations)
			n := len(w.copies())
			result, err := w.open().Replay(t.Context(), Replay{Producer: w.producer})
			require.NoError(t, err)
			require.Zero(t, result.Replayed)
			require.Equal(t, 1, result.Verdicts[SeenOften], "%+v", result)
			require.Contains(t, result.Attention[0].Note, "idem dlq discard")
			result, err = w.open().Replay(t.Context(), Replay{Producer: w.producer, Decisions: Decisions{Again: true}})
			require.NoError(t, err)
			require.Equal(t, 1, result.Replayed)
			require.Len(t, w.copies(), n+1)
		})
	}
}

// An event that the store has forgotten is published at most so often, too.
func TestReplay_StopsForForgotten_T08(t *testing.T) {
	w := newWorld(t)
	w.fail(w.event("7", ""))
	operator := w.store.(dedup.Operator)
	for range MaxGenerations {
		require.NoError(t, operator.Forget(t.Context(), dedup.Key{Scope: "g", Type: "paid", ID: "7"}))
		n := len(w.copies())
		result, err := w.open().Replay(t.Context(), Replay{Producer: w.producer})
		require.NoError(t, err)
		require.Equal(t, 1, result.Replayed, "%+v", result)
		nextMillisecond()
		w.fail(w.newCopies(n)...)
	}
	require.NoError(t, operator.Forget(t.Context(), dedup.Key{Scope: "g", Type: "paid", ID: "7"}))
	result, err := w.open().Replay(t.Context(), Replay{Producer: w.producer})
	require.NoError(t, err)
	require.Zero(t, result.Replayed)
	require.Equal(t, 1, result.Verdicts[SeenOften], "%+v", result)
}

// A discarded dead letter is not replayed and does not hold up a purge. Only the event that the
// store knows as dead is given up with it.
func TestDiscard(t *testing.T) {
	w := newWorld(t)
	w.fail(w.broken(), w.event("dead", ""), w.event("unknown", ""), w.event("done", ""))
	require.NoError(t, w.producer.Produce(t.Context(), &idem.Message{Topic: "orders.g.dlq", Value: []byte("garbage")}))
	operator := w.store.(dedup.Operator)
	key := func(id string) dedup.Key { return dedup.Key{Scope: "g", Type: "paid", ID: id} }
	require.NoError(t, operator.Forget(t.Context(), key("unknown")))
	require.NoError(t, operator.Forget(t.Context(), key("done")))
	w.handle(func(string) error { return nil }, w.event("done", ""))

	_, err := w.open().Discard(t.Context(), Discard{})
	require.ErrorIs(t, err, ErrReason)
	notes := map[string]string{}
	done, err := w.open().Discard(t.Context(), Discard{Reason: "a test", Each: func(d Discarded) {
		if !d.Done {
			notes[d.ID] = d.Note
		}
	}})
	require.NoError(t, err)
	require.Equal(t, 4, done)
	require.Equal(t, map[string]string{"done": "nothing is left to be done"}, notes)

	_, err = w.open().EachJudged(t.Context(), Filter{}, nil, Decisions{Again: true, Forgotten: true}, func(j *Judged) (bool, error) {
		require.True(t, j.Settled(false), "%s: %s", j.Row().ID, j.Verdict)
		if j.Verdict != SeenDone {
			require.Equal(t, "a test", j.Note)
		}
		return true, nil
	})
	require.NoError(t, err)
	result, err := w.open().Replay(t.Context(), Replay{Producer: w.producer, Decisions: Decisions{Again: true, Forgotten: true}})
	require.NoError(t, err)
	require.Zero(t, result.Replayed)
	ran := map[string]int{}
	w.handle(func(id string) error { ran[id]++; return nil }, w.event("dead", ""), w.event("unknown", ""))
	require.Equal(t, map[string]int{"unknown": 1}, ran, "a good copy of an event that the store does not know runs")

	done, err = w.open().Discard(t.Context(), Discard{Reason: "again"})
	require.NoError(t, err)
	require.Zero(t, done)
}

// An event that a worker handles is not discarded.
func TestDiscard_Open(t *testing.T) {
	w := newWorld(t)
	w.fail(w.event("e", ""))
	_, err := w.store.(dedup.Operator).Reopen(t.Context(), dedup.Key{Scope: "g", Type: "paid", ID: "e"})
	require.NoError(t, err)
	token := dedup.NewToken()
	reqs := []dedup.Request{{Key: dedup.Key{Scope: "g", Type: "paid", ID: "e"}, Position: dedup.Position{Generation: 1}, Retention: deadLetterMemory}}
	var answers [1]dedup.Answer
	require.NoError(t, w.store.Claim(t.Context(), token, deadLetterMemory, reqs, answers[:]))
	require.True(t, answers[0].Verdict.Held())
	done, err := w.open().Discard(t.Context(), Discard{Reason: "a test", Each: func(d Discarded) {
		require.Contains(t, d.Note, "still to be handled")
	}})
	require.NoError(t, err)
	require.Zero(t, done)
}

// A discarded dead letter does not stand in the way of another one of its event: the best of the
// others is replayed, once.
func TestDiscard_OneOfEqualOnes(t *testing.T) {
	for name, discard := range map[string][]int{
		"the newest": {2}, "the newest two": {1, 2}, "the oldest": {0}, "the one between": {1}, "none": {},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			at := time.Now().Add(-time.Hour).Truncate(time.Second)
			for i := range 3 {
				m := deadLetter("a", string(idem.ClassTooOld), at.Add(time.Duration(i)*time.Second))
				require.NoError(t, w.producer.Produce(t.Context(), m))
			}
			places := w.places("a")
			require.Len(t, places, 3)
			best := 2
			for _, i := range slices.Backward(discard) {
				n, err := w.open().Discard(t.Context(), Discard{Filter: Filter{At: places[i : i+1]}, Reason: "a test"})
				require.NoError(t, err)
				require.Equal(t, 1, n)
				if i == best {
					best--
				}
			}
			replayed := map[string]bool{}
			result, err := w.open().Replay(t.Context(), Replay{
				Producer: w.producer, Decisions: Decisions{Forgotten: true},
				Each: func(d Done) { replayed[d.Record] = d.Replayed },
			})
			require.NoError(t, err)
			require.Equal(t, 1, result.Replayed, "%+v", result)
			require.True(t, replayed[places[best].String()], "%v", replayed)
			require.Equal(t, len(discard), result.Verdicts[SeenDiscarded])
			require.Equal(t, 2-len(discard), result.Verdicts[SeenInFlight])
		})
	}
}

// A dead event is discarded with its dead letter, also if the dead letter has no value.
func TestDiscard_ValueOmitted(t *testing.T) {
	for name, reopened := range map[string]bool{"dead": false, "reopened": true} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.fail(w.event("a", ""))
			operator, key := w.store.(dedup.Operator), dedup.Key{Scope: "g", Type: "paid", ID: "a"}
			if reopened {
				_, err := operator.Reopen(t.Context(), key)
				require.NoError(t, err)
			}
			m := deadLetter("a", string(idem.ClassFailed), time.Now())
			m.Key, m.Value = []byte("key of a"), nil // the same partition
			m.Headers = append(m.Headers, idem.Header{Key: deadletter.HeaderValueOmitted, Value: []byte("10")})
			require.NoError(t, w.producer.Produce(t.Context(), m))
			omitted := w.places("a")[1]
			l, err := w.open().Get(t.Context(), omitted)
			require.NoError(t, err)
			require.True(t, l.DeadLetter.Omitted)
			n, err := w.open().Discard(t.Context(), Discard{Filter: Filter{At: []Place{omitted}}, Reason: "a test"})
			require.NoError(t, err)
			require.Equal(t, 1, n)
			records, err := operator.Inspect(t.Context(), key)
			require.NoError(t, err)
			require.True(t, records[0].Discarded(), "%+v", records[0])
			result, err := w.open().Replay(t.Context(), Replay{Producer: w.producer})
			require.NoError(t, err)
			require.Zero(t, result.Replayed, "the other dead letter of the event")
		})
	}
}

// The limit of replays holds for every dead letter, although the store has lost its memory of them
// meanwhile. The headers count too.
func TestReplay_StopsWithoutAMemory_T08(t *testing.T) {
	for name, spoil := range map[string]func(w *world) *idem.Message{
		"no identity":   func(w *world) *idem.Message { return w.broken() },
		"with identity": func(w *world) *idem.Message { return w.event("7", "") },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.fail(spoil(w))
			for i := range MaxGenerations {
				n := len(w.copies())
				w.store = memstore.New(memstore.Volatile())
				last := w.last()
				result, err := w.open().Replay(t.Context(), Replay{Producer: w.producer, Filter: last})
				require.NoError(t, err)
				require.Equal(t, 1, result.Replayed, "%+v", result)
				w.fail(w.newCopies(n)...)
				require.Len(t, w.deadLetters(), i+2)
			}
			w.store = memstore.New(memstore.Volatile())
			result, err := w.open().Replay(t.Context(), Replay{Producer: w.producer, Filter: w.last()})
			require.NoError(t, err)
			require.Zero(t, result.Replayed)
			require.Equal(t, 1, result.Verdicts[SeenOften], "%+v", result)
			result, err = w.open().Replay(t.Context(), Replay{
				Producer: w.producer, Filter: w.last(), Decisions: Decisions{Again: true},
			})
			require.NoError(t, err)
			require.Equal(t, 1, result.Replayed)
		})
	}
}

// After the loss of a store, an event is published once without being reopened. The generation does
// not count that replay, and the dead letter does.
func TestReplay_StopsWithALostGeneration_T08(t *testing.T) {
	w := newWorld(t)
	w.fail(w.event("7", ""))
	w.store = memstore.New(memstore.Volatile())
	for range MaxGenerations {
		n := len(w.copies())
		result, err := w.open().Replay(t.Context(), Replay{Producer: w.producer, Filter: w.last()})
		require.NoError(t, err)
		require.Equal(t, 1, result.Replayed, "%+v", result)
		w.fail(w.newCopies(n)...)
	}
	result, err := w.open().Replay(t.Context(), Replay{Producer: w.producer, Filter: w.last()})
	require.NoError(t, err)
	require.Equal(t, map[Verdict]int{SeenOften: 1}, result.Verdicts)
}

// last chooses the newest dead letter.
func (w *world) last() Filter {
	w.t.Helper()
	var newest *idem.Message
	for _, m := range w.deadLetters() {
		if newest == nil || m.Offset > newest.Offset {
			newest = m
		}
	}
	return Filter{At: []Place{{newest.Partition, newest.Offset}}}
}
