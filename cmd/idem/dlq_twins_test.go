package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/internal/deadletters"
)

// Of dead letters of one event with different values, one was chosen and is done. The value of the
// other was never handled. So plan does not call it done, and purge keeps it until a person decides
// (rule 34).
func TestPurgeKeepsWhatDiffersFromWhatWasDone(t *testing.T) {
	w := newDeadLetterWorld(t)
	first, second := w.event("torn", `,"n":1`), w.event("torn", `,"n":2`)
	second.Partition, second.Key = first.Partition, first.Key
	w.fail(first, second)
	found := w.deadLetters()
	require.Len(t, found, 2)
	at := deadletters.Place{Partition: found[0].Partition, Offset: found[0].Offset}
	got, _ := w.replay(deadletters.Filter{At: []deadletters.Place{at}}, replayFlags{}, deadletters.Decisions{})
	require.Equal(t, 1, got.Replayed)
	var ran applied
	w.handle(ran.run, w.copies()...)

	require.Equal(t, map[string][]deadletters.Verdict{"torn": {deadletters.SeenConflict, deadletters.SeenConflict}}, byEvent(w.verdicts(deadletters.Filter{}, deadletters.Decisions{})))
	s := w.open()
	require.NoError(t, s.purge(t.Context(), false))
	require.Contains(t, s.err.String(), "no dead letters to delete")
	require.Len(t, w.deadLetters(), 2)
	require.NoError(t, w.open().purge(t.Context(), true))
	require.Empty(t, w.deadLetters())

	same := []*idem.Message{w.event("same", ""), w.event("same", "")}
	w.fail(same...)
	got, _ = w.replay(deadletters.Filter{ID: "same"}, replayFlags{}, deadletters.Decisions{})
	require.Equal(t, 1, got.Replayed)
	w.handle(ran.run, w.copies()...)
	require.Equal(t, map[string][]deadletters.Verdict{"same": {deadletters.SeenDone, deadletters.SeenDone}}, byEvent(w.verdicts(deadletters.Filter{ID: "same"}, deadletters.Decisions{})))
}
