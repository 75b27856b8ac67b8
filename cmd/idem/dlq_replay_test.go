package main

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/deadletter"
	"github.com/idem-go/idem/internal/deadletters"
)

// tooLarge refuses the copies of one event.
type tooLarge struct {
	idem.Producer
	id string
}

func (p tooLarge) Produce(ctx context.Context, m ...*idem.Message) error {
	if headerText(m[0], deadletter.HeaderEventID) == p.id {
		return idem.ErrTooLarge
	}
	return p.Producer.Produce(ctx, m...)
}

// A copy that is too large is a finding: the others are replayed, and the exit code is 1.
func TestReplayOfALargeCopy(t *testing.T) {
	w := newDeadLetterWorld(t)
	w.fail(w.event("large", ""), w.event("small", ""))
	s := w.open()
	err := s.replay(t.Context(), tooLarge{w.producer, "large"}, deadletters.Filter{}, replayFlags{})
	var exit *exitError
	require.ErrorAs(t, err, &exit)
	require.Equal(t, exitFound, exit.code)
	require.ErrorContains(t, err, "max.message.bytes of orders.g.retry")
	require.Contains(t, s.err.String(), `"outcome":"failed"`)
	got := decodeJSON[deadletters.Result](t, s.out)
	require.Equal(t, "failed", got.Outcome)
	require.Equal(t, map[deadletters.Verdict]int{deadletters.SeenTooLarge: 1, deadletters.SeenDead: 1}, got.Verdicts)
	require.Equal(t, map[string][]string{"small": {"1"}}, w.copiesByID())
}

// A place that was mistyped is in the result, alone and beside others.
func TestReplayOfAPlaceWithoutRecord(t *testing.T) {
	w := newDeadLetterWorld(t)
	w.fail(w.event("a", ""))
	at := deadletters.Place{Partition: w.deadLetters()[0].Partition}
	gone := deadletters.Place{Partition: 0, Offset: 999}
	for _, f := range []deadletters.Filter{{At: []deadletters.Place{at, gone}}, {At: []deadletters.Place{gone}}} {
		got, _ := w.replay(f, replayFlags{}, deadletters.Decisions{})
		require.Equal(t, len(f.At)-1, got.Replayed)
		require.Equal(t, 1, got.Verdicts[deadletters.SeenGone])
		require.Len(t, got.Attention, 1)
		require.Equal(t, "0/999", got.Attention[0].Record)
	}
}
