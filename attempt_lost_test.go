package idem_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/observe"
)

// A worker has not crashed if its own lease ends and no other worker takes the event over (rule
// 18).
func TestProcessor_OwnLeaseIsNoCrash_Rule18(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		var takeovers []uint32
		b.store.claimAnswer = func(a *dedup.Answer) { takeovers = append(takeovers, a.Takeovers) }
		b.store.renewErr = func() error { return dedup.ErrUnavailable }
		runs := 0
		b.on(func(ctx context.Context, _ idem.Event[payload]) error {
			if runs++; runs > 6 {
				return nil
			}
			<-ctx.Done() // its lease
			return ctx.Err()
		})
		require.NoError(t, b.start().Handle(t.Context(), message("e1", 0)))
		require.Equal(t, 7, runs)
		require.Empty(t, b.sent.deadLetters(), "%v", b.all())
		require.Equal(t, make([]uint32, 7), takeovers)
		require.Equal(t, 6, b.count("claim: uncertain"), "the runs may have had their effect")
	})
}

// A claim that is lost when the end of a failed event is recorded is told of like one that is lost
// at a success.
func TestObserveLost_AtDeadAndDelayed(t *testing.T) {
	for name, opts := range map[string][]idem.Option{
		"dead":    {idem.Retry(idem.RetryPolicy{MaxAttempts: 1})},
		"delayed": {idem.Retry(idem.RetryPolicy{MaxAttempts: 1}), idem.RetryTopics(time.Second)},
	} {
		for _, n := range []int{1, 3} {
			t.Run(fmt.Sprintf("%s/%d", name, n), func(t *testing.T) {
				inBubble(t, func(t *testing.T, b *bench) {
					w := newTally()
					b.cfg.Observers = []observe.Observer{w}
					b.store.completeErr = times(1, &dedup.LostError{Claims: []int{0}})
					b.on(failing(1, errBoom), opts...)
					_, err := b.start().HandleBatch(t.Context(), series(n))
					require.NoError(t, err)
					require.Equal(t, 1, w.lost)
					require.Contains(t, b.log.String(), "claim was lost")
				})
			})
		}
	}
}
