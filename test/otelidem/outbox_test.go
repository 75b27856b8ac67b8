package otelidem_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	tracenoop "go.opentelemetry.io/otel/trace/noop"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/otelidem"
	"github.com/idem-go/idem/outbox"
)

// boxTable is an outbox in memory for one relay.
type boxTable struct {
	mu   sync.Mutex
	rows []outbox.Row
	down bool // the database
	gone map[int64]bool
	back outbox.Backlog
}

func (t *boxTable) add(topic, key, id string, headers ...idem.Header) {
	t.mu.Lock()
	defer t.mu.Unlock()
	e := outbox.Entry{
		Topic: topic, Key: key, Type: "order.paid", ID: id, Payload: []byte("secret"),
		Headers: headers,
	}
	t.rows = append(t.rows, outbox.Row{Seq: int64(len(t.rows) + 1), Entry: e, Added: time.Now()})
}

func (*boxTable) Hold(context.Context, string, time.Duration, bool) ([]outbox.Lease, error) {
	return []outbox.Lease{{Shard: 0, Epoch: 1}}, nil
}

func (*boxTable) Leave(context.Context, string) error { return nil }

func (t *boxTable) Fetch(_ context.Context, f outbox.Fetch) (rows []outbox.Row, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.down {
		return nil, errors.New("dial tcp: secret")
	}
	for _, r := range t.rows {
		skipped := slices.Contains(f.Skip, outbox.Aggregate{Topic: r.Entry.Topic, Key: r.Entry.Key})
		if !t.gone[r.Seq] && !skipped && len(rows) < f.Limit {
			rows = append(rows, r)
		}
	}
	return rows, nil
}

func (t *boxTable) Settle(
	_ context.Context, _ string, _ []outbox.Lease, s outbox.Settlement,
) ([]int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.gone == nil {
		t.gone = map[int64]bool{}
	}
	for _, row := range slices.Concat(s.Sent, s.Blocked) {
		t.gone[row.Seq] = true
	}
	for row := range s.Parked {
		t.gone[row.Seq] = true
	}
	return nil, nil
}

func (*boxTable) Purge(context.Context, time.Duration, int) (int64, error) { return 0, nil }

func (t *boxTable) Backlog(context.Context, int) (outbox.Backlog, error) { return t.back, nil }

// kafkaLike takes a millisecond, and refuses chosen events.
type kafkaLike struct {
	refuse map[string]error // by ID
	under  []trace.SpanContext
}

func (k *kafkaLike) ProduceEach(ctx context.Context, msgs []*idem.Message) []error {
	time.Sleep(time.Millisecond)
	k.under = append(k.under, trace.SpanContextFromContext(ctx))
	errs := make([]error, len(msgs))
	for i, m := range msgs {
		errs[i] = k.refuse[string(m.Headers[0].Value)]
	}
	return errs
}

// relay runs one for a while, in a bubble.
func (tm *telemetry) relay(store *boxTable, k *kafkaLike, during func()) {
	r, err := outbox.NewRelay(outbox.RelayConfig{
		Store: store, Producer: k, Name: "shop", Observers: []outbox.Observer{tm.Observer},
		Logger: slog.New(slog.DiscardHandler),
	})
	require.NoError(tm.t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = r.Run(ctx)
	}()
	time.Sleep(30 * time.Second)
	during()
	cancel()
	<-ended
}

// sends returns the spans of relays.
func (tm *telemetry) sends() (spans tracetest.SpanStubs) {
	for _, s := range tm.ended("send orders") {
		if s.SpanKind == trace.SpanKindClient {
			spans = append(spans, s)
		}
	}
	return spans
}

// create returns the headers of an event that has a span "create".
func (tm *telemetry) create(sampled bool) (headers []idem.Header, sc trace.SpanContext) {
	m, sc := tm.traced(&idem.Message{}, sampled)
	return m.Headers, sc
}

// The work of a relay is counted, by topic, outcome and kind of error.
func TestOutbox_Metrics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tm := newTelemetry(t)
		store := &boxTable{
			back: outbox.Backlog{Waiting: 12, Oldest: 90 * time.Second, Parked: 3, Blocked: 2},
		}
		for i := range 5 {
			store.add("orders", fmt.Sprint("k", i), fmt.Sprint("e", i))
		}
		store.add("mails", "k", "large")
		store.add("mails", "k", "behind")
		time.Sleep(2 * time.Second)
		refused := fmt.Errorf("secret: %w", idem.ErrTooLarge)
		tm.relay(store, &kafkaLike{refuse: map[string]error{"large": refused}}, func() {
			require.Equal(t, 12, tm.sum("idem.outbox.backlog", "idem.outbox.name=shop"))
			require.Equal(t, 90, tm.sum("idem.outbox.backlog.age", "idem.outbox.name=shop"))
			require.Equal(t, 3, tm.sum("idem.outbox.parked", "idem.outbox.name=shop"))
			require.Equal(t, 2, tm.sum("idem.outbox.blocked", "idem.outbox.name=shop"))
			require.Equal(t, 1, tm.sum("idem.outbox.shards", "idem.outbox.name=shop"))
			store.mu.Lock()
			store.down = true
			store.mu.Unlock()
			time.Sleep(time.Second)
		})
		require.Equal(t, 5, tm.sum("messaging.client.sent.messages",
			"messaging.destination.name=orders", "error.type="))
		require.Equal(t, 1, tm.sum("messaging.client.sent.messages",
			"messaging.destination.name=mails", "error.type=too_large"))
		require.EqualValues(t, 5,
			tm.count("idem.outbox.delay", "messaging.destination.name=orders"))
		require.Equal(t, 10, tm.sum("idem.outbox.delay"), "five times two seconds")
		require.EqualValues(t, 1, tm.count("messaging.client.operation.duration",
			"messaging.operation.name=send", "messaging.operation.type=send",
			"messaging.destination.name=", "error.type=too_large"))
		for outcome, want := range map[string]int{"sent": 5, "parked": 1, "blocked": 1,
			"failed": 0} {
			require.Equal(t, want, tm.sum("idem.outbox.rows", "idem.outbox.outcome="+outcome,
				"idem.outbox.name=shop"), outcome)
		}
		require.Positive(t,
			tm.sum("idem.outbox.errors", "idem.outbox.name=shop", "error.type=_OTHER"))
		require.Empty(t, tm.series()["idem.outbox.backlog"], "no relay reports it any longer")
		require.Empty(t, tm.series()["idem.outbox.shards"])
		tm.requireListed()
	})
}

// The span of a batch has links to its events. The span of one event is a child of the event's span
// if traces are continued. No payload, no text of an error.
func TestOutbox_SendSpans(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tm := newTelemetry(t)
		store := &boxTable{}
		var created []trace.SpanID
		for i := range 50 {
			headers, sc := tm.create(i > 0)
			if i > 0 {
				created = append(created, sc.SpanID())
			}
			store.add("orders", "", fmt.Sprint("e", i), headers...)
		}
		k := &kafkaLike{refuse: map[string]error{"e7": errors.New("secret")}}
		tm.relay(store, k, func() {})
		s := tm.sends()[0]
		require.Equal(t, s.SpanContext.SpanID(), k.under[0].SpanID(), "the producer works in it")
		require.Equal(t, trace.SpanKindClient, s.SpanKind)
		require.False(t, s.Parent.IsValid())
		require.Len(t, s.Links, 32)
		for i, l := range s.Links {
			require.Equal(t, created[i], l.SpanContext.SpanID())
			require.Equal(t, fmt.Sprint("e", i+1), attr(l.Attributes, "messaging.message.id"))
		}
		for key, want := range map[string]string{
			"messaging.system": "kafka", "messaging.operation.name": "send",
			"messaging.operation.type": "send", "messaging.destination.name": "orders",
			"messaging.batch.message_count": "50", "messaging.message.id": "",
			"error.type": "_OTHER", "idem.send.failed": "1",
		} {
			require.Equal(t, want, attr(s.Attributes, key), key)
		}
		require.Equal(t, sdktrace.Status{Code: codes.Error, Description: "_OTHER"}, s.Status)
		require.NotContains(t, fmt.Sprint(tm.spans.GetSpans()), "secret")
	})
}

func TestOutbox_SendSpanOfOne(t *testing.T) {
	for name, opts := range map[string][]otelidem.Option{"linked": nil,
		"continued": {otelidem.ContinueTraces()}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tm := newTelemetry(t, opts...)
				store := &boxTable{}
				headers, sc := tm.create(true)
				store.add("orders", "k", "e1", headers...)
				tm.relay(store, &kafkaLike{}, func() {})
				require.Len(t, tm.sends(), 1)
				s := tm.sends()[0]
				require.Equal(t, "e1", attr(s.Attributes, "messaging.message.id"))
				require.Equal(t, codes.Unset, s.Status.Code)
				if opts == nil {
					require.False(t, s.Parent.IsValid())
					require.Equal(t, sc.SpanID(), s.Links[0].SpanContext.SpanID())
					return
				}
				require.Equal(t, sc.SpanID(), s.Parent.SpanID())
				require.Equal(t, sc.TraceID(), s.SpanContext.TraceID())
				require.Empty(t, s.Links)
			})
		})
	}
}

// An entry has a span "create" in the trace of the caller that adds it, until the call has ended.
// An entry with a trace of its own has no such span.
func TestOutbox_CreateSpans(t *testing.T) {
	tm := newTelemetry(t)
	ctx, parent := tm.tracer.Start(t.Context(), "handler")
	e := &outbox.Entry{
		Topic: "orders", Key: "customer-4711", Type: "order.paid", ID: "e1",
		Payload: []byte("secret"),
	}
	inner := tm.BeginAdd(ctx, e)
	require.Empty(t, tm.ended("create orders"))
	tm.EndAdd(inner, e, nil)
	failed := tm.BeginAdd(ctx, e)
	tm.EndAdd(failed, e, fmt.Errorf("secret: %w", outbox.ErrEntry))
	spans := tm.ended("create orders")
	require.Len(t, spans, 2)
	s := spans[0]
	require.Equal(t, s.SpanContext.SpanID(), trace.SpanContextFromContext(inner).SpanID())
	require.Equal(t, parent.SpanContext().SpanID(), s.Parent.SpanID())
	require.Equal(t, trace.SpanKindProducer, s.SpanKind)
	for key, want := range map[string]string{
		"messaging.system": "kafka", "messaging.operation.name": "create",
		"messaging.operation.type": "create", "messaging.destination.name": "orders",
		"messaging.message.id": "e1", "idem.event.type": "order.paid",
		"messaging.message.body.size": "6", "messaging.kafka.message.key": "",
	} {
		require.Equal(t, want, attr(s.Attributes, key), key)
	}
	require.Equal(t, codes.Unset, s.Status.Code)
	require.Equal(t, codes.Error, spans[1].Status.Code)
	require.Equal(t, "invalid_entry", attr(spans[1].Attributes, "error.type"))
	require.NotContains(t, fmt.Sprint(spans), "secret")

	own := *e
	own.Headers = []idem.Header{{Key: "Traceparent", Value: []byte("mine")}}
	inner = tm.BeginAdd(ctx, &own)
	require.Equal(t, ctx, inner)
	tm.EndAdd(inner, &own, nil)
	require.True(t, parent.IsRecording(), "it is not ours to end")
	require.Len(t, tm.ended("create orders"), 2)
	parent.End()

	keys := newTelemetry(t, otelidem.MessageKeys())
	keys.EndAdd(keys.BeginAdd(t.Context(), e), e, nil)
	require.Equal(t, "customer-4711",
		attr(keys.ended("create orders")[0].Attributes, "messaging.kafka.message.key"))
}

// Without tracing, contexts stay as they are. An unsampled trace is passed on.
func TestOutbox_NoSpans(t *testing.T) {
	off := newTelemetry(t, otelidem.TracerProvider(tracenoop.NewTracerProvider()))
	e := &outbox.Entry{Topic: "orders", Type: "order.paid", ID: "e1"}
	require.Equal(t, t.Context(), off.BeginAdd(t.Context(), e))
	off.EndAdd(t.Context(), e, nil)

	never := newTelemetry(
		t, otelidem.TracerProvider(
			sdktrace.NewTracerProvider(sdktrace.WithSampler(sdktrace.NeverSample())),
		),
	)
	ctx := never.BeginAdd(t.Context(), e)
	carrier := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, carrier)
	require.Regexp(t, "-00$", carrier["traceparent"])
	never.EndAdd(ctx, e, errBoom)
}

// Rows count when they are written, by topic and type. A new topic or type for each event creates
// no new series (G-15).
func TestOutbox_Added(t *testing.T) {
	tm := newTelemetry(t)
	entries := []outbox.Entry{{Topic: "a", Type: "x"}, {Topic: "a", Type: "x"},
		{Topic: "a", Type: "y"}, {Topic: "b", Type: "x"}}
	tm.ObserveWrite(t.Context(), outbox.Write{Entries: entries})
	tm.ObserveWrite(t.Context(), outbox.Write{Entries: entries, Err: errBoom})
	require.Equal(t, 3, tm.sum("idem.outbox.added", "messaging.destination.name=a"))
	require.Equal(t, 2,
		tm.sum("idem.outbox.added", "messaging.destination.name=a", "idem.event.type=x"))
	require.Equal(t, 1, tm.sum("idem.outbox.added", "messaging.destination.name=b"))
	for i := range 5000 {
		id := fmt.Sprint("id-", i)
		tm.ObserveWrite(t.Context(), outbox.Write{Entries: []outbox.Entry{{Topic: id, Type: id}}})
		tm.ObserveBacklog(t.Context(), outbox.Backlog{Outbox: id, Waiting: 1})
		tm.ObserveRound(t.Context(), outbox.Round{Outbox: id, Sent: 1, Err: errors.New(id)})
	}
	require.Equal(t, 5004, tm.sum("idem.outbox.added"))
	require.Equal(t, 5000, tm.sum("idem.outbox.rows"))
	for name, ps := range tm.series() {
		require.LessOrEqual(t, len(ps), 1001, name)
		for _, p := range ps {
			kv, _ := p.attrs.Value(attribute.Key("error.type"))
			require.NotContains(t, kv.String(), "id-")
		}
	}
	require.Len(t, tm.series()["idem.outbox.backlog"], 100)
	tm.requireListed()
}
