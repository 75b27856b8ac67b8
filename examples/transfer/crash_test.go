package main

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/examples/internal/clitest"
	"github.com/idem-go/idem/internal/testenv"
)

// storm is the number of faults and of requests in a test.
type storm struct{ clients, transfers, accounts, kills, flushes, cuts, hangUps int }

// forecast returns the size for CI, or the size of a long run (IDEM_SOAK).
func forecast() storm {
	if os.Getenv("IDEM_SOAK") != "" {
		return storm{clients: 50, transfers: 10_000, accounts: 100, kills: 40, flushes: 4, cuts: 8, hangUps: 20}
	}
	return storm{clients: 50, transfers: 2_000, accounts: 50, kills: 6, flushes: 2, cuts: 2, hangUps: 4}
}

// wish is a transfer that a client sends, with its answer.
type wish struct {
	key, body string

	mu     sync.Mutex
	answer string // the first; the others must equal it
}

// told checks that an answer equals the earlier answers.
func (w *wish) told(answer string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.answer == "" {
		w.answer = answer
	}
	if w.answer != answer {
		return fmt.Errorf("%s was answered %s, and then %s", w.key, w.answer, answer)
	}
	return nil
}

// wishes returns n transfers between accounts, and the order in which clients send them, each one
// to five times.
func wishes(rng *rand.Rand, n, accounts int) (all []*wish, sendings []*wish) {
	for i := range n {
		from := 1 + rng.IntN(accounts)
		to := 1 + (from+rng.IntN(accounts-1))%accounts
		w := &wish{
			key: fmt.Sprintf("%08x-%d", rng.Uint32(), i),
			// Some amounts exceed the balance. Many transfers have the same reference (rule 37).
			body: fmt.Sprintf(`{"from":%d,"to":%d,"amount":%d,"currency":"EUR","reference":"rent"}`, from, to, 1+rng.IntN(30_000)),
		}
		all = append(all, w)
		for range 1 + rng.IntN(5) {
			sendings = append(sendings, w)
		}
	}
	// A copy follows at once, or much later, after kills of the server and losses of Redis.
	for i := range sendings {
		if j := rng.IntN(len(sendings)); rng.IntN(2) == 0 {
			sendings[i], sendings[j] = sendings[j], sendings[i]
		}
	}
	return all, sendings
}

// The promise of this example. Clients send each transfer one to five times and repeat it until
// they get an answer. Meanwhile the server is killed repeatedly, Redis is cut off and loses all
// keys, and Postgres closes connections. Money is neither made nor lost, and each transfer is
// booked once or refused once.
func TestMoneyIsConserved_Idempotent(t *testing.T) {
	if testing.Short() {
		t.Skip("takes long: not with -short")
	}
	size := forecast()
	rng, rngSeed := clitest.Seed(t, "TRANSFER_SEED")
	v := newVault(t, int64(size.accounts))
	server := testenv.RedisServer(t)
	wire := newLine(t, server)
	p := startProcess(t, v.url+serverName, "redis://"+wire.addr)
	all, sendings := wishes(rng, size.transfers, size.accounts)

	var next, done, sent atomic.Int64
	client := insisting(t, &sent)
	var clients sync.WaitGroup
	for range size.clients {
		clients.Go(func() {
			for i := next.Add(1) - 1; i < int64(len(sendings)); i = next.Add(1) - 1 {
				if err := sendings[i].send(t, p, client); err != nil {
					t.Error(err)
					return
				}
				done.Add(1)
			}
		})
	}
	began := time.Now()
	(&weather{t: t, rng: rng, server: p, vault: v, redis: server, line: wire}).strike(size, len(sendings), &done)
	clients.Wait()
	took := time.Since(began)
	if t.Failed() {
		return
	}
	// Once more, with Redis as it is, by a server that has just started: all decisions are known.
	p.kill()
	p.start()
	for _, w := range all[:min(len(all), 200)] {
		require.NoError(t, w.send(t, p, client))
	}
	booked := v.requireDecidedOnce(all)
	t.Logf("%d transfers (%d booked) in %d sendings and %d requests, %s", len(all), booked, len(sendings), sent.Load(), took)
	if os.Getenv("IDEM_SOAK") != "" {
		t.Logf("soak: %s seed=%d size=%d kills=%d cuts=%d rebalances=0 outcome=%s", t.Name(), rngSeed, size.transfers,
			size.kills, size.cuts+size.flushes+size.hangUps, "conserved")
	}
}

// weather makes the faults of the server and of Redis.
type weather struct {
	t      *testing.T
	rng    *rand.Rand
	server *process
	vault  *vault
	redis  string
	line   *line
}

// strike kills the server, empties Redis and cuts Redis off, at random moments and in random order,
// spread over the work.
func (w *weather) strike(size storm, sendings int, done *atomic.Int64) {
	w.t.Helper()
	strokes := slices.Concat(
		slices.Repeat([]func(){w.kill}, size.kills),
		slices.Repeat([]func(){w.flush}, size.flushes),
		slices.Repeat([]func(){w.cut}, size.cuts),
		slices.Repeat([]func(){w.hangUp}, size.hangUps),
	)
	w.rng.Shuffle(len(strokes), func(i, j int) { strokes[i], strokes[j] = strokes[j], strokes[i] })
	for i, stroke := range strokes {
		after := int64((float64(i) + w.rng.Float64()) * float64(sendings) / float64(len(strokes)))
		for done.Load() < after && !w.t.Failed() {
			wait(w.t.Context(), time.Millisecond)
		}
		stroke()
	}
}

func (w *weather) kill() {
	w.server.kill()
	w.pause(200 * time.Millisecond)
	w.server.start()
}

// flush removes all keys from Redis. The Redis server belongs to the test.
func (w *weather) flush() {
	client := redis.NewClient(&redis.Options{Addr: w.redis})
	defer client.Close()
	require.NoError(w.t, client.FlushAll(w.t.Context()).Err())
}

func (w *weather) cut() {
	w.line.cut.Store(true)
	defer w.line.cut.Store(false)
	w.pause(time.Second)
}

// serverName ends the application name of the server's sessions.
const serverName = "-server"

// hangUp ends the sessions of the server at any point, so that the server does not know whether a
// COMMIT has arrived. A server has no session shortly after the previous hang-up; the next session
// is ended then.
func (w *weather) hangUp() {
	w.t.Helper()
	w.server.waitFor(func() bool {
		ended, err := w.vault.pool.Exec(w.t.Context(), `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
			WHERE application_name = current_setting('application_name') || $1`, serverName)
		require.NoError(w.t, err)
		return ended.RowsAffected() > 0
	})
}

func (w *weather) pause(limit time.Duration) {
	wait(w.t.Context(), time.Duration(w.rng.Int64N(int64(limit))))
}

// send sends a transfer until it gets an answer.
func (w *wish) send(t testing.TB, p *process, client *http.Client) error {
	status, body, err := p.post(t.Context(), client, w.key, w.body)
	switch {
	case err != nil:
		return err
	case status != http.StatusCreated && status != http.StatusUnprocessableEntity:
		return fmt.Errorf("%s: %d %s", w.key, status, body)
	}
	return w.told(body)
}

// requireDecidedOnce compares the answers with the tables, and returns the number of booked
// transfers.
func (v *vault) requireDecidedOnce(all []*wish) (booked int) {
	v.t.Helper()
	rows, err := v.pool.Query(v.t.Context(), `SELECT idempotency_key, id, coalesce(refused, '') FROM transfers`)
	require.NoError(v.t, err)
	type entry struct {
		id      int64
		refused refusal
	}
	books := make(map[string]entry)
	for rows.Next() {
		var key string
		var e entry
		require.NoError(v.t, rows.Scan(&key, &e.id, &e.refused))
		books[key] = e
	}
	require.NoError(v.t, rows.Err())
	require.Len(v.t, books, len(all), "each transfer was decided, and nothing else")
	for _, w := range all {
		e, ok := books[w.key]
		require.True(v.t, ok, w.key)
		var told struct {
			ID   int64
			Code refusal
		}
		require.NoError(v.t, json.Unmarshal([]byte(w.answer), &told), w.answer)
		if e.refused != "" {
			told.ID = e.id // a refusal has no ID
		}
		require.Equal(v.t, entry{told.ID, told.Code}, e, "%s was told %s", w.key, w.answer)
		if e.refused == "" {
			booked++
		}
	}
	require.NotZero(v.t, booked)
	require.EqualValues(v.t, 2*booked, v.number(`SELECT count(*) FROM entries`))
	v.requireSound()
	return booked
}
