package idem_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/deadletter"
)

// replayed is the copy that lets the event of the last dead letter run again.
func (b *bench) replayed() *idem.Message {
	b.t.Helper()
	letters := b.sent.deadLetters()
	l, err := deadletter.Parse(letters[len(letters)-1])
	require.NoError(b.t, err)
	position, err := b.store.Reopen(b.t.Context(), l.Key)
	require.NoError(b.t, err)
	m, err := l.Redrive(position)
	require.NoError(b.t, err)
	return m
}

// correction is a record with the ID x that says something else than the one before.
func correction(key string, offset int64) *idem.Message {
	m := inQueue(key, "x", offset)
	m.Value = []byte(`{"event_id":"x","type":"paid","amount":8}`)
	return m
}

// requireConflict wants one dead letter of class conflict, that of the correction.
func (b *bench) requireConflict() {
	b.t.Helper()
	var found []*idem.Message
	for _, m := range b.sent.deadLetters() {
		if headerOf(m, deadletter.HeaderErrorClass) == string(idem.ClassConflict) {
			found = append(found, m)
		}
	}
	require.Len(b.t, found, 1, "%v", b.all())
	require.Contains(b.t, string(found[0].Value), `"amount":8`)
}

// rules 3 and 6d: a person lets the bad event run again, and the correction comes while it waits
// for that, or for its next attempt. It does not vanish.
func TestConflict_CorrectionOfAReplayedEvent_Rule6d(t *testing.T) {
	fails := func(context.Context, idem.Event[payload]) error { return errBoom }
	for _, early := range []bool{true, false} {
		inBubble(t, func(t *testing.T, b *bench) {
			b.on(fails, once, idem.RetryTopics(time.Minute))
			b.start()
			require.NoError(t, b.p.Handle(t.Context(), inQueue("a", "x", 1)))
			require.Equal(t, []string{"orders.g.retry.1m", "orders.g.dlq"}, b.deliverCopies())
			again := b.replayed()
			if early {
				require.NoError(t, b.p.Handle(t.Context(), correction("a", 2)))
			}
			require.NoError(t, b.p.Handle(t.Context(), again))
			if !early {
				require.NoError(t, b.p.Handle(t.Context(), correction("a", 2)))
			}
			require.NoError(t, b.p.Handle(t.Context(), inQueue("a", "x", 1)), "delivered once more: no conflict")
			b.requireConflict()
		})
	}
}

// The same where it waits in a queue: with its Kafka key, and behind another event, since the
// correction has another Kafka key.
func TestDefer_CorrectionOfAReplayedEvent_Rule6d(t *testing.T) {
	register := func(b *bench) {
		b.on(func(_ context.Context, e idem.Event[payload]) error {
			if e.ID == "other" || e.Data.Amount == 7 {
				return errBoom
			}
			b.add("done %s", e.ID)
			return nil
		}, once, idem.KeyOrdered(time.Second, time.Minute), idem.ContinueAfterDead())
		b.start()
	}
	handle := func(t *testing.T, b *bench, msgs ...*idem.Message) {
		t.Helper()
		for _, m := range msgs {
			require.NoError(t, b.p.Handle(t.Context(), m))
		}
	}
	t.Run("same key", func(t *testing.T) {
		inBubble(t, func(t *testing.T, b *bench) {
			register(b)
			defer b.runsDeferred()()
			handle(t, b, inQueue("a", "x", 1))
			time.Sleep(time.Hour)
			handle(t, b, b.replayed(), correction("a", 2), inQueue("a", "x", 1))
			time.Sleep(time.Hour)
			synctest.Wait()
			b.requireConflict()
			require.Len(t, b.sent.deadLetters(), 3)
		})
	})
	t.Run("another key", func(t *testing.T) {
		inBubble(t, func(t *testing.T, b *bench) {
			register(b)
			stop := b.runsDeferred()
			handle(t, b, inQueue("a", "x", 1))
			time.Sleep(time.Hour)
			synctest.Wait()
			stop()
			again := b.replayed()
			handle(t, b, inQueue("b", "other", 2), correction("b", 3), again)
			b.requireConflict()
		})
	})
}
