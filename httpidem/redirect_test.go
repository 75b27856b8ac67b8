package httpidem_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/dedup/memstore"
	"github.com/idem-go/idem/httpidem"
)

// H-11: a 307 or 308 of a router behind the middleware, such as to the path with a slash at its
// end, leaves the key to the request that follows the redirect.
func TestRedirectOfARouter_H11(t *testing.T) {
	for name, redirect := range map[string]http.Handler{
		"307":     http.RedirectHandler("/t/", http.StatusTemporaryRedirect),
		"308":     http.RedirectHandler("/t/", http.StatusPermanentRedirect),
		"flushed": flushed{http.RedirectHandler("/t/", http.StatusTemporaryRedirect)},
		"ServeMux, which redirects to a path with a slash": nil,
	} {
		t.Run(name, func(t *testing.T) {
			s := newService(t)
			mux := http.NewServeMux()
			mux.Handle("POST /t/", s)
			if redirect != nil {
				mux.Handle("POST /t", redirect)
			}
			cfg := s.config(memstore.New())
			cfg.StreamOnFlush = true
			m, err := httpidem.New(cfg)
			require.NoError(t, err)
			defer m.Close()
			server := httptest.NewServer(m.Handler(mux))
			defer server.Close()
			ask := func(path string) *http.Response {
				resp, err := server.Client().Do(post(t.Context(), server.URL+path, "a"))
				require.NoError(t, err)
				require.NoError(t, resp.Body.Close())
				return resp
			}
			resp := ask("/t")
			require.Equal(t, http.StatusCreated, resp.StatusCode)
			require.Empty(t, resp.Header.Get(httpidem.DefaultReplayedHeader))
			resp = ask("/t/")
			require.Equal(t, http.StatusCreated, resp.StatusCode)
			require.Equal(t, "true", resp.Header.Get(httpidem.DefaultReplayedHeader))
			require.Equal(t, http.StatusUnprocessableEntity, ask("/t").StatusCode,
				"the key belongs to the path that ran")
			require.Equal(t, 1, s.ran("a"))
		})
	}
}

// flushed sends the answer of a handler before the handler has ended.
type flushed struct{ http.Handler }

func (f flushed) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.Handler.ServeHTTP(w, r)
	_ = http.NewResponseController(w).Flush()
}

// H-11: a redirect that keeps the method is no result of the request, unless a policy keeps it.
func TestDefaultResultPolicy_H11(t *testing.T) {
	for _, tx := range []bool{false, true} {
		for status, want := range map[int]httpidem.ResultPolicy{
			300: httpidem.Keep, 301: httpidem.Keep, 302: httpidem.Keep, 303: httpidem.Keep,
			304: httpidem.Keep, 307: httpidem.Forget, 308: httpidem.Forget,
		} {
			require.Equal(t, want, httpidem.DefaultResultPolicy(nil,
				httpidem.Outcome{Status: status, Tx: tx}), "status %d", status)
		}
	}
}

// H-11: a transaction with such an answer is rolled back.
func TestRedirectInATransaction_H11(t *testing.T) {
	s := newService(t)
	s.work = func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "/orders/", http.StatusTemporaryRedirect)
	}
	h := s.handler(httpidem.NewTx[pgx.Tx](s.config(inMemory{memstore.New()})))
	require.Equal(t, http.StatusTemporaryRedirect, send(h, "a").Code)
	require.Equal(t, httpidem.Forgotten, s.last())
}

// A policy of one's own may keep a redirect, of a handler that had an effect.
func TestKeptRedirect(t *testing.T) {
	s := newService(t)
	s.work = func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "/orders/", http.StatusTemporaryRedirect)
	}
	h := s.claimed(memstore.New(), func(c *httpidem.Config) {
		c.ResultPolicy = func(*http.Request, httpidem.Outcome) httpidem.ResultPolicy {
			return httpidem.Keep
		}
	})
	require.False(t, replayed(send(h, "a")))
	require.True(t, replayed(send(h, "a")))
	require.Equal(t, 1, s.ran("a"))
}
