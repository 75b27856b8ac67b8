package main

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/dedup/memstore"
	"github.com/idem-go/idem/observe"
)

var sample = notification{
	EventID: "e1", Type: "email", UserID: "u1", Template: "welcome", Data: map[string]any{"name": "Ada"},
}

func webhook(t *testing.T, url string) sender {
	t.Helper()
	s, err := newSender(url, nil)
	require.NoError(t, err)
	return s
}

func TestWebhookForwardsTheKey(t *testing.T) {
	var got webhookBody
	var key, contentType, method string
	srv := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		key, contentType, method = r.Header.Get("Idempotency-Key"), r.Header.Get("Content-Type"), r.Method
		_ = json.NewDecoder(r.Body).Decode(&got)
	}))
	defer srv.Close()
	require.NoError(t, webhook(t, srv.URL).Send(t.Context(), sample, "k-1"))
	require.Equal(t, "k-1", key)
	require.Equal(t, http.MethodPost, method)
	require.Equal(t, "application/json", contentType)
	require.Equal(t, webhookBody{notification: sample, IdempotencyKey: "k-1"}, got)
}

// settled is the result of a sender's error: the number of runs, and the class of the dead letter.
type settled struct {
	runs  int
	class idem.Class
}

// settle sends one event through a processor with quick retries, three runs at most.
func settle(t *testing.T, send sender, opts ...idem.Option) settled {
	t.Helper()
	var out settled
	quick := idem.Retry(idem.RetryPolicy{MaxAttempts: 3, MinBackoff: time.Millisecond, InPlace: 20 * time.Second})
	router := idem.NewRouter(quick).With(opts...)
	idem.On(router, "email", func(ctx context.Context, e idem.Event[notification]) error {
		out.runs++
		return notify(send)(ctx, e)
	})
	p, err := idem.NewProcessor(router, idem.Config{
		Store: memstore.New(), Scope: "test", Producer: discard{}, Observers: []observe.Observer{&classes{&out.class}},
		Logger: slog.New(slog.DiscardHandler),
	})
	require.NoError(t, err)
	value, err := json.Marshal(sample)
	require.NoError(t, err)
	require.NoError(t, p.Handle(t.Context(), &idem.Message{Topic: "n", Value: value}))
	require.NoError(t, p.Close())
	return out
}

type discard struct{}

func (discard) Produce(context.Context, ...*idem.Message) error { return nil }

type classes struct{ last *idem.Class }

func (c *classes) ObserveDeadLetter(_ context.Context, e observe.DeadLetterEvent) { *c.last = e.Class }

func TestWebhookAnswers(t *testing.T) {
	for name, c := range map[string]struct {
		code int
		want settled
	}{
		"created":          {201, settled{1, ""}},
		"bad request":      {400, settled{1, idem.ClassPermanent}},
		"unprocessable":    {422, settled{1, idem.ClassPermanent}},
		"request timeout":  {408, settled{3, idem.ClassFailed}},
		"still being done": {409, settled{3, idem.ClassFailed}},
		"too early":        {425, settled{3, idem.ClassFailed}},
		"server error":     {500, settled{3, idem.ClassFailed}},
		// wrong settings concern every notification: none of them is given up at once
		"redirect":     {302, settled{3, idem.ClassFailed}},
		"wrong token":  {401, settled{3, idem.ClassFailed}},
		"no right":     {403, settled{3, idem.ClassFailed}},
		"no such path": {404, settled{3, idem.ClassFailed}},
	} {
		t.Run(name, func(t *testing.T) {
			var keys []string
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				keys = append(keys, r.Header.Get("Idempotency-Key"))
				w.Header().Set("Location", "/elsewhere")
				w.WriteHeader(c.code)
			}))
			defer srv.Close()
			require.Equal(t, c.want, settle(t, webhook(t, srv.URL)))
			require.Len(t, keys, c.want.runs)
			for _, k := range keys {
				require.Equal(t, keys[0], k, "every attempt carries the same key (rule 38)")
				require.Len(t, k, 36)
			}
		})
	}
}

// answering is a provider without a network, for fake time.
type answering func(call int) *http.Response

func (a answering) webhook() *webhookSender {
	calls := 0
	return &webhookSender{url: "http://provider", client: &http.Client{
		Transport: transport(func(r *http.Request) (*http.Response, error) {
			httptrace.ContextClientTrace(r.Context()).GotConn(httptrace.GotConnInfo{})
			calls++
			resp := a(calls)
			resp.Body = http.NoBody
			return resp, nil
		}),
	}}
}

type transport func(*http.Request) (*http.Response, error)

func (t transport) RoundTrip(r *http.Request) (*http.Response, error) { return t(r) }

// A provider that is down or overloaded for long stops the partition, and costs no notification.
func TestWebhookAway(t *testing.T) {
	for _, code := range []int{429, 502, 503, 504} {
		t.Run(strconv.Itoa(code), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				provider := answering(func(int) *http.Response {
					resp := &http.Response{StatusCode: http.StatusOK, Header: http.Header{}}
					if time.Since(began) < time.Hour {
						resp.StatusCode = code
						resp.Header.Set("Retry-After", "60")
					}
					return resp
				})
				var given idem.Class
				p, err := idem.NewProcessor(newRouter(provider.webhook(), 4*time.Hour), idem.Config{
					Store: memstore.New(), Scope: "test", Producer: discard{}, BusyWait: idem.Forever,
					Observers: []observe.Observer{&classes{&given}}, Logger: slog.New(slog.DiscardHandler),
				})
				require.NoError(t, err)
				defer func() { require.NoError(t, p.Close()) }()
				deliver(t, p, 0, "email", "e1")
				require.Empty(t, given, "class of a dead letter")
				require.InDelta(t, time.Hour, time.Since(began), float64(11*time.Second),
					"the breaker tries every ten seconds")
			})
		})
	}
}

// requireAway checks that all events wait after an error, also those that go out at most once.
func requireAway(t *testing.T, send sender) {
	t.Helper()
	err := send.Send(t.Context(), sample, "k")
	require.Equal(t, "unavailable", idem.ErrorMark(err))
	require.Equal(t, "not_applied", idem.ErrorMark(errors.Unwrap(err)))
}

// A refused connection had no effect, so even an event that must go out at most once waits (rule 5).
// A broken connection leaves the result uncertain.
func TestWebhookDoubt(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	refused := "http://" + l.Addr().String()
	require.NoError(t, l.Close())
	requireAway(t, webhook(t, refused))

	var requests atomic.Int32
	srv := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		requests.Add(1)
		panic(http.ErrAbortHandler)
	}))
	defer srv.Close()
	require.Equal(t, settled{1, idem.ClassFailed}, settle(t, webhook(t, srv.URL), idem.WhenUncertain(idem.DeadLetterUncertain)))
	require.EqualValues(t, 1, requests.Load())
}

func TestWebhookEndsWithItsContext(t *testing.T) {
	hold := make(chan struct{})
	srv := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-hold:
		case <-r.Context().Done():
		}
	}))
	defer srv.Close()
	defer close(hold)
	stop := errors.New("stop")
	ctx, cancel := context.WithCancelCause(t.Context())
	timer := time.AfterFunc(20*time.Millisecond, func() { cancel(stop) })
	defer timer.Stop()
	require.ErrorIs(t, webhook(t, srv.URL).Send(ctx, sample, "k"), stop)
}

func TestNewSenderRefuses(t *testing.T) {
	for _, address := range []string{
		"", "stdout", "ftp://host", "http://", "smtp://", "smtp://host:99999", "smtp://host?tls=maybe",
		"smtp://host?from=nobody", "://",
	} {
		_, err := newSender(address, nil)
		require.Error(t, err, address)
		require.True(t, strings.HasPrefix(err.Error(), "-sender") || strings.Contains(err.Error(), "mail"), "%q: %v", address, err)
	}
}
