package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/dedup"
)

// A request in doubt runs no more by itself, and no producer sends it again. The command shows the
// answer that its client gets (rule 19).
func TestEventIsARequest(t *testing.T) {
	s, known := memory()
	ctx := t.Context()
	finish(t, s, claim(t, s, inScope("http", "alice:done"), dedup.Origin{}), "")
	claim(t, s, inScope("http", "alice:working"), dedup.Origin{})
	for id, outcome := range map[string]dedup.Outcome{"alice:doubtful": dedup.Unknown, "alice:free": dedup.Failed} {
		c := claim(t, s, inScope("http", id), dedup.Origin{})
		require.NoError(t, s.Release(ctx, []dedup.Release{{Claim: c, Outcome: outcome, Retention: time.Hour}}))
	}
	require.NoError(t, s.Discard(ctx, inScope("http", "alice:skipped"), time.Hour, "it was paid in cash"))
	for id, want := range map[string]string{
		"alice:done": "replayed", "alice:working": "at work", "alice:doubtful": "409 unknown_outcome", "alice:free": "client sends the request again",
		"alice:skipped": "409 given_up",
	} {
		out := commandWith(t, known, "", onMemory("get", id, "--type", "http")...).ok(t)
		require.Contains(t, out, want, id)
		require.NotContains(t, out, "deliver", id)
	}
	released := commandWith(t, known, "", onMemory("release", "alice:doubtful", "--type", "http", "-y")...).ok(t)
	require.Contains(t, released, "its client sends the request again")
	require.NotContains(t, released, "rewind")
	skipped := commandWith(t, known, "", onMemory("skip", "alice:free", "--type", "http", "-y")...).ok(t)
	require.Contains(t, skipped, "409 given_up")
}
