package httpidem_test

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/dedup/memstore"
	"github.com/idem-go/idem/httpidem"
)

// Rule 21: a handler behind Lookup sends requests of its own through the same middleware with its
// context, for example to split a batch. They are separate requests, not the one that Lookup has
// read.
func TestLookupIsForOneRequest_Rule21(t *testing.T) {
	s := newService(t)
	m, err := httpidem.New(s.config(memstore.New()))
	require.NoError(t, err)
	t.Cleanup(m.Close)
	h := m.Lookup(m.Handler(s))
	s.work = func(w http.ResponseWriter, r *http.Request) {
		if httpidem.KeyFrom(r.Context()) != "batch" {
			return
		}
		for _, key := range []string{"one", "two"} {
			rec := httptest.NewRecorder()
			h.ServeHTTP(rec, post(r.Context(), "/orders", key))
			if rec.Body.String() != key+" in run 1" {
				t.Errorf("%s: %s", key, rec.Body)
			}
		}
	}
	require.Equal(t, "batch in run 1", send(h, "batch").Body.String())
	for _, key := range []string{"batch", "one", "two"} {
		require.True(t, replayed(send(h, key)), key)
		require.Equal(t, 1, s.ran(key), key)
	}
}

// inMemory is a store with empty transactions.
type inMemory struct{ dedup.Store }

func (inMemory) ClaimTx(_ context.Context, _ time.Duration, _ []dedup.Request,
	answers []dedup.Answer,
	fn func(pgx.Tx) ([]dedup.Completion, error)) error {
	answers[0] = dedup.Answer{Verdict: dedup.Fresh, Fence: 1}
	_, err := fn(nil)
	return err
}

func (inMemory) LookTx(context.Context, []dedup.Request, []dedup.Answer) error { return nil }

// Rule 21: if a middleware between Lookup and Handler replaces the body, the handler reads the
// replacement; in a transaction, from its beginning in each run.
func TestBodyChangedBehindLookup_Rule21(t *testing.T) {
	upper := func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			b, _ := io.ReadAll(r.Body)
			r.Body = io.NopCloser(bytes.NewReader(bytes.ToUpper(b)))
			next.ServeHTTP(w, r)
		})
	}
	for name, open := range map[string]func(httpidem.Config) (*httpidem.Middleware, error){
		"claimed": httpidem.New, "tx": httpidem.NewTx[pgx.Tx],
	} {
		t.Run(name, func(t *testing.T) {
			s := newService(t)
			s.work = func(_ http.ResponseWriter, r *http.Request) {
				if b, err := io.ReadAll(r.Body); err != nil || string(b) != `{"AMOUNT":7}` {
					t.Errorf("%s, %v", b, err)
				}
			}
			cfg := s.config(memstore.New())
			if name == "tx" {
				cfg.Store = inMemory{cfg.Store}
				cfg.ResultPolicy = func(*http.Request, httpidem.Outcome) httpidem.ResultPolicy {
					return httpidem.Keep
				}
			}
			m, err := open(cfg)
			require.NoError(t, err)
			t.Cleanup(m.Close)
			require.Equal(t, "a in run 1", send(m.Lookup(upper(m.Handler(s))), "a").Body.String())
		})
	}
}

// H-16: an answer with less than its announced length is broken for its client. A retry must not
// get it whole.
func TestShortAnswer_H16(t *testing.T) {
	s := newService(t)
	h := s.claimed(memstore.New())
	s.work = func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "1000")
	}
	server := httptest.NewServer(h)
	defer server.Close()
	for i := range 2 {
		resp, err := server.Client().Do(post(t.Context(), server.URL, "a"))
		require.NoError(t, err)
		_, err = io.ReadAll(resp.Body)
		require.NoError(t, resp.Body.Close())
		if i == 0 {
			require.ErrorIs(t, err, io.ErrUnexpectedEOF)
			continue
		}
		require.NoError(t, err)
		require.Equal(t, http.StatusConflict, resp.StatusCode, "not_replayable")
	}
	require.Equal(t, 1, s.ran("a"))
}

// H-03: the body of a form that was parsed in front, for example by a Principal that reads a field,
// cannot be hashed. The fields must be compared instead, or any other form would be the same
// request.
func TestBodyReadInFront_H03(t *testing.T) {
	form := func(h http.Handler, values string) *httptest.ResponseRecorder {
		r := httptest.NewRequest(http.MethodPost, "/orders", strings.NewReader(values))
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.Header.Set("Idempotency-Key", "a")
		rec := httptest.NewRecorder()
		h.ServeHTTP(rec, r)
		return rec
	}
	s := newService(t)
	h := s.claimed(memstore.New(), func(c *httpidem.Config) {
		c.Public, c.Principal = false, func(r *http.Request) (string, error) {
			if user := r.PostFormValue("user"); user != "" {
				return user, nil
			}
			return "", httpidem.Refuse(http.StatusUnauthorized, "no user")
		}
	})
	require.Equal(t, http.StatusCreated, form(h, "user=u&amount=7").Code)
	require.True(t, replayed(form(h, "user=u&amount=7")))
	require.Equal(t, "request_signature_mismatch", code(form(h, "user=u&amount=8")))
}

// twice rolls the first run back, as after a serialization failure.
type twice struct{ inMemory }

func (t twice) ClaimTx(ctx context.Context, limit time.Duration, reqs []dedup.Request,
	answers []dedup.Answer,
	fn func(pgx.Tx) ([]dedup.Completion, error)) error {
	_ = t.inMemory.ClaimTx(ctx, limit, reqs, answers, fn)
	return t.inMemory.ClaimTx(ctx, limit, reqs, answers, fn)
}

// A transaction that runs again gives its handler the original request, without the changes of the
// first run. A 404 to a path that was cut twice would be committed.
func TestSecondRunSeesTheRequestAsItCame_Rule20(t *testing.T) {
	s := newService(t)
	var seen []string
	s.work = func(_ http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		seen = append(seen, r.URL.Path+" "+r.Header.Get("Accept")+" "+string(b))
		r.URL.Path = strings.TrimPrefix(r.URL.Path, "/orders")
		r.Header.Del("Accept")
	}
	cfg := s.config(twice{inMemory{memstore.New()}})
	h := s.handler(httpidem.NewTx[pgx.Tx](cfg))
	r := post(t.Context(), "/orders", "a")
	r.Header.Set("Accept", "text/plain")
	rec := httptest.NewRecorder()
	h.ServeHTTP(rec, r)
	require.Equal(t, "a in run 2", rec.Body.String())
	require.Len(t, seen, 2)
	require.Equal(t, seen[0], seen[1])
}
