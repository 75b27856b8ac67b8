package canary

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/dedup/pgstore"
	"github.com/idem-go/idem/httpidem"
)

// Bodies, paths, credentials and answers of keyed requests; and the secret by which bodies are
// compared.
func TestHTTP_G04(t *testing.T) {
	h := newHouse(t)
	pool, store := h.store(t)
	_, err := pool.Exec(t.Context(), tables)
	require.NoError(t, err)
	cfg := httpidem.Config{
		Store: store, Scope: "payments", Secret: []byte(secret() + secret()), Logger: h.log,
		Principal: func(*http.Request) (string, error) { return "alice", nil },
		Observe: func(ctx context.Context, o httpidem.Observation) {
			for _, i := range h.instruments {
				if i.http != nil {
					i.http(ctx, o)
				}
			}
		},
	}
	h.log.Info("configured", "config", cfg, "text", fmt.Sprintf("%v %+v %#v", cfg, cfg, cfg))
	claims, err := httpidem.New(cfg)
	require.NoError(t, err)
	defer claims.Close()
	txs, err := httpidem.NewTx[pgx.Tx](cfg)
	require.NoError(t, err)
	defer txs.Close()

	body := func(r *http.Request) string {
		all, err := io.ReadAll(r.Body)
		require.NoError(t, err)
		return string(all)
	}
	handlers := map[string]http.HandlerFunc{
		"answers": func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, body(r)) },
		"fails":   func(w http.ResponseWriter, r *http.Request) { http.Error(w, body(r), http.StatusInternalServerError) },
		"panics":  func(_ http.ResponseWriter, r *http.Request) { _, err := strconv.Atoi(body(r)); panic(err) },
		"sql": func(w http.ResponseWriter, r *http.Request) {
			if tx, ok := httpidem.TxFrom[pgx.Tx](r.Context()); ok {
				_, _ = tx.Exec(r.Context(), `INSERT INTO people (mail) VALUES ($1), ($1)`, body(r))
			}
			w.WriteHeader(http.StatusCreated) // although its transaction is aborted
		},
		"commit": func(w http.ResponseWriter, r *http.Request) {
			if tx, ok := httpidem.TxFrom[pgx.Tx](r.Context()); ok {
				_, _ = tx.Exec(r.Context(), `INSERT INTO late (mail) VALUES ($1)`, body(r))
			}
			w.WriteHeader(http.StatusCreated)
		},
		"reads-before": func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(http.StatusNoContent) },
	}
	for _, m := range []*httpidem.Middleware{claims, txs} {
		for name, handler := range handlers {
			key := rand.Text() + rand.Text()
			wrapped := m.Handler(handler)
			if name == "reads-before" {
				wrapped = readsBefore(wrapped)
			}
			for _, text := range []string{secret(), secret()} { // the second is another payload under the same key
				call(t, wrapped, key, text)
			}
			call(t, wrapped, key, secret())
		}
		call(t, m.Handler(handlers["answers"]), "", secret())
		call(t, m.Handler(handlers["answers"]), strings.Repeat("k", 5000), secret())
	}

	closed, err := pgxpool.NewWithConfig(t.Context(), pool.Config())
	require.NoError(t, err)
	closed.Close()
	cfg.Store = pgstore.New(closed)
	none, err := httpidem.New(cfg)
	require.NoError(t, err)
	defer none.Close()
	for range 3 {
		require.Equal(t, http.StatusServiceUnavailable, call(t, none.Handler(handlers["answers"]), rand.Text(), secret()))
	}
	require.Contains(t, h.sinks[0].read(), "SQLSTATE 23505 (unique_violation)")
	h.clean()
}

func readsBefore(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		next.ServeHTTP(w, r)
	})
}

func call(t *testing.T, to http.Handler, key, text string) (status int) {
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/mails/"+text+"?to="+text, strings.NewReader(text))
	r.Header.Set("Authorization", "Bearer "+text)
	r.Header.Set("Cookie", "session="+text)
	if key != "" {
		r.Header.Set(httpidem.DefaultHeader, `"`+key+`"`)
	}
	w := httptest.NewRecorder()
	defer func() {
		if v := recover(); v != nil && !errors.As(v.(error), new(*strconv.NumError)) {
			panic(v)
		}
		status = w.Code
	}()
	to.ServeHTTP(w, r)
	return w.Code
}
