package httpidem_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/dedup/pgstore"
	"github.com/idem-go/idem/httpidem"
)

// newSeed returns the random source of a test and its seed: that of IDEM_SEED if set.
func newSeed(t testing.TB) (*rand.Rand, uint64) {
	t.Helper()
	seed := rand.Uint64() >> 32 // short enough to be typed
	if s := os.Getenv("IDEM_SEED"); s != "" {
		var err error
		seed, err = strconv.ParseUint(s, 10, 64)
		require.NoError(t, err, "IDEM_SEED")
	}
	t.Logf("repeat with IDEM_SEED=%d", seed)
	return rand.New(rand.NewPCG(seed, 0)), seed
}

// inTx returns the service with its effects in the transaction of the claim, as in one process.
func (s *service) inTx(pool *pgxpool.Pool, change ...func(*httpidem.Config)) http.Handler {
	s.t.Helper()
	cfg := s.config(pgstore.New(pool))
	for _, c := range change {
		c(&cfg)
	}
	return s.handler(httpidem.NewTx[pgx.Tx](cfg))
}

// effect writes one effect.
func (s *service) effect(_ http.ResponseWriter, r *http.Request) {
	tx, ok := httpidem.TxFrom[pgx.Tx](r.Context())
	if !ok {
		s.t.Error("no transaction")
		return
	}
	if err := addEffect(r.Context(), tx, httpidem.KeyFrom(r.Context())); err != nil {
		s.t.Errorf("effect: %v", err)
	}
}

// H-23: the connection breaks exactly before or exactly after COMMIT. The client gets the committed
// answer, or 503, or 409 in flight, and the retry gets the answer. There is one effect, and no
// answer that was rolled back.
func TestCutsAtCommit_H23(t *testing.T) {
	t.Parallel()
	n := soak(25, 1000)
	rng, seed := newSeed(t)
	url := newDatabase(t)
	direct := newPool(t, url, 4)
	cutter, through := throughCutter(t, url)
	s := newService(t)
	s.work = func(w http.ResponseWriter, r *http.Request) {
		s.effect(w, r)
		if strings.HasPrefix(httpidem.KeyFrom(r.Context()), "refused") {
			w.WriteHeader(http.StatusUnprocessableEntity)
		}
	}
	here, there := s.inTx(newPool(t, url, 4, through)), s.inTx(direct)
	require.Equal(t, http.StatusCreated, send(here, "warm").Code)
	codes := make(map[string]int)
	for i := range 2 * n {
		what, key, status, effects := []cut{beforeCommit, afterCommit}[i%2],
			fmt.Sprint("created-", i), http.StatusCreated, 1
		if rng.IntN(4) == 0 { // an answer without effects is committed too
			key, status, effects = fmt.Sprint("refused-", i), http.StatusUnprocessableEntity, 0
		}
		cutter.armed.Store(int32(what))
		first := send(here, key)
		require.Zero(t, cutter.armed.Load(), "nothing was cut")
		codes[fmt.Sprint(what, " ", first.Code)]++
		again := settled(t, []http.Handler{here, there}[rng.IntN(2)], key)
		require.Equal(t, status, again.Code, again.Body)
		if first.Code == status {
			require.Equal(t, again.Body.String(), first.Body.String(),
				"the client got an answer that was not committed")
		} else {
			require.Contains(t, []int{http.StatusServiceUnavailable, http.StatusConflict},
				first.Code, first.Body)
			require.NotEmpty(t, first.Header().Get("Retry-After"))
		}
		require.Equal(t, effects, countEffects(t, direct, key), "effects of %s, cut %s", key, what)
		require.Equal(t, map[cut]int{beforeCommit: 2, afterCommit: 1}[what], s.ran(key),
			"runs of %s, cut %s", key, what)
	}
	require.EqualValues(t, 2*n, cutter.made.Load())
	t.Logf("soak: TestCutsAtCommit_H23 seed=%d size=%d kills=0 cuts=%d rebalances=0 outcome=one "+
		"effect each, first answers %v",
		seed, 2*n, cutter.made.Load(), codes)
}

// Rule 20: while the handler of one key is open, fifty retries of that key reach processes with a
// pool of four connections each. They are answered without waiting for the handler, which would use
// up the connections, and other keys are served meanwhile.
func TestRetriesTakeNoConnections_Rule20(t *testing.T) {
	t.Parallel()
	const processes, retries, others = 10, 50, 20
	url := newDatabase(t)
	s := newService(t)
	var holder uint32 // the session of the open key
	begun, open := make(chan struct{}), make(chan struct{})
	release := sync.OnceFunc(func() { close(open) })
	defer release() // also if the test fails: a pool waits for its connections
	s.work = func(w http.ResponseWriter, r *http.Request) {
		s.effect(w, r)
		if httpidem.KeyFrom(r.Context()) == "open" {
			tx, _ := httpidem.TxFrom[pgx.Tx](r.Context())
			if err := tx.QueryRow(r.Context(), "SELECT pg_backend_pid()").Scan(&holder); err != nil {
				t.Errorf("session of the open key: %v", err)
			}
			close(begun)
			<-open
		}
	}
	// a slow machine is not the subject
	patient := func(c *httpidem.Config) { c.StoreTimeout = time.Minute }
	here := s.inTx(newPool(t, url, 4), patient)
	shared := newPool(t, url, 4)
	var there []http.Handler // each counts its own callers only
	for i := range processes {
		there = append(there, s.inTx(shared, patient))
		require.Equal(t, http.StatusCreated, send(there[i], fmt.Sprint("warm-", i)).Code)
	}
	first := make(chan *httptest.ResponseRecorder, 1)
	go func() { first <- send(here, "open") }()
	<-begun

	blocked := watchBlocked(t, url, holder)
	s.storm(there, retries, others)
	require.Zero(t, blocked(), "sessions that wait for the open key")
	release()
	require.Equal(t, "open in run 1", (<-first).Body.String())
	require.Equal(t, "open in run 1", settled(t, there[0], "open").Body.String())
	require.Equal(t, 1, s.ran("open"))
	require.Equal(t, 1, countEffects(t, shared, "open"))
}

// watchBlocked looks for sessions that wait for a lock of the holder, until the result is called. A
// store that waited for the lock of a key would wait for two seconds.
func watchBlocked(t testing.TB, url string, holder uint32) (blocked func() int64) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	var most int64
	var failed error
	end, ended := make(chan struct{}), make(chan struct{})
	stop := sync.OnceFunc(func() {
		close(end)
		<-ended
		_ = conn.Close(context.WithoutCancel(t.Context()))
	})
	t.Cleanup(stop) // also if the test fails
	go func() {
		defer close(ended)
		for {
			var n int64
			failed = conn.QueryRow(context.WithoutCancel(t.Context()),
				"SELECT count(*) FROM pg_stat_activity "+
					"WHERE wait_event_type = 'Lock' AND $1 = ANY (pg_blocking_pids(pid))",
				holder).Scan(&n)
			most = max(most, n)
			if failed != nil {
				return
			}
			select {
			case <-end:
				return
			case <-time.After(10 * time.Millisecond):
			}
		}
	}()
	return func() int64 {
		t.Helper()
		stop()
		require.NoError(t, failed)
		return most
	}
}

// storm sends the open key and others to all processes at once. The answers to the open key come
// while it is open.
func (s *service) storm(processes []http.Handler, retries, others int) {
	s.t.Helper()
	recs := make([]*httptest.ResponseRecorder, retries+others)
	var all sync.WaitGroup
	for i := range recs {
		key := "open"
		if i >= retries {
			key = fmt.Sprint("other-", i)
		}
		all.Go(func() { recs[i] = send(processes[i%len(processes)], key) })
	}
	all.Wait()
	for i, rec := range recs {
		if i < retries {
			require.Equal(s.t, "request_in_flight", code(rec), rec.Body)
		} else {
			require.Equal(s.t, http.StatusCreated, rec.Code, rec.Body)
		}
	}
}

// P-12 by HTTP: after an error of the database no effect of a handler is committed, with any answer
// of the handler. After 4xx the answer is stored without effects (rule 20).
func TestAbortedTransaction_P12(t *testing.T) {
	t.Parallel()
	pool := newPool(t, newDatabase(t), 4)
	s := newService(t)
	s.work = func(w http.ResponseWriter, r *http.Request) {
		s.effect(w, r)
		tx, _ := httpidem.TxFrom[pgx.Tx](r.Context())
		if _, err := tx.Exec(r.Context(), "SELECT nothing FROM nowhere"); err == nil {
			t.Error("no error")
		}
		if httpidem.KeyFrom(r.Context()) == "refused" {
			w.WriteHeader(http.StatusUnprocessableEntity)
		}
	}
	h := s.inTx(pool)
	for i := range 2 {
		require.Equal(t, "rolled_back", code(send(h, "ignored")))
		require.Equal(t, i+1, s.ran("ignored"))
	}
	for i := range 2 {
		rec := send(h, "refused")
		require.Equal(t, http.StatusUnprocessableEntity, rec.Code)
		require.Equal(t, "refused in run 1", rec.Body.String())
		require.Equal(t, i > 0, replayed(rec))
	}
	require.Equal(t, 1, s.ran("refused"))
	require.Zero(t, countEffects(t, pool, "ignored")+countEffects(t, pool, "refused"))
}
