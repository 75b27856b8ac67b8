package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/dedup/memstore"
	"github.com/idem-go/idem/observe"
)

// sendLog is a sender that records calls. fail, if not nil, answers each call.
type sendLog struct {
	mu   sync.Mutex
	out  []logLine
	fail func(call int) error
}

func (s *sendLog) Send(_ context.Context, n notification, key string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.out = append(s.out, logLine{n.EventID, n.Type, n.UserID, n.Template, key})
	if s.fail != nil {
		return s.fail(len(s.out))
	}
	return nil
}

func newProcessor(t *testing.T, send sender, observers ...observe.Observer) *idem.Processor {
	t.Helper()
	p, err := idem.NewProcessor(newRouter(send, 4*time.Hour), idem.Config{
		Store: memstore.New(), Scope: "any-group", Producer: discard{}, Observers: observers,
		Logger: slog.New(slog.DiscardHandler),
	})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, p.Close()) })
	return p
}

func deliver(t *testing.T, p *idem.Processor, offset int64, channel, id string) {
	t.Helper()
	value, err := json.Marshal(notification{EventID: id, Type: channel, UserID: "u1", Template: "welcome"})
	require.NoError(t, err)
	require.NoError(t, p.Handle(t.Context(), &idem.Message{Topic: "n", Offset: offset, Value: value}))
}

// The same event twice is one notification. On another channel it is another event.
func TestNotify_Idempotent(t *testing.T) {
	sent, counts := &sendLog{}, &counter{}
	p := newProcessor(t, sent, counts)
	offset := int64(0)
	for range 3 {
		for _, channel := range []string{"email", "sms", "push"} {
			deliver(t, p, offset, channel, "e1")
			offset++
		}
	}
	require.Len(t, sent.out, 3)
	keys := make(map[string]bool)
	for i, channel := range []string{"email", "sms", "push"} {
		require.Equal(t, channel, sent.out[i].Type)
		keys[sent.out[i].IdempotencyKey] = true
	}
	require.Len(t, keys, 3, "each channel has a key of its own")
	require.EqualValues(t, 9, counts.deliveries.Load())
	require.EqualValues(t, 3, counts.sent.Load())
	require.EqualValues(t, 6, counts.duplicates.Load())
}

// Identity and type may come in headers. The notification has them too.
func TestIdentityInHeaders_Idempotent(t *testing.T) {
	sent := &sendLog{}
	p := newProcessor(t, sent)
	for offset := range int64(2) {
		require.NoError(t, p.Handle(t.Context(), &idem.Message{
			Topic: "n", Offset: offset, Value: []byte(`{"user_id":"u1","template":"welcome"}`),
			Headers: []idem.Header{{Key: "event-id", Value: []byte("e1")}, {Key: "event-type", Value: []byte("push")}},
		}))
	}
	require.Len(t, sent.out, 1)
	require.Equal(t, "e1", sent.out[0].EventID)
	require.Equal(t, "push", sent.out[0].Type)
}

// A customer gets one mail for a paid order, whether the service writes IDs as numbers or as texts.
func TestOrderPaid_Idempotent(t *testing.T) {
	var out calls
	send, err := newSender("log", &out)
	require.NoError(t, err)
	p := newProcessor(t, send)
	for offset, value := range []string{
		`{"order_id":12345678,"customer_id":"ada","payment_id":"p-1"}`, `{"order_id":"12345678","customer_id":"ada"}`,
	} {
		require.NoError(t, p.Handle(t.Context(), &idem.Message{
			Topic: "orders", Offset: int64(offset), Value: []byte(value),
			Headers: []idem.Header{{Key: "event-id", Value: []byte("e1")}, {Key: "event-type", Value: []byte("order.paid")}},
		}))
	}
	require.Len(t, out, 1)
	var line map[string]string
	require.NoError(t, json.Unmarshal([]byte(out[0]), &line))
	require.NotEmpty(t, line["idempotency_key"])
	delete(line, "idempotency_key")
	require.Equal(t, map[string]string{
		"event_id": "e1", "order_id": "12345678", "type": "email", "user_id": "ada", "template": "order_paid",
	}, line)
	subject, _, err := render(order{OrderID: "7"}.notification("e1"))
	require.NoError(t, err)
	require.Equal(t, "Order 7 is paid", subject)
}

// A failure is retried under the same key and counts as one delivery.
func TestNotifyRetries_Idempotent(t *testing.T) {
	sent, counts := &sendLog{}, &counter{}
	sent.fail = func(call int) error {
		if call < 3 {
			return errors.New("provider is tired")
		}
		return nil
	}
	p := newProcessor(t, sent, counts)
	deliver(t, p, 0, "email", "e1")
	deliver(t, p, 1, "email", "e1")
	require.Len(t, sent.out, 3)
	require.Equal(t, sent.out[0], sent.out[2], "every attempt carries the same key (rule 38)")
	require.EqualValues(t, 2, counts.deliveries.Load())
	require.EqualValues(t, 1, counts.sent.Load())
	require.EqualValues(t, 2, counts.failed.Load())
	require.EqualValues(t, 1, counts.duplicates.Load())
}

// The store's scope is not the group: a group with another name does not send all notifications
// again (rule 14).
func TestScopeIsNotTheGroup_Idempotent(t *testing.T) {
	store, sent := memstore.New(), &sendLog{}
	for _, group := range []string{"notifier", "notifier-v2"} {
		p, err := idem.NewProcessor(newRouter(sent, time.Hour), idem.Config{Store: store, Scope: group})
		require.NoError(t, err)
		deliver(t, p, 0, "sms", "e1")
		require.NoError(t, p.Close())
	}
	require.Len(t, sent.out, 1)
}

func TestPoisonIsDeadLettered(t *testing.T) {
	counts, class := &counter{}, idem.Class("")
	send := &slowSender{provider: newProvider(), plug: newPlug(), before: 1, after: 1, begun: make(chan struct{})}
	p := newProcessor(t, send, counts, &classes{&class})
	for i, want := range []idem.Class{idem.ClassNotJSON, idem.ClassNoID, idem.ClassPermanent} {
		value := newPlan("n", 10, 0, 1).poison[i]
		require.NoError(t, p.Handle(t.Context(), &idem.Message{Topic: "n", Offset: int64(i), Value: []byte(value)}))
		require.Equal(t, want, class, value)
	}
	require.EqualValues(t, 3, counts.deadLettered.Load())
	require.EqualValues(t, 3, counts.deliveries.Load())
	require.Zero(t, send.provider.count())
}

// A line is one write, so that a kill leaves no partial line.
func TestLogSenderWritesWholeLines(t *testing.T) {
	var out calls
	s, err := newSender("log", &out)
	require.NoError(t, err)
	require.NoError(t, s.Send(t.Context(), sample, "k-1"))
	require.NoError(t, s.Send(t.Context(), notification{EventID: "e2\n", Type: "sms"}, "k-2"))
	require.Len(t, out, 2)
	require.JSONEq(t, `{"event_id":"e1","type":"email","user_id":"u1","template":"welcome","idempotency_key":"k-1"}`, out[0])
	require.Equal(t, byte('\n'), out[0][len(out[0])-1])
	require.Equal(t, 1, bytes.Count([]byte(out[1]), []byte("\n")))
}

type calls []string

func (c *calls) Write(p []byte) (int, error) { *c = append(*c, string(p)); return len(p), nil }

func TestRender(t *testing.T) {
	for _, name := range []string{
		"welcome", "order_confirmation", "order_paid", "order_shipped", "payment_received", "password_reset", "reminder", "plain",
	} {
		subject, _, err := render(notification{Template: name})
		require.NoError(t, err, name)
		require.NotEmpty(t, subject, name)
		require.NotContains(t, subject, "no value")
	}
	data := map[string]any{"order_id": "7", "tracking": "https://t.example/7"}
	subject, body, err := render(notification{Template: "order_shipped", Data: data})
	require.NoError(t, err)
	require.Equal(t, "Order 7 is on its way", subject)
	require.Equal(t, "Follow it here: https://t.example/7", body)
	for _, name := range []string{"", "birthday"} {
		_, _, err = render(notification{Template: name})
		require.ErrorContains(t, err, "no template")
	}
}
