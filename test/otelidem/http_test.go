package otelidem_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/dedup/memstore"
	"github.com/idem-go/idem/httpidem"
)

// middleware returns one over a store in memory.
func (tm *telemetry) middleware(store dedup.Store) *httpidem.Middleware {
	m, err := httpidem.New(httpidem.Config{
		Store: store, Scope: "orders", Public: true, Secret: []byte("the same in all instances"),
		Logger: slog.New(slog.DiscardHandler), Observe: tm.ObserveRequest,
	})
	require.NoError(tm.t, err)
	tm.t.Cleanup(m.Close)
	return m
}

// ask sends a request with a key to a handler, within a span like that of an HTTP instrumentation.
func (tm *telemetry) ask(h http.Handler, key, body string) *httptest.ResponseRecorder {
	ctx, span := tm.tracer.Start(context.Background(), "POST /orders")
	defer span.End()
	r := httptest.NewRequestWithContext(ctx, http.MethodPost, "/orders", strings.NewReader(body))
	if key != "" {
		r.Header.Set("Idempotency-Key", key)
	}
	rec := httptest.NewRecorder()
	h.ServeHTTP(rec, r)
	return rec
}

// unavailable is an unavailable store.
type unavailable struct{ *memstore.Store }

func (unavailable) Claim(
	ctx context.Context, _ dedup.Token, _ time.Duration, _ []dedup.Request, _ []dedup.Answer,
) error {
	return fmt.Errorf("secret: %w", dedup.ErrUnavailable)
}

// H-12: spans have a hash of the principal if the store has one.
func TestHTTP_HashedPrincipal_H12(t *testing.T) {
	tm := newTelemetry(t)
	secret := []byte("sixteen bytes or more")
	m, err := httpidem.New(httpidem.Config{
		Store: memstore.New(), Scope: "orders", Secret: secret, PrincipalSecret: secret,
		Observe:   tm.ObserveRequest,
		Principal: func(*http.Request) (string, error) { return "alice@example.com", nil },
	})
	require.NoError(t, err)
	t.Cleanup(m.Close)
	tm.ask(m.Handler(http.NotFoundHandler()), "november", "1")
	spans := tm.ended("POST /orders")
	require.Len(t, spans, 1)
	require.Equal(t, ":orders:http:"+httpidem.HashPrincipal(secret,
		"alice@example.com")+"%3Anovember", attr(spans[0].Attributes, "idem.key"))
}

// Requests are counted by outcome, and their span has the outcome and the key.
func TestHTTP_Requests(t *testing.T) {
	tm := newTelemetry(t)
	h := tm.middleware(memstore.New()).Handler(
		http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusCreated)
		}),
	)
	for range 3 {
		tm.ask(h, "november", "1")
	}
	tm.ask(h, "november", "2")
	tm.ask(h, "", "1")
	tm.ask(tm.middleware(unavailable{memstore.New()}).Handler(h), "november", "1")
	for outcome, want := range map[string]int{"executed": 1, "replayed": 2, "mismatch": 1,
		"refused": 1, "unavailable": 1} {
		require.Equal(t, want, tm.sum("idem.http.requests", "idem.http.outcome="+outcome), outcome)
		require.EqualValues(t, want,
			tm.count("idem.http.wait.duration", "idem.http.outcome="+outcome), outcome)
	}
	require.Equal(t, 1, tm.sum("idem.http.requests", "error.type=unavailable"))
	spans := tm.ended("POST /orders")
	require.Len(t, spans, 6)
	for i, want := range []string{"executed", "replayed", "replayed", "mismatch", "refused",
		"unavailable"} {
		require.Equal(t, want, attr(spans[i].Attributes, "idem.http.outcome"))
		key := ":orders:http:november"
		if want == "refused" {
			key = ""
		}
		require.Equal(t, key, attr(spans[i].Attributes, "idem.key"))
	}
	require.NotContains(t, fmt.Sprint(tm.spans.GetSpans(), tm.series()), "secret")
	tm.requireListed()
}

// A new key for each request creates no new series (G-15).
func TestHTTP_Cardinality(t *testing.T) {
	tm := newTelemetry(t)
	for i := range 5000 {
		id := fmt.Sprint("id-", i)
		tm.ObserveRequest(t.Context(), httpidem.Observation{
			Request: httptest.NewRequest(http.MethodPost, "/"+id, nil), Key: dedup.Key{ID: id},
			Result: httpidem.Executed, Status: 200 + i, Err: errors.New(id),
		})
		tm.ObserveDo(t.Context(), dedup.DoEvent{
			Key: dedup.Key{Scope: id, Type: id, ID: id}, Outcome: dedup.DoRan, Err: errors.New(id),
		})
	}
	require.Equal(t, 5000, tm.sum("idem.http.requests"))
	require.Equal(t, 5000, tm.sum("idem.do.calls"))
	require.Equal(t, 4, tm.size())
}

// scripted answers each attempt in turn; zero is a broken connection.
type scripted []int

func (s *scripted) RoundTrip(*http.Request) (*http.Response, error) {
	status := (*s)[0]
	*s = (*s)[1:]
	if status == 0 {
		return nil, errBoom
	}
	rec := httptest.NewRecorder()
	rec.Header().Set(httpidem.DefaultReplayedHeader, fmt.Sprint(status == http.StatusOK))
	rec.WriteHeader(status)
	return rec.Result(), nil
}

// Client requests and their retries are counted, and recorded on the span of the caller.
func TestHTTP_Client(t *testing.T) {
	tm := newTelemetry(t)
	send := func(script ...int) {
		base := scripted(script)
		client := &http.Client{
			Transport: &httpidem.Transport{
				Base: &base, Attempts: len(script), Backoff: 1, Observe: tm.ObserveSending,
			},
		}
		ctx, span := tm.tracer.Start(t.Context(), "client")
		defer span.End()
		r, err := http.NewRequestWithContext(httpidem.WithKey(ctx, "pay-1"), http.MethodPost,
			"http://api.test/", strings.NewReader("x"))
		require.NoError(t, err)
		if resp, err := client.Do(r); err == nil {
			_ = resp.Body.Close()
		}
	}
	send(503, 0, 201)
	send(200)
	send(0, 0)
	for outcome, want := range map[string][2]int{"answered": {1, 2}, "replayed": {1, 0},
		"unanswered": {1, 1}} {
		label := "idem.http.client.outcome=" + outcome
		require.Equal(t, want, [2]int{tm.sum("idem.http.client.requests", label),
			tm.sum("idem.http.client.resends", label)}, outcome)
	}
	event := tm.ended("client")[0].Events[0]
	require.Equal(t, "idem.http.sent", event.Name)
	require.Equal(t, "3", attr(event.Attributes, "idem.http.client.attempts"))
	require.Equal(t, "pay-1", attr(event.Attributes, "idem.key"))
	tm.requireListed()
}
