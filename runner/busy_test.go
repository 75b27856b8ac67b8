package runner

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/observe"
)

// TestBusyNotes: a copy is busy in the name of its source.
func TestBusyNotes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := new(busyNotes)
		tell := func(topic string, id int32, v dedup.Verdict) {
			b.ObserveClaim(t.Context(), observe.ClaimEvent{Message: &idem.Message{Topic: topic, Partition: id}, Verdict: v})
		}
		tell("a", 1, dedup.Busy)
		tell("a", 2, dedup.Fresh)
		require.True(t, b.recently("a", 1, "g"))
		require.False(t, b.recently("a", 2, "g"))
		require.True(t, b.recently("a.g.retry.5s", 7, "g"))
		require.False(t, b.recently("b.g.retry.5s", 1, "g"))
		time.Sleep(busyMoment)
		require.False(t, b.recently("a", 1, "g"))
	})
}
