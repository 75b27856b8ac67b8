package idem_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/dedup"
)

// Rule 6: a process dies after its dead letter was acknowledged and before dead was recorded. The
// next owner finds the claim of a dead holder, and sends a second dead letter. No event is lost.
func TestDeadLetter_CrashBeforeItIsRecorded_Rule6(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.cfg.BusyWait = time.Second
		down := times(1_000_000, dedup.ErrUnavailable)
		b.store.completeErr, b.store.releaseErr, b.store.renewErr = down, down, down
		b.on(failing(100, idem.Permanent(errBoom)))
		require.Error(t, b.start().Handle(t.Context(), message("e1", 0)), "nothing is marked")
		require.Len(t, b.sent.deadLetters(), 1)
		time.Sleep(time.Hour) // of the lease

		b.store.completeErr, b.store.releaseErr, b.store.renewErr = nil, nil, nil
		next := b.start()
		require.NoError(t, next.Handle(t.Context(), message("e1", 0)))
		require.Len(t, b.sent.deadLetters(), 2)
		require.Equal(t, 1, b.count("claim: uncertain"), b.all())
		require.Equal(t, 1, b.count("complete: dead"))
		require.NoError(t, next.Handle(t.Context(), message("e1", 0)))
		require.Len(t, b.sent.deadLetters(), 2)
	})
}
