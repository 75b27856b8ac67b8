package httpidem_test

import (
	"bytes"
	"compress/gzip"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/dedup/memstore"
	"github.com/idem-go/idem/httpidem"
)

// compressed is a middleware that compresses answers for clients that accept it.
func compressed(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Add("Vary", "Accept-Encoding")
		if !strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
			next.ServeHTTP(w, r)
			return
		}
		rec := httptest.NewRecorder()
		next.ServeHTTP(rec, r)
		for name, values := range rec.Header() {
			w.Header()[name] = values
		}
		w.Header().Set("Content-Encoding", "gzip")
		w.Header().Add("Vary", "Accept-Encoding")
		w.Header().Del("Content-Length")
		w.WriteHeader(rec.Code)
		z := gzip.NewWriter(w)
		_, _ = z.Write(rec.Body.Bytes())
		_ = z.Close()
	})
}

// TestCompression_H17: an answer and its replay can be read by their Content-Encoding, with a
// compressing middleware in front of the store's or behind it.
func TestCompression_H17(t *testing.T) {
	text := strings.Repeat("paid ", 100)
	handler := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusCreated)
		_, _ = io.WriteString(w, text)
	})
	for name, c := range map[string]struct {
		build   func(m *httpidem.Middleware) http.Handler
		replays map[string]string // Content-Encoding by Accept-Encoding
	}{
		"in front": {
			build:   func(m *httpidem.Middleware) http.Handler { return compressed(m.Handler(handler)) },
			replays: map[string]string{"gzip": "gzip", "": ""},
		},
		"behind": {
			build:   func(m *httpidem.Middleware) http.Handler { return m.Handler(compressed(handler)) },
			replays: map[string]string{"gzip": "gzip", "": "gzip"}, // the stored bytes
		},
	} {
		t.Run(name, func(t *testing.T) {
			m, err := httpidem.New(httpidem.Config{
				Store: memstore.New(), Scope: "api", Public: true, AnyPayload: true,
			})
			require.NoError(t, err)
			t.Cleanup(m.Close)
			h := c.build(m)
			send := func(accept string) *httptest.ResponseRecorder {
				r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", http.NoBody)
				r.Header.Set("Idempotency-Key", "key-1")
				if accept != "" {
					r.Header.Set("Accept-Encoding", accept)
				}
				rec := httptest.NewRecorder()
				h.ServeHTTP(rec, r)
				return rec
			}
			require.Equal(t, "gzip", send("gzip").Header().Get("Content-Encoding"))
			for accept, want := range c.replays {
				rec := send(accept)
				require.Equal(t, http.StatusCreated, rec.Code)
				require.Equal(t, "true", rec.Header().Get(httpidem.DefaultReplayedHeader))
				require.Equal(t, want, rec.Header().Get("Content-Encoding"), "accepts %q", accept)
				require.Contains(t, rec.Header().Values("Vary"), "Accept-Encoding")
				body := rec.Body.Bytes()
				if want == "gzip" {
					z, err := gzip.NewReader(bytes.NewReader(body))
					require.NoError(t, err)
					body, err = io.ReadAll(z)
					require.NoError(t, err)
				}
				require.Equal(t, text, string(body))
			}
		})
	}
}
