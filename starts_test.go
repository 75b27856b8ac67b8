package idem_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/dedup"
)

// Rule 18: a start without a run is no end of a run. The starts of an event that killed two
// processes stay, and the start that did not lead to a run is taken back.
func TestTx_StartWithoutARunKeepsTheStartsBefore_Rule18(t *testing.T) {
	key := start{dedup.Key{Scope: "g", Type: "paid", ID: "e1"}, 0}
	for name, before := range map[string]func(*txStore){
		"unavailable": func(s *txStore) { s.beforeErr = times(1000, dedup.ErrUnavailable) },
		"busy":        func(s *txStore) { s.busy = func() bool { return true } },
		"too old":     func(s *txStore) { s.state[key.key] = dedup.Answer{Verdict: dedup.TooOld} },
	} {
		for _, crashes := range []uint32{0, 1, 2} {
			inTxBubble(t, func(t *testing.T, b *bench, s *txStore) {
				if crashes > 0 {
					s.starts[key] = crashes
				}
				before(s)
				b.onTx(failingTx(0, nil))
				p := b.start()
				for range 3 { // three workers that end in order
					ctx, cancel := context.WithCancel(t.Context())
					time.AfterFunc(10*time.Second, cancel)
					require.Error(t, p.Handle(ctx, message("e1", 0)))
					cancel()
					require.Equal(t, crashes, s.starts[key], name)
				}
				s.beforeErr, s.busy = nil, nil
				delete(s.state, key.key)
				require.NoError(t, p.Handle(t.Context(), message("e1", 0)))
				require.Equal(t, 1, b.count("run 1"), name)
				require.Empty(t, s.starts, "the end of a run forgets them")
				require.Empty(t, b.sent.deadLetters())
			})
		}
	}
}

// Without a run, only the end of the event forgets the starts.
func TestTx_StartsOfASettledEventAreForgotten_Rule18(t *testing.T) {
	inTxBubble(t, func(t *testing.T, b *bench, s *txStore) {
		key := dedup.Key{Scope: "g", Type: "paid", ID: "e1"}
		s.starts[start{key, 0}] = 2
		s.state[key] = dedup.Answer{Verdict: dedup.TooOld}
		b.onTx(failingTx(0, nil), idem.WhenTooOld(idem.DeadLetterTooOld))
		p := b.start()
		require.NoError(t, p.Handle(t.Context(), message("e1", 0)))
		require.Equal(t, []string{"tx: too-old", "dead letter: too-old"}, b.all())
		require.Empty(t, s.starts)
	})
}
