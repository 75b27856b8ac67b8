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

// edited is the copy of the last dead letter with another value.
func (b *bench) edited(value string) *idem.Message {
	b.t.Helper()
	l, err := deadletter.Parse(b.lastDeadLetter())
	require.NoError(b.t, err)
	position, err := b.store.Reopen(b.t.Context(), l.Key)
	require.NoError(b.t, err)
	m, err := l.WithValue([]byte(value)).Redrive(position)
	require.NoError(b.t, err)
	require.NotEqual(b.t, value, string(l.Message.Value), "the dead letter stays")
	return m
}

func (b *bench) lastDeadLetter() *idem.Message {
	b.t.Helper()
	letters := b.sent.deadLetters()
	last := letters[len(letters)-1]
	require.Equal(b.t, "orders.g.dlq", last.Topic)
	return last
}

// An edited event is still one after delayed retries of each kind, so that its next dead letter
// shows that.
func TestEditedReplay_KeepsItsMark(t *testing.T) {
	fails := func(context.Context, idem.Event[payload]) error { return errBoom }
	for name, option := range map[string]idem.Option{
		"retry topics": idem.RetryTopics(time.Minute), "key order": idem.KeyOrdered(time.Minute),
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *bench) {
				opts := []idem.Option{once, option}
				if name == "key order" {
					opts = append(opts, idem.ContinueAfterDead())
				}
				b.on(fails, opts...)
				b.start()
				settle := func() {
					if name == "key order" {
						defer b.runsDeferred()()
						time.Sleep(time.Hour)
						synctest.Wait()
						return
					}
					b.deliverCopies()
				}
				require.NoError(t, b.p.Handle(t.Context(), inQueue("a", "x", 1)))
				settle()
				first := b.lastDeadLetter()
				require.Empty(t, headerOf(first, deadletter.HeaderEdited))
				value := `{"event_id":"x","type":"paid","amount":9}`
				require.NoError(t, b.p.Handle(t.Context(), b.edited(value)))
				settle()
				last := b.lastDeadLetter()
				require.JSONEq(t, value, string(last.Value))
				require.Equal(t, deadletter.ValueHash(first.Value), headerOf(last, deadletter.HeaderEdited))
			})
		})
	}
}
