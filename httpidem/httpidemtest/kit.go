package httpidemtest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/httpidem"
	"github.com/stretchr/testify/require"
)

var errNoTx = errors.New("the handler finds no transaction")

// eventLimit is the time limit of a test for an expected event.
const eventLimit = 30 * time.Second

// kit is the environment of a case: a store, middlewares over that store, and counts of runs and
// effects.
type kit struct {
	testing.TB
	variant
	store dedup.Store

	mu      sync.Mutex
	runs    map[string]int // of handlers, by key
	effects map[string]int // by key, if they are not in the store's database
	last    httpidem.Observation
	seen    map[httpidem.Result]int
}

func newKit(t testing.TB, d variant) *kit {
	return &kit{TB: t, variant: d, store: d.NewStore(t), runs: make(map[string]int),
		effects: make(map[string]int),
		seen:    make(map[httpidem.Result]int)}
}

func (k *kit) count(counts map[string]int, key string) int {
	k.mu.Lock()
	defer k.mu.Unlock()
	counts[key]++
	return counts[key]
}

func (k *kit) counted(counts map[string]int, key string) int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return counts[key]
}

// ran returns the number of runs of a key.
func (k *kit) ran(key string) int { return k.counted(k.runs, key) }

// once requires that a key had one run and one effect.
func (k *kit) once(key string) {
	k.Helper()
	k.had(key, 1, 1)
}

func (k *kit) had(key string, runs, effects int) {
	k.Helper()
	require.Equal(k, runs, k.ran(key), "runs of key %s", key)
	require.Equal(k, effects, k.written(k, key), "effects of key %s", key)
}

const retryAfter = "2"

// middleware returns one over the store, or over the store of a change.
func (k *kit) middleware(change ...func(*httpidem.Config)) *httpidem.Middleware {
	k.Helper()
	cfg := httpidem.Config{
		Store: k.store, Scope: "orders", Secret: []byte("the same in all instances"),
		Retention: time.Hour, RetryAfter: 2 * time.Second,
		Principal: func(r *http.Request) (string, error) { return r.Header.Get("User"), nil },
		Logger:    slog.New(slog.DiscardHandler), Observe: k.observe,
		DocsURL:     "https://api.example/keys",
		MaxRequests: 1 << 20, MaxPrincipalRequests: 1 << 20, // some tests send thousands at once
	}
	for _, c := range change {
		c(&cfg)
	}
	m, err := k.open(cfg)
	require.NoError(k, err)
	k.Cleanup(m.Close)
	return m
}

// hooked is a change that puts a hook before the store.
func (k *kit) hooked(at hook) func(*httpidem.Config) {
	return func(c *httpidem.Config) { c.Store = k.hook(k.store, at) }
}

func (k *kit) observe(_ context.Context, o httpidem.Observation) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.last = o
	k.seen[o.Result]++
}

// observed requires that the request that ended last had this result.
func (k *kit) observed(want httpidem.Result, status int) {
	k.Helper()
	k.mu.Lock()
	defer k.mu.Unlock()
	require.NotNil(k, k.last.Request, "nothing observed")
	require.Equal(k, want, k.last.Result)
	require.Equal(k, status, k.last.Status)
}

// results counts the results since the last call of forget.
func (k *kit) results() map[httpidem.Result]int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return maps.Clone(k.seen)
}

func (k *kit) forget() {
	k.mu.Lock()
	defer k.mu.Unlock()
	clear(k.seen)
}

// handler counts the run and writes one effect, then calls answer.
func (k *kit) handler(answer http.HandlerFunc) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		key := httpidem.KeyFrom(r.Context())
		k.count(k.runs, key)
		if err := k.effect(r.Context(), k, key); err != nil {
			k.Errorf("effect of %s: %v", key, err)
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		answer(w, r)
	})
}

// created writes an answer that differs in each run.
func (k *kit) created(w http.ResponseWriter, r *http.Request) {
	key := httpidem.KeyFrom(r.Context())
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Location", "/orders/"+key)
	w.WriteHeader(http.StatusCreated)
	fmt.Fprintf(w, `{"order":%q,"run":%d}`, key, k.ran(key))
}

// call is a request that can be sent several times.
type call struct {
	ctx                           context.Context
	method, target, key, body, by string
	header                        http.Header
}

// order is a call with a key.
func order(key string) call {
	return call{
		ctx: context.Background(), method: http.MethodPost, target: "/orders", key: key,
		body: `{"amount":7}`, by: "alice",
	}
}

func (c call) with(change func(*call)) call {
	change(&c)
	return c
}

// request makes a request as a server would.
func (c call) request() *http.Request {
	u, err := url.ParseRequestURI(c.target)
	if err != nil {
		panic(err) // a mistake in the suite
	}
	h := c.header.Clone()
	if h == nil {
		h = make(http.Header)
	}
	h.Set("User", c.by)
	h.Set("Content-Type", "application/json")
	if c.key != "" {
		h.Set("Idempotency-Key", `"`+c.key+`"`)
	}
	return (&http.Request{
		Method: c.method, URL: u, RequestURI: c.target, Proto: "HTTP/1.1", ProtoMajor: 1,
		ProtoMinor: 1, Header: h, Host: "api.example",
		RemoteAddr: "192.0.2.1:1234", Body: io.NopCloser(bytes.NewReader([]byte(c.body))),
		ContentLength: int64(len(c.body)),
	}).WithContext(c.ctx)
}

// reply is the client's view of an answer.
type reply struct {
	status   int
	header   http.Header
	body     string
	replayed bool
}

// send gives a call to a handler in this process.
func send(h http.Handler, c call) reply {
	w := writer{header: make(http.Header, 8)}
	h.ServeHTTP(&w, c.request())
	return newReply(max(w.status, http.StatusOK), w.header, string(w.body))
}

// writer is a cheap http.ResponseWriter for many requests.
type writer struct {
	header http.Header
	status int
	body   []byte
}

func (w *writer) Header() http.Header { return w.header }

func (w *writer) WriteHeader(status int) {
	if w.status == 0 {
		w.status = status
	}
}

func (w *writer) Write(b []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	w.body = append(w.body, b...)
	return len(b), nil
}

func newReply(status int, h http.Header, body string) reply {
	return reply{
		status: status, header: h, body: body,
		replayed: h.Get(httpidem.DefaultReplayedHeader) == "true",
	}
}

// code returns the code of a problem.
func (r reply) code() string {
	var p struct{ Code string }
	_ = json.Unmarshal([]byte(r.body), &p) // no problem
	return p.Code
}

// refused requires a problem.
func (k *kit) refused(r reply, status int, code string) {
	k.Helper()
	require.Equal(k, status, r.status, r.body)
	require.Equal(k, code, r.code())
	require.Equal(k, "application/problem+json", r.header.Get("Content-Type"))
}

// inFlight requires the answer to a request for a running key.
func (k *kit) inFlight(r reply) {
	k.Helper()
	k.refused(r, http.StatusConflict, "request_in_flight")
	require.Equal(k, retryAfter, r.header.Get("Retry-After"))
}

// executed requires the answer of the first run of [kit.created], from the run or replayed.
func (k *kit) executed(r reply, key string, replayed bool) {
	k.Helper()
	require.Equal(k, http.StatusCreated, r.status, r.body)
	require.JSONEq(k, fmt.Sprintf(`{"order":%q,"run":1}`, key), r.body)
	require.Equal(k, "/orders/"+key, r.header.Get("Location"))
	require.Equal(k, "application/json", r.header.Get("Content-Type"))
	require.Equal(k, replayed, r.replayed, "replayed")
}

// settled sends a call until the key is no longer running.
func (k *kit) settled(h http.Handler, c call) (r reply) {
	k.Helper()
	require.Eventually(k, func() bool {
		r = send(h, c)
		return r.code() != "request_in_flight"
	}, eventLimit, 5*time.Millisecond, "key %s stays in flight", c.key)
	return r
}

// serve starts a real server.
func (k *kit) serve(h http.Handler) *httptest.Server {
	k.Helper()
	s := httptest.NewUnstartedServer(h)
	s.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	s.Start()
	k.Cleanup(s.Close)
	return s
}

// ask sends a call to a server.
func ask(s *httptest.Server, c call) (reply, error) {
	r, err := http.NewRequestWithContext(c.ctx, c.method, s.URL+c.target,
		io.NopCloser(bytes.NewReader([]byte(c.body))))
	if err != nil {
		return reply{}, err
	}
	r.Header, r.ContentLength = c.request().Header, int64(len(c.body))
	resp, err := s.Client().Do(r)
	if err != nil {
		return reply{}, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return newReply(resp.StatusCode, resp.Header, string(body)), err
}

// barrier returns a channel that handlers wait for. The channel is opened at the latest when the
// test ends, before the store is closed.
func (k *kit) barrier() (wait <-chan struct{}, open func()) {
	c := make(chan struct{})
	open = sync.OnceFunc(func() { close(c) })
	k.Cleanup(open)
	return c, open
}

// wait waits for an expected event.
func (k *kit) wait(c <-chan struct{}, what string) {
	k.Helper()
	select {
	case <-c:
	case <-time.After(eventLimit):
		require.Fail(k, "does not happen", "%s", what)
	}
}

// variant is New or NewTx over a store.
type variant struct {
	Harness
	tx      bool
	open    func(httpidem.Config) (*httpidem.Middleware, error)
	hook    func(s dedup.Store, at hook) dedup.Store
	effect  func(ctx context.Context, k *kit, id string) error // of a handler
	written func(k *kit, id string) int                        // number of effects
	looks   func(dedup.Store) bool
}

// ways selects the variants of a case.
type ways uint8

const (
	both ways = iota
	claimed
	transactional
)

type testCase struct {
	name string
	ways ways
	run  func(k *kit)
}
