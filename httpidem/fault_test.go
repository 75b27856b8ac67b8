package httpidem_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/httpidem"
)

// service is a handler behind middlewares, with its observations.
type service struct {
	t    testing.TB
	work func(http.ResponseWriter, *http.Request) // before the answer; may be nil

	mu   sync.Mutex
	runs map[string]int // by key
	seen []httpidem.Observation
}

func newService(t testing.TB) *service { return &service{t: t, runs: make(map[string]int)} }

func (s *service) config(store dedup.Store) httpidem.Config {
	return httpidem.Config{
		Store: store, Scope: "orders", Public: true, Secret: []byte("the same in all instances"),
		Lease:  time.Second,
		Logger: slog.New(slog.DiscardHandler),
		Observe: func(_ context.Context, o httpidem.Observation) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.seen = append(s.seen, o)
		},
	}
}

// handler unwraps a middleware, or fails with its error.
func (s *service) handler(m *httpidem.Middleware, err error) http.Handler {
	s.t.Helper()
	require.NoError(s.t, err)
	s.t.Cleanup(m.Close)
	return m.Handler(s)
}

// claimed returns the service over a store, as in one process.
func (s *service) claimed(store dedup.Store, change ...func(*httpidem.Config)) http.Handler {
	s.t.Helper()
	cfg := s.config(store)
	for _, c := range change {
		c(&cfg)
	}
	return s.handler(httpidem.New(cfg))
}

// ServeHTTP is the handler: it counts its run, works, and gives a different answer in each run.
func (s *service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	key := httpidem.KeyFrom(r.Context())
	s.mu.Lock()
	s.runs[key]++
	run := s.runs[key]
	s.mu.Unlock()
	if s.work != nil {
		s.work(w, r)
	}
	w.WriteHeader(http.StatusCreated)
	fmt.Fprintf(w, "%s in run %d", key, run)
}

func (s *service) ran(key string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.runs[key]
}

// results returns the results of all requests so far, in the order in which they ended.
func (s *service) results() (all []httpidem.Result) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, o := range s.seen {
		all = append(all, o.Result)
	}
	return all
}

func (s *service) last() httpidem.Result {
	all := s.results()
	return all[len(all)-1]
}

// post returns a request that net/http may repeat by itself.
func post(ctx context.Context, url, key string) *http.Request {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url,
		bytes.NewReader([]byte(`{"amount":7}`)))
	if err != nil {
		panic(err) // a mistake in the test
	}
	r.Header.Set("Idempotency-Key", key)
	return r
}

// send sends a key to a handler in this process.
func send(h http.Handler, key string) *httptest.ResponseRecorder {
	rec := httptest.NewRecorder()
	h.ServeHTTP(rec, post(context.Background(), "/orders", key))
	return rec
}

// code returns the code of a problem, or empty text.
func code(rec *httptest.ResponseRecorder) string {
	var p struct{ Code string }
	_ = json.Unmarshal(rec.Body.Bytes(), &p) // no problem
	return p.Code
}

// settled sends a key until it is no longer in flight and the store answers.
func settled(t testing.TB, h http.Handler, key string) (rec *httptest.ResponseRecorder) {
	t.Helper()
	require.Eventually(t, func() bool {
		rec = send(h, key)
		return code(rec) != "request_in_flight" && code(rec) != "store_unavailable"
	}, 30*time.Second, 10*time.Millisecond, "key %s", key)
	return rec
}

func replayed(rec *httptest.ResponseRecorder) bool {
	return rec.Header().Get(httpidem.DefaultReplayedHeader) == "true"
}
