package idemtest

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/httpidem"
)

// served is a server with a handler that sends a mail. key is the key for the mail provider, and
// answer the body of the answer.
func served(
	rerun bool, key func(context.Context) string, answer func(*shop) string,
) func(dedup.Store, *shop) (http.Handler, func()) {
	return func(store dedup.Store, s *shop) (http.Handler, func()) {
		m, err := httpidem.New(httpidem.Config{
			Store: store, Scope: "shop", Public: true, AnyPayload: true, Rerun: rerun, Logger: silent(),
		})
		if err != nil {
			panic(err)
		}
		return m.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if err := s.send(r.Context(), "ann", key(r.Context())); err != nil {
				// The next request runs again. The provider then knows the key.
				httpidem.NotApplied(r.Context())
				http.Error(w, "the mail server does not answer", http.StatusServiceUnavailable)
				return
			}
			w.WriteHeader(http.StatusCreated)
			_, _ = w.Write([]byte(answer(s)))
		})), m.Close
	}
}

func order() *http.Request {
	r := httptest.NewRequest(http.MethodPost, "/orders", strings.NewReader(`{"item":7}`))
	r.Header.Set("Idempotency-Key", "order-7")
	return r
}

func forwarded(ctx context.Context) string { return httpidem.ForwardKey(ctx, "mail") }

func sent(*shop) string { return "sent" }

func TestTortureHTTP(t *testing.T) {
	few := []TortureOption{Seed(1), Pairs(60)}
	t.Run("passes a key on", func(t *testing.T) {
		TortureHTTP(t, newShop, served(true, forwarded, sent), order, (*shop).state, few...)
	})
	t.Run("passes no key on", func(t *testing.T) {
		text, broken := SearchHTTP(t, newShop, served(true, noKey, sent), order, (*shop).state, few...)
		t.Log(text)
		require.True(t, broken)
		require.Contains(t, text, `had its effect 2 times, and 1 time without faults: it has no idempotency key`)
		require.Contains(t, text, "idemtest.TortureHTTP(t, newShop, server, order, (*shop).state,")
	})
	t.Run("an unknown outcome", func(t *testing.T) {
		server := served(false, forwarded, sent)
		text, broken := SearchHTTP(t, newShop, server, order, (*shop).state, few...)
		require.True(t, broken)
		require.Contains(t, text, "unknown_outcome")
		TortureHTTP(t, newShop, server, order, (*shop).state, append(few, AcceptUnknown())...)
	})
	// The handler runs again after a crash, and answers something else.
	t.Run("another answer", func(t *testing.T) {
		runs := func(s *shop) string {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.balance++
			return fmt.Sprintf("run %d", s.balance)
		}
		text, broken := SearchHTTP(t, newShop, served(true, forwarded, runs), order,
			func(s *shop) any { return len(s.mails) }, few...)
		t.Log(text)
		require.True(t, broken)
		require.Contains(t, text, "{Status:201 Body:run 2}")
	})
	t.Run("no middleware", func(t *testing.T) {
		text, broken := SearchHTTP(t, newShop, func(_ dedup.Store, s *shop) (http.Handler, func()) {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_ = s.send(r.Context(), "ann", "")
			}), func() {}
		}, order, (*shop).state, few...)
		require.True(t, broken, text)
	})
}

func TestReplyOfHTTP(t *testing.T) {
	later := http.Header{"Retry-After": {"1"}}
	for _, c := range []struct {
		status         int
		header         http.Header
		body           string
		again, unknown bool
	}{
		{200, nil, "", false, false},
		{201, later, "", false, false},
		{408, nil, "", true, false},
		{409, later, `{"code":"request_in_flight"}`, true, false},
		{409, nil, `{"code":"unknown_outcome"}`, false, true},
		{409, nil, `{"code":"not_replayable"}`, false, false},
		{409, nil, "no JSON", false, false},
		{422, nil, `{"code":"unknown_outcome"}`, false, false},
		{425, nil, "", true, false},
		{429, nil, "", true, false},
		{500, nil, "", true, false},
		{503, later, "", true, false},
	} {
		r := replyOfHTTP(c.status, c.header, c.body)
		require.Equal(t, c.again, r.again != nil, c)
		require.Equal(t, c.unknown, r.unknown, c)
		if !c.again {
			require.Equal(t, httpAnswer{c.status, c.body}, r.answer)
		}
	}
}

// A panic of a handler is no answer.
func TestSend_Panic(t *testing.T) {
	r := send(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		panic(errors.New("broken"))
	}), order())
	require.ErrorContains(t, r.again, "broken")
}
