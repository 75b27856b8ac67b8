package main

import (
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/deadletter"
	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/internal/deadletters"
)

// forged is a dead letter that another program wrote into the dead-letter topic of group g.
func (w *deadLetterWorld) forged(topic, scope, id string) *idem.Message {
	at := time.Now().UTC().Format(time.RFC3339)
	m := &idem.Message{Topic: w.topic + ".g.dlq", Key: []byte("k"), Value: []byte(`{"event_id":"` + id + `","type":"paid"}`), Time: time.Now()}
	for _, h := range [][2]string{
		{deadletter.HeaderTopic, topic}, {deadletter.HeaderPartition, "0"}, {deadletter.HeaderOffset, "7"}, {deadletter.HeaderTime, at}, {deadletter.HeaderGroup, "g"},
		{deadletter.HeaderScope, scope}, {deadletter.HeaderEventType, "paid"}, {deadletter.HeaderEventID, id}, {deadletter.HeaderAttempts, strconv.Itoa(1)},
		{deadletter.HeaderErrorClass, "failed"},
	} {
		m.Headers = append(m.Headers, idem.Header{Key: h[0], Value: []byte(h[1])})
	}
	return m
}

// An attacker may write to a dead-letter topic. A replay of such dead letters reaches neither the
// events of another scope nor the retry topic of another source. It goes on with the dead letters
// behind them, and writes no control characters to a terminal (G-03, G-04).
func TestReplayOfForgedDeadLetters(t *testing.T) {
	w := newDeadLetterWorld(t)
	theirs := dedup.Key{Scope: "theirs", Type: "paid", ID: "victim"}
	finish(t, w.store, claim(t, w.store, theirs, dedupOrigin(1)), "failed: theirs")
	require.NoError(t, w.producer.Produce(t.Context(),
		w.forged("orders", "theirs", "victim"), w.forged("other", "g", "elsewhere"), w.forged("orders", "", "nobody"),
		w.forged("x\x1b[31m\n{\"audit\":\"forged\"}", "g", "escape")))
	w.fail(w.events("e", 8)...) // before and behind them, in both partitions

	got, said := w.replay(deadletters.Filter{}, replayFlags{}, deadletters.Decisions{})
	require.Equal(t, map[deadletters.Verdict]int{deadletters.SeenDead: 8, deadletters.SeenScope: 2, deadletters.SeenStray: 1, deadletters.SeenForeign: 1}, got.Verdicts)
	require.Len(t, got.Attention, 4)
	require.NotContains(t, said, "\x1b")
	require.NotContains(t, said, "forged")
	require.NotContains(t, said, "other.g.retry")
	require.Len(t, w.copies(), 8)
	records, err := w.store.(dedup.Operator).Inspect(t.Context(), theirs)
	require.NoError(t, err)
	require.Equal(t, dedup.GivenUp, records[0].State, "the event of another scope was not touched")

	// A handler may have a scope of its own: it is named then.
	s := w.open()
	s.Scope = "theirs"
	require.NoError(t, s.replay(t.Context(), w.producer, deadletters.Filter{ID: "victim"}, replayFlags{}))
	require.Equal(t, map[deadletters.Verdict]int{deadletters.SeenDead: 1}, decodeJSON[deadletters.Result](t, s.out).Verdicts)
}

// A dead letter without a topic for its copy does not hold up the others, and is not forgotten
// (G-03).
func TestReplayGoesOnWithoutATopic(t *testing.T) {
	w := newDeadLetterWorld(t)
	require.NoError(t, w.producer.Produce(t.Context(), w.forged("nowhere", "g", "x"), w.forged("nowhere", "g", "y")))
	w.fail(w.events("e", 8)...)
	s := w.open()
	s.Source = "" // as with --dlq: dead letters of all topics
	err := s.replay(t.Context(), w.producer, deadletters.Filter{}, replayFlags{})
	require.ErrorContains(t, err, "there is no topic nowhere.g.retry")
	got := decodeJSON[deadletters.Result](t, s.out)
	require.Equal(t, "failed", got.Outcome)
	require.Equal(t, map[deadletters.Verdict]int{deadletters.SeenDead: 8, deadletters.SeenNoTopic: 2}, got.Verdicts)
	require.Len(t, w.copies(), 8)
}
