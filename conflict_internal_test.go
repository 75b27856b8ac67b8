package idem

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/dedup"
)

// rules 6 d and 17: a copy with another content is skipped only if the event is done.
func TestConflict_Decision(t *testing.T) {
	for _, c := range []struct {
		known  dedup.Verdict
		policy ConflictPolicy
		same   bool
		want   conflictAction
	}{
		{dedup.Done, SkipConflict, false, conflictSkip},
		{dedup.Busy, SkipConflict, false, conflictWait},
		{dedup.Dead, SkipConflict, false, conflictDeadLetter},
		{dedup.Rescheduled, SkipConflict, false, conflictDeadLetter},
		{dedup.Fresh, SkipConflict, false, conflictDeadLetter},
		{0, SkipConflict, false, conflictDeadLetter}, // a store of an older contract
		{dedup.Done, DeadLetterConflict, false, conflictDeadLetter},
		{dedup.Busy, DeadLetterConflict, false, conflictDeadLetter},
		{dedup.Dead, DeadLetterConflict, false, conflictDeadLetter},
		{dedup.Rescheduled, DeadLetterConflict, false, conflictDeadLetter},
		{dedup.Fresh, DeadLetterConflict, false, conflictDeadLetter},
		{dedup.Done, SkipConflict, true, conflictNone},
		{dedup.Fresh, SkipConflict, true, conflictNone},
		{dedup.Rescheduled, DeadLetterConflict, true, conflictNone},
	} {
		got := onConflict(dedup.Answer{Verdict: dedup.Conflict, Known: c.known}, c.policy, c.same)
		require.Equal(t, c.want, got, "%s, policy %d, same record %v", c.known, c.policy, c.same)
	}
}

func TestConflict_LogIsBounded(t *testing.T) {
	var l conflictLog
	now := time.Unix(0, 0)
	leftOut, ok := l.admit(now)
	require.True(t, ok)
	require.Zero(t, leftOut)
	for range 3 {
		_, ok = l.admit(now.Add(conflictLogEvery - 1))
		require.False(t, ok)
	}
	leftOut, ok = l.admit(now.Add(conflictLogEvery))
	require.True(t, ok)
	require.Equal(t, 3, leftOut)
}
