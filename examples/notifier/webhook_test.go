package main

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
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
		code  int
		after string
		want  settled
	}{
		"created":          {201, "", settled{1, ""}},
		"bad request":      {400, "", settled{1, idem.ClassPermanent}},
		"unprocessable":    {422, "", settled{1, idem.ClassPermanent}},
		"redirect":         {302, "", settled{1, idem.ClassPermanent}},
		"request timeout":  {408, "", settled{3, idem.ClassFailed}},
		"still being done": {409, "", settled{3, idem.ClassFailed}},
		"too early":        {425, "", settled{3, idem.ClassFailed}},
		"server error":     {500, "", settled{3, idem.ClassFailed}},
		"slow down":        {429, "", settled{3, idem.ClassFailed}},
		"slow down, now":   {429, "0", settled{3, idem.ClassRetryAfter}},
		// longer than a retry in place may wait
		"unavailable for hours": {503, "7200", settled{1, idem.ClassRetryAfter}},
		"unreadable wait":       {503, "soon", settled{3, idem.ClassFailed}},
	} {
		t.Run(name, func(t *testing.T) {
			var keys []string
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				keys = append(keys, r.Header.Get("Idempotency-Key"))
				if c.after != "" {
					w.Header().Set("Retry-After", c.after)
				}
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

func TestRetryAfter(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for v, want := range map[string]time.Duration{
		"7": 7 * time.Second, "0": 0, "Fri, 02 Jan 2026 03:04:35 GMT": 30 * time.Second, "Fri, 02 Jan 2026 03:00:00 GMT": 0,
	} {
		got, ok := retryAfter(v, now)
		require.True(t, ok, v)
		require.Equal(t, want, got, v)
	}
	for _, v := range []string{"", "soon", "-1", "99999999999999999999"} {
		_, ok := retryAfter(v, now)
		require.False(t, ok, v)
	}
}

// A refused connection had no effect, so even an event that must go out at most once is retried
// (rule 5). A broken connection leaves the result uncertain.
func TestWebhookDoubt(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	refused := "http://" + l.Addr().String()
	require.NoError(t, l.Close())
	require.Equal(t, settled{3, idem.ClassFailed}, settle(t, webhook(t, refused), idem.WhenUncertain(idem.DeadLetterUncertain)))

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
