package otelidem_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/consumer"
	"github.com/idem-go/idem/dedup/pgstore"
	"github.com/idem-go/idem/httpidem"
	"github.com/idem-go/idem/internal/testenv"
	"github.com/idem-go/idem/observe"
	"github.com/idem-go/idem/otelidem"
	"github.com/idem-go/idem/outbox"
	"github.com/idem-go/idem/outbox/pgoutbox"
)

// clientSpans and serverSpans act like instrumentations of HTTP.
type clientSpans struct{ tracer trace.Tracer }

func (c clientSpans) RoundTrip(r *http.Request) (*http.Response, error) {
	ctx, span := c.tracer.Start(r.Context(), "client "+r.URL.Path,
		trace.WithSpanKind(trace.SpanKindClient))
	defer span.End()
	r = r.Clone(ctx)
	propagation.TraceContext{}.Inject(ctx, propagation.HeaderCarrier(r.Header))
	return http.DefaultTransport.RoundTrip(r)
}

func serverSpans(tracer trace.Tracer, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx := propagation.TraceContext{}.Extract(r.Context(), propagation.HeaderCarrier(r.Header))
		ctx, span := tracer.Start(ctx, "server "+r.URL.Path,
			trace.WithSpanKind(trace.SpanKindServer))
		defer span.End()
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}

// way is a service with an outbox, a relay, and a consumer that notifies, all with one telemetry.
type way struct {
	*telemetry
	topic    string
	client   *http.Client
	provider *httptest.Server
	shop     *httptest.Server
	notified atomic.Int64
}

func (w *way) serve(h http.Handler) *httptest.Server {
	s := httptest.NewServer(serverSpans(w.tracer, h))
	w.t.Cleanup(s.Close)
	return s
}

func (w *way) post(ctx context.Context, url, key string) (*http.Response, error) {
	r, err := http.NewRequestWithContext(httpidem.WithKey(ctx, key), http.MethodPost, url,
		strings.NewReader(`{"order":7}`))
	if err != nil {
		return nil, err
	}
	resp, err := w.client.Do(r)
	if err != nil {
		return nil, err
	}
	return resp, resp.Body.Close()
}

// pay is the handler of requests: its event is published if its transaction commits.
func pay(topic string, box *pgoutbox.Outbox) http.HandlerFunc {
	return func(rw http.ResponseWriter, r *http.Request) {
		tx, _ := httpidem.TxFrom[pgx.Tx](r.Context())
		payload, _ := json.Marshal(map[string]int{"order": 7})
		if err := box.Add(r.Context(), tx, outbox.Entry{
			Topic: topic, Key: "order-7", Type: "order.paid", Payload: payload,
		}); err != nil {
			http.Error(rw, "no", http.StatusInternalServerError)
			return
		}
		rw.WriteHeader(http.StatusCreated)
	}
}

func newWay(t *testing.T) *way {
	brokers, url := testenv.Kafka(t), testenv.Postgres(t)
	tm := newTelemetry(t, otelidem.ContinueTraces())
	w := &way{telemetry: tm, topic: testenv.CreateTopic(t, brokers, 1)}
	w.client = &http.Client{
		Transport: &httpidem.Transport{Base: clientSpans{tm.tracer}, Observe: tm.ObserveSending},
	}
	w.provider = w.serve(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		w.notified.Add(1)
	}))

	pool, err := pgxpool.New(t.Context(), url)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	require.NoError(t, pgstore.Migrate(t.Context(), pool))
	require.NoError(t, pgoutbox.Migrate(t.Context(), pool))
	quiet := slog.New(slog.DiscardHandler)
	box := pgoutbox.New(pool, pgoutbox.Observers(tm.Observer))
	m, err := httpidem.NewTx[pgx.Tx](httpidem.Config{
		Store: pgstore.New(pool), Scope: "shop", Public: true,
		Secret: []byte("the same in all instances"), Logger: quiet, Observe: tm.ObserveRequest,
	})
	require.NoError(t, err)
	t.Cleanup(m.Close)
	w.shop = w.serve(m.Handler(pay(w.topic, box)))

	producer, err := consumer.OpenProducer(consumer.Config{Brokers: brokers, Logger: quiet})
	require.NoError(t, err)
	t.Cleanup(func() { _ = producer.Close() })
	relay, err := outbox.NewRelay(outbox.RelayConfig{
		Store: box, Producer: producer, Interval: 50 * time.Millisecond,
		Observers: []outbox.Observer{tm.Observer}, Logger: quiet,
	})
	require.NoError(t, err)
	router := idem.NewRouter()
	idem.On(router, "order.paid", func(ctx context.Context, e idem.Event[map[string]int]) error {
		_, err := w.post(ctx, w.provider.URL+"/notify", e.IdempotencyKey())
		return err
	})
	c, err := consumer.New(consumer.Config{
		Brokers: brokers, Group: w.topic + "-mail", Topics: []string{w.topic},
		Store: pgstore.New(pool), Observers: []observe.Observer{tm.Observer}, Logger: quiet,
		CreateDeadLetterTopics: &consumer.TopicSpec{},
	}, router)
	require.NoError(t, err)
	w.run(relay.Run)
	w.run(c.Run)
	return w
}

// run runs a function until the test ends.
func (w *way) run(fn func(context.Context) error) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- fn(ctx) }()
	w.t.Cleanup(func() {
		cancel()
		require.NoError(w.t, <-ended)
	})
}

// One trace covers the request, its transaction, the outbox, the relay, Kafka, the consumer and the
// notification. A copy of the request is a trace of its own, and ends at the store.
func TestOneTrace(t *testing.T) {
	w := newWay(t)
	ctx, root := w.tracer.Start(t.Context(), "checkout")
	resp, err := w.post(ctx, w.shop.URL+"/pay", "november")
	require.NoError(t, err)
	require.Equal(t, http.StatusCreated, resp.StatusCode)
	root.End()
	chain := []string{"checkout", "client /pay", "server /pay", "create " + w.topic, "process " +
		w.topic, "client /notify", "server /notify"}
	defer func() {
		if t.Failed() {
			t.Log(names(w.spans.GetSpans()))
		}
	}()
	require.Eventually(t, func() bool {
		return len(w.ended(chain[4])) == 1 && len(w.ended(chain[6])) == 1 &&
			len(w.ended("send "+w.topic)) == 1
	}, time.Minute, 20*time.Millisecond)

	copied, span := w.tracer.Start(t.Context(), "copy")
	resp, err = w.post(copied, w.shop.URL+"/pay", "november")
	require.NoError(t, err)
	require.True(t, httpidem.IsReplay(resp))
	span.End()

	whole := map[string]tracetest.SpanStub{}
	for _, s := range w.spans.GetSpans() {
		if s.SpanContext.TraceID() == root.SpanContext().TraceID() {
			require.NotContains(t, whole, s.Name)
			whole[s.Name] = s
		}
	}
	require.Len(t, whole, len(chain)+1)
	for i, name := range chain[1:] {
		require.Equal(t, whole[chain[i]].SpanContext.SpanID(), whole[name].Parent.SpanID(),
			"%s is a child of %s", name, chain[i])
	}
	created := whole["create "+w.topic]
	require.Equal(t, created.SpanContext.SpanID(), whole["send "+w.topic].Parent.SpanID())
	require.Equal(t, attr(created.Attributes, "messaging.message.id"),
		attr(whole["send "+w.topic].Attributes, "messaging.message.id"))
	require.Contains(t, attr(whole["process "+w.topic].Attributes, "idem.key"),
		attr(created.Attributes, "messaging.message.id"))

	requests := w.ended("server /pay")
	require.Len(t, requests, 2)
	require.Equal(t, "executed", attr(requests[0].Attributes, "idem.http.outcome"))
	require.Equal(t, "replayed", attr(requests[1].Attributes, "idem.http.outcome"))
	require.EqualValues(t, 1, w.notified.Load())
	require.Equal(t, 1, w.sum("idem.outbox.added", "messaging.destination.name="+w.topic,
		"idem.event.type=order.paid"))
	require.Equal(t, 1,
		w.sum("messaging.client.sent.messages", "messaging.destination.name="+w.topic))
}

func names(spans tracetest.SpanStubs) (all []string) {
	for _, s := range spans {
		all = append(all,
			fmt.Sprintf("%s (%s in %s)", s.Name, s.SpanContext.SpanID(), s.Parent.SpanID()))
	}
	return all
}
