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

// Rule 42: the pauses of the events that a BatchError names pass at the same time. The lane is held
// up once, not once for each event.
func TestBatch_RetryAfterOfNamedEventsPassesTogether_Rule42(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		c, first := newClock(), true
		b.onBatch(func(_ context.Context, events []idem.Event[payload]) error {
			c.note(events...)
			failed := idem.BatchError{}
			for i := range events {
				if after := []int{1, 3, 2, 0, 3}[i]; first && after > 0 {
					failed[i] = idem.RetryAfter(time.Duration(after)*time.Second, errBoom)
				}
			}
			first = false
			if len(failed) == 0 {
				return nil
			}
			return failed
		})
		n, err := b.start().HandleBatch(t.Context(), series(5))
		require.NoError(t, err)
		require.Equal(t, 5, n)
		require.Equal(t, []string{
			"0s e000 e001 e002 e003 e004", "1s e000", "3s e001", "3s e002", "3s e004",
		}, c.calls)
	})
}

// Rule 42, rule 43: the time in place has the event's own pause, also when it passed behind an
// earlier event, and not the runs of earlier events.
func TestBatch_TimeInPlaceOfNamedEvents_Rule42(t *testing.T) {
	for last, letters := range map[time.Duration]int{3 * time.Second: 0, 3*time.Second + 1: 1} {
		inBubble(t, func(t *testing.T, b *bench) {
			c, runs := newClock(), map[string]int{}
			b.onBatch(func(_ context.Context, events []idem.Event[payload]) error {
				c.note(events...)
				failed := idem.BatchError{}
				for i, e := range events {
					runs[e.ID]++
					switch {
					case runs[e.ID] == 1:
						failed[i] = errLater
					case e.ID == "e000":
						time.Sleep(10 * time.Second)
					case runs[e.ID] == 2: // 2 s of the 5 s are used
						failed[i] = idem.RetryAfter(last, errBoom)
					}
				}
				if len(failed) == 0 {
					return nil
				}
				return failed
			})
			_, err := b.start().HandleBatch(t.Context(), series(2))
			require.NoError(t, err)
			want := []string{"0s e000 e001", "2s e000", "12s e001"}
			if letters == 0 {
				want = append(want, "15s e001")
			}
			require.Equal(t, want, c.calls)
			require.Len(t, b.sent.deadLetters(), letters)
		})
	}
}

// Rule 42, rule 43: the pause of a whole call is time in place of each of its events.
func TestBatch_TimeInPlaceOfACall_Rule42(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		c := newClock()
		b.onBatch(func(_ context.Context, events []idem.Event[payload]) error {
			c.note(events...)
			return idem.RetryAfter(4*time.Second, errBoom)
		})
		_, err := b.start().HandleBatch(t.Context(), series(2))
		require.NoError(t, err)
		require.Equal(t, []string{"0s e000 e001", "4s e000", "4s e001"}, c.calls)
		require.Len(t, b.sent.deadLetters(), 2)
	})
}
