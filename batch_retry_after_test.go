package idem_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
)

var errLater = idem.RetryAfter(2*time.Second, errBoom)

// clock notes the times of calls, counted from its creation.
type clock struct {
	began time.Time
	calls []string
}

func newClock() *clock { return &clock{began: time.Now()} }

func (c *clock) note(events ...idem.Event[payload]) {
	c.calls = append(c.calls, fmt.Sprintf("%v %s", time.Since(c.began), strings.Join(ids(events), " ")))
}

// Rule 42: RetryAfter holds for every event of a call. The events wait once for all, and run by
// themselves then.
func TestBatch_RetryAfterOfACallIsWaitedFor_Rule42(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		c, later := newClock(), times(1, errLater)
		b.onBatch(func(_ context.Context, events []idem.Event[payload]) error {
			c.note(events...)
			return later()
		})
		_, err := b.start().HandleBatch(t.Context(), series(3))
		require.NoError(t, err)
		require.Equal(t, []string{"0s e000 e001 e002", "2s e000", "2s e001", "2s e002"}, c.calls)
	})
}

// Rule 42: the events of a call may not wait that long in place, so no event runs again at once.
func TestBatch_LongRetryAfterOfACallIsDelayed_Rule42(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		c, later := newClock(), times(1, idem.RetryAfter(time.Hour, errBoom))
		b.onBatch(func(_ context.Context, events []idem.Event[payload]) error {
			c.note(events...)
			return later()
		}, idem.RetryTopics(time.Minute))
		n, err := b.start().HandleBatch(t.Context(), series(3))
		require.NoError(t, err)
		require.Equal(t, 3, n)
		require.Equal(t, []string{"0s e000 e001 e002"}, c.calls)
	})
}

// Rule 42: after the rollback of a transaction no handler is called before the time of RetryAfter.
func TestBatchTx_RetryAfterIsWaitedFor_Rule42(t *testing.T) {
	t.Run("all events of a call", func(t *testing.T) {
		inGroupBubble(t, func(t *testing.T, b *bench, s *groupStore) {
			c, later := newClock(), times(1, errLater)
			b.onGroupBatch(func(_ context.Context, _ *groupTx, events []idem.Event[payload]) error {
				c.note(events...)
				return later()
			})
			_, err := b.start().HandleBatch(t.Context(), series(2))
			require.NoError(t, err)
			require.Equal(t, []string{"0s e000 e001", "2s e000", "2s e001"}, c.calls)
			s.allOnce(t, 2)
		})
	})
	t.Run("a named event of a call", func(t *testing.T) {
		inGroupBubble(t, func(t *testing.T, b *bench, s *groupStore) {
			c, later := newClock(), times(1, idem.BatchError{1: errLater})
			b.onGroupBatch(func(_ context.Context, _ *groupTx, events []idem.Event[payload]) error {
				c.note(events...)
				return later()
			})
			_, err := b.start().HandleBatch(t.Context(), series(3))
			require.NoError(t, err)
			require.Equal(t, []string{"0s e000 e001 e002", "0s e000", "2s e001", "2s e002"}, c.calls)
			s.allOnce(t, 3)
		})
	})
	t.Run("one event of a transaction", func(t *testing.T) {
		inGroupBubble(t, func(t *testing.T, b *bench, s *groupStore) {
			c, later := newClock(), times(1, errLater)
			b.onGroup(func(_ context.Context, _ *groupTx, e idem.Event[payload]) error {
				c.note(e)
				if e.ID == "e001" {
					return later()
				}
				return nil
			})
			_, err := b.start().HandleBatch(t.Context(), series(3))
			require.NoError(t, err)
			require.Equal(t, []string{"0s e000", "0s e001", "0s e000", "2s e001", "2s e002"}, c.calls)
			s.allOnce(t, 3)
		})
	})
}
