package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/dedup/redisstore"
	"github.com/idem-go/idem/httpidem"
	"github.com/idem-go/idem/internal/netproxy"
	"github.com/idem-go/idem/internal/testenv"
)

// line is a connection to Redis that the test can cut. Open connections and new ones are closed
// then.
type line struct {
	addr string
	cut  atomic.Bool
}

func newLine(t testing.TB, to string) *line {
	l := &line{}
	l.addr = netproxy.Start(t, to, func() netproxy.Link { return netproxy.Link{Up: l.carry, Down: l.carry} }).Addr()
	return l
}

func (l *line) carry(dst io.Writer, src io.Reader) {
	buf := make([]byte, 4096)
	for {
		n, err := src.Read(buf)
		if err != nil || l.cut.Load() {
			return
		}
		if _, err := dst.Write(buf[:n]); err != nil {
			return
		}
	}
}

// branch is the whole example in this process: real Postgres, and a Redis of its own that the test
// may empty and cut off.
type branch struct {
	*vault
	url   string
	redis *redis.Client
	line  *line // connection to redis

	mu      sync.Mutex
	results map[httpidem.Result]int
}

func newBranch(t testing.TB, accounts int64) *branch {
	b := &branch{vault: newVault(t, accounts), results: make(map[httpidem.Result]int)}
	server := testenv.RedisServer(t)
	b.redis = redis.NewClient(&redis.Options{Addr: server})
	t.Cleanup(func() { _ = b.redis.Close() })
	b.line = newLine(t, server)
	o := options{redis: b.line.addr, log: slog.New(slog.DiscardHandler)}
	i, err := o.prepare(t.Context(), b.pool)
	require.NoError(t, err)
	client, err := o.openRedis(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { _ = client.Close() })
	cfg := frontConfig(redisstore.New(client), i, o)
	cfg.Observe = b.observe
	front, err := httpidem.New(cfg)
	require.NoError(t, err)
	t.Cleanup(front.Close)
	srv := httptest.NewServer((&service{bank: b.bank, log: o.log}).handler(front))
	t.Cleanup(srv.Close)
	b.url = srv.URL
	return b
}

func (b *branch) observe(_ context.Context, o httpidem.Observation) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.results[o.Result]++
}

// flush removes all keys from Redis. The Redis server belongs to the test.
func (b *branch) flush() {
	b.t.Helper()
	n, err := b.redis.DBSize(b.t.Context()).Result()
	require.NoError(b.t, err)
	require.NotZero(b.t, n, "there is nothing to forget")
	require.NoError(b.t, b.redis.FlushAll(b.t.Context()).Err())
}

// reply is an answer of the server.
type reply struct {
	status   int
	body     string
	replayed bool
}

// code returns the code of a problem, or an empty string.
func (r reply) code() string {
	var p struct{ Code string }
	_ = json.Unmarshal([]byte(r.body), &p) // other answers have no code
	return p.Code
}

// post sends a body under a key, which may be empty, with headers such as "Authorization: Bearer
// anna".
func (b *branch) post(key, body string, headers ...string) reply {
	b.t.Helper()
	req, err := http.NewRequestWithContext(b.t.Context(), http.MethodPost, b.url+"/transfers", strings.NewReader(body))
	require.NoError(b.t, err)
	if key != "" {
		req.Header.Set("Idempotency-Key", key)
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		req.Header.Set(name, value)
	}
	return b.do(req)
}

func (b *branch) get(path string) reply {
	b.t.Helper()
	req, err := http.NewRequestWithContext(b.t.Context(), http.MethodGet, b.url+path, nil)
	require.NoError(b.t, err)
	return b.do(req)
}

func (b *branch) do(req *http.Request) reply {
	b.t.Helper()
	res, err := http.DefaultClient.Do(req)
	require.NoError(b.t, err)
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	require.NoError(b.t, err)
	return reply{res.StatusCode, string(body), res.Header.Get(httpidem.DefaultReplayedHeader) == "true"}
}

const rentBody = `{"from":1,"to":2,"amount":25000,"currency":"EUR","reference":"rent"}`

// requireBooked checks that rentBody was booked once, without any other effect.
func (b *branch) requireBooked(r reply) {
	b.t.Helper()
	require.Equal(b.t, http.StatusCreated, r.status, r.body)
	require.EqualValues(b.t, 75_000, b.balance(1))
	require.EqualValues(b.t, 125_000, b.balance(2))
	require.EqualValues(b.t, 1, b.number(`SELECT count(*) FROM transfers`))
	b.requireSound()
}

func TestCopiesGetTheFirstAnswer_Idempotent(t *testing.T) {
	b := newBranch(t, 2)
	first := b.post("k", rentBody)
	require.False(t, first.replayed)
	require.JSONEq(t, `{"id":1,"from":1,"to":2,"amount":25000,"currency":"EUR","reference":"rent"}`, first.body)
	for range 3 {
		require.Equal(t, reply{first.status, first.body, true}, b.post("k", rentBody))
	}
	require.Equal(t, map[httpidem.Result]int{httpidem.Executed: 1, httpidem.Replayed: 3}, b.results, "the database is asked once")
	b.requireBooked(first)
}

// Copies at the same moment wait for the one that runs.
func TestCopiesAtOnce_Idempotent(t *testing.T) {
	b := newBranch(t, 2)
	replies := make([]reply, 30)
	var all sync.WaitGroup
	for i := range replies {
		all.Go(func() { replies[i] = b.post("k", rentBody) })
	}
	all.Wait()
	for _, r := range replies {
		require.Equal(t, replies[0].body, r.body)
		b.requireBooked(r)
	}
	require.Equal(t, 1, b.results[httpidem.Executed])
}

// An emptied Redis knows no key. The unique constraint knows it, and the answer is the same.
func TestRedisFlushed_Idempotent(t *testing.T) {
	b := newBranch(t, 2)
	first := b.post("k", rentBody)
	refused := b.post("no", `{"from":1,"to":2,"amount":100001,"currency":"EUR","reference":""}`)
	require.Equal(t, "insufficient_funds", refused.code())
	for range 2 {
		b.flush()
		require.Equal(t, reply{first.status, first.body, true}, b.post("k", rentBody))
		require.Equal(t, reply{http.StatusUnprocessableEntity, refused.body, true},
			b.post("no", `{"from":1,"to":2,"amount":100001,"currency":"EUR","reference":""}`))
	}
	require.EqualValues(t, 75_000, b.balance(1))
	b.requireSound()
}

// Redis compares bytes, and Postgres compares values. Both refuse a key for two different
// transfers.
func TestOtherPayload(t *testing.T) {
	b := newBranch(t, 2)
	first := b.post("k", rentBody)
	other := strings.Replace(rentBody, "25000", "25001", 1)
	requireRefused := func(r reply) {
		t.Helper()
		require.Equal(t, http.StatusUnprocessableEntity, r.status)
		require.Equal(t, "request_signature_mismatch", r.code())
	}
	requireRefused(b.post("k", other))
	require.Equal(t, 1, b.results[httpidem.Mismatch], "Redis knew")
	b.flush()
	requireRefused(b.post("k", other))
	require.Equal(t, 1, b.results[httpidem.Forgotten], "Postgres knew")
	b.flush()
	require.Equal(t, reply{first.status, first.body, true}, b.post("k", strings.ReplaceAll(rentBody, ",", " ,\n")))
	b.requireBooked(first)
}

// Redis is cut off at runtime. Every request is answered, and no transfer is booked twice, now or
// after Redis is back.
func TestRedisCutOff_Idempotent(t *testing.T) {
	b := newBranch(t, 2)
	bodies := make(map[string]string)
	send := func(when string, keys ...string) {
		for _, key := range keys {
			r := b.post(key, `{"from":1,"to":2,"amount":1,"currency":"EUR","reference":"rent"}`)
			require.Equal(t, http.StatusCreated, r.status, "%s: %s: %s", when, key, r.body)
			if known, ok := bodies[key]; ok {
				require.Equal(t, known, r.body, "%s: %s", when, key)
			}
			bodies[key] = r.body
		}
	}
	send("before", "a", "b")
	b.line.cut.Store(true)
	send("cut off", "a", "b", "c", "d", "c")
	require.NotZero(t, b.results[httpidem.Unguarded], "%v", b.results)
	r := b.post("a", rentBody)
	require.Equal(t, http.StatusUnprocessableEntity, r.status)
	require.Equal(t, "request_signature_mismatch", r.code())
	b.line.cut.Store(false)
	send("back", "a", "b", "c", "d", "e")
	require.EqualValues(t, 5, b.number(`SELECT count(*) FROM transfers`))
	require.EqualValues(t, 100_000-5, b.balance(1))
	b.requireSound()
}

// Without Redis, copies at the same moment meet in the database.
func TestCopiesAtOnceWithoutRedis_Idempotent(t *testing.T) {
	b := newBranch(t, 2)
	b.line.cut.Store(true)
	replies := make([]reply, 20)
	var all sync.WaitGroup
	for i := range replies {
		all.Go(func() { replies[i] = b.post("k", rentBody) })
	}
	all.Wait()
	for _, r := range replies {
		b.requireBooked(r)
		require.Equal(t, replies[0].body, r.body)
	}
}

func TestBadRequests(t *testing.T) {
	b := newBranch(t, 2)
	for name, text := range map[string]string{
		"nothing":              ``,
		"no JSON":              `from 1 to 2`,
		"null":                 `null`,
		"a list":               `[` + rentBody + `]`,
		"two":                  rentBody + rentBody,
		"empty":                `{}`,
		"cut short":            rentBody[:20],
		"no from":              `{"to":2,"amount":1,"currency":"EUR"}`,
		"from below zero":      `{"from":-1,"to":2,"amount":1,"currency":"EUR"}`,
		"to itself":            `{"from":1,"to":1,"amount":1,"currency":"EUR"}`,
		"amount zero":          `{"from":1,"to":2,"amount":0,"currency":"EUR"}`,
		"amount below zero":    `{"from":1,"to":2,"amount":-5,"currency":"EUR"}`,
		"amount null":          `{"from":1,"to":2,"amount":null,"currency":"EUR"}`,
		"amount in words":      `{"from":1,"to":2,"amount":"five","currency":"EUR"}`,
		"amount in euros":      `{"from":1,"to":2,"amount":"10.00","currency":"EUR"}`,
		"amount a float":       `{"from":1,"to":2,"amount":10.00,"currency":"EUR"}`,
		"amount overflows too": `{"from":1,"to":2,"amount":"9223372036854775808","currency":"EUR"}`,
		"from a fraction":      `{"from":1.5,"to":2,"amount":1,"currency":"EUR"}`,
		"a field too much":     `{"from":1,"to":2,"amount":1,"currency":"EUR","memo":"rent"}`,
		"amount a fraction":    `{"from":1,"to":2,"amount":9.95,"currency":"EUR"}`,
		"amount a power":       `{"from":1,"to":2,"amount":1e2,"currency":"EUR"}`,
		"amount overflows":     `{"from":1,"to":2,"amount":9223372036854775808,"currency":"EUR"}`,
		"no currency":          `{"from":1,"to":2,"amount":1}`,
		"currency in words":    `{"from":1,"to":2,"amount":1,"currency":"Euro"}`,
		"currency small":       `{"from":1,"to":2,"amount":1,"currency":"eur"}`,
		"amount misspelt":      `{"from":1,"to":2,"amuont":1,"currency":"EUR"}`,
		"reference too long":   fmt.Sprintf(`{"from":1,"to":2,"amount":1,"currency":"EUR","reference":%q}`, strings.Repeat("ö", maxReference+1)),
		"reference NUL":        `{"from":1,"to":2,"amount":1,"currency":"EUR","reference":"\u0000"}`,
	} {
		for range 2 {
			r := b.post("body "+name, text)
			require.Equal(t, http.StatusBadRequest, r.status, "%s: %s", name, r.body)
			require.Equal(t, "invalid_transfer", r.code(), name)
		}
	}
	require.Equal(t, http.StatusBadRequest, b.post("", rentBody).status, "no key")
	require.Equal(t, http.StatusBadRequest, b.post(strings.Repeat("k", 300), rentBody).status, "long key")
	require.Equal(t, http.StatusUnauthorized, b.post("k", rentBody, "Authorization: Basic YTpi").status)
	require.Equal(t, http.StatusUnauthorized, b.post("k", rentBody, "Authorization: Bearer").status)
	require.Equal(t, http.StatusRequestEntityTooLarge, b.post("k", strings.Repeat(" ", 2<<20)).status)
	require.Zero(t, b.number(`SELECT count(*) FROM transfers`), "nothing of this is remembered")
	long := fmt.Sprintf(`{"from":1,"to":2,"amount":1,"currency":"EUR","reference":%q}`, strings.Repeat("ö", maxReference))
	require.Equal(t, http.StatusCreated, b.post("long", long).status)
}

// A 401 names how to authenticate, also without the middleware.
func TestChallenge(t *testing.T) {
	r := httptest.NewRequest(http.MethodPost, "/transfers", strings.NewReader(rentBody))
	r.Header.Set("Authorization", "Basic YTpi")
	rec := httptest.NewRecorder()
	(&service{}).postTransfer(rec, r)
	require.Equal(t, http.StatusUnauthorized, rec.Code)
	require.Equal(t, httpidem.DefaultChallenge, rec.Header().Get("WWW-Authenticate"))
}

// Integers in quotes mean the same, and the database compares them as integers.
func TestIntegersInQuotes(t *testing.T) {
	b := newBranch(t, 2)
	first := b.post("k", `{"from":"1","to":"2","amount":"25000","currency":"EUR","reference":"rent"}`)
	require.Equal(t, http.StatusCreated, first.status, first.body)
	require.JSONEq(t, rentBody[:1]+`"id":1,`+rentBody[1:], first.body)
	b.flush()
	require.Equal(t, first.body, b.post("k", rentBody).body)
	require.EqualValues(t, 75_000, b.balance(1))
}

// A customer never gets another customer's answer by using the same key.
func TestCustomersDoNotMeet(t *testing.T) {
	b := newBranch(t, 2)
	body := `{"from":1,"to":2,"amount":1,"currency":"EUR","reference":"rent"}`
	ids := make(map[string]bool)
	for range 2 {
		for _, h := range []string{"X-Nothing: at all", "Authorization: Bearer anna", "Authorization: bearer bert"} {
			r := b.post("k", body, h)
			require.Equal(t, http.StatusCreated, r.status, r.body)
			ids[r.body] = true
		}
		b.flush()
	}
	require.Len(t, ids, 3)
	require.EqualValues(t, 100_000-3, b.balance(1))
	b.requireSound()
}

func TestLists(t *testing.T) {
	b := newBranch(t, 2)
	b.post("k", rentBody)
	b.post("no", `{"from":1,"to":7,"amount":1,"currency":"EUR"}`)
	require.JSONEq(t, `[{"id":1,"balance":75000,"currency":"EUR"},{"id":2,"balance":125000,"currency":"EUR"}]`, b.get("/accounts").body)
	require.JSONEq(t, `{"count":1,"refused":1}`, b.get("/transfers").body)
	require.Equal(t, reply{status: http.StatusOK, body: "ok\n"}, b.get("/healthz"))
	b.line.cut.Store(true)
	require.Equal(t, http.StatusOK, b.get("/healthz").status, "it works without Redis")
	b.pool.Close()
	require.Equal(t, http.StatusServiceUnavailable, b.get("/healthz").status)
	r := b.post("later", rentBody)
	require.Equal(t, http.StatusServiceUnavailable, r.status)
	require.Equal(t, "database_unavailable", r.code())
}
