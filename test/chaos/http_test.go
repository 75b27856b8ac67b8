package chaos

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/dedup/pgstore"
	"github.com/idem-go/idem/internal/testenv"
)

// api is an HTTP server with idempotency keys as a process that can be killed, and the database
// that its effects are in.
type api struct {
	t      testing.TB
	pool   *pgxpool.Pool
	flags  []string
	client *http.Client

	mu   sync.Mutex
	proc *proc
	url  string
}

// newAPI makes a database, and starts the server: with claims in Redis, or with transactions.
func newAPI(t testing.TB, tx bool) *api {
	t.Helper()
	url := testenv.Postgres(t)
	pool, err := pgxpool.New(t.Context(), url)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	require.NoError(t, pgstore.Migrate(t.Context(), pool))
	_, err = pool.Exec(t.Context(), "CREATE TABLE effects (key text NOT NULL, pid int NOT NULL)")
	require.NoError(t, err)
	// No connection is used twice, so that the client repeats no request by itself, but only those
	// of the test.
	a := &api{t: t, pool: pool, flags: []string{"-postgres", url}, client: &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}}
	if !tx {
		client, prefix := testenv.Redis(t)
		a.flags = append(a.flags, "-redis", "redis://"+client.Options().Addr, "-prefix", prefix)
	}
	a.start()
	return a
}

// start starts the server and waits until it listens. It is called by the goroutine of the test
// only.
func (a *api) start() {
	a.t.Helper()
	p := start(a.t, "httpworker", programs.path(a.t, "httpworker"), nil, a.flags...)
	require.Eventually(a.t, func() bool { return !p.running() || len(p.stdout.lines("addr=")) == 1 }, 30*time.Second, 5*time.Millisecond)
	p.requireRunning()
	a.mu.Lock()
	defer a.mu.Unlock()
	a.proc, a.url = p, "http://"+strings.TrimPrefix(p.stdout.lines("addr=")[0], "addr=")
}

func (a *api) address() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.url
}

// answered is the answer that a client got.
type answered struct {
	status   int
	body     string
	replayed bool
}

// temporary reports whether the same request is to be sent again.
func (r answered) temporary() bool {
	return r.status == http.StatusServiceUnavailable || strings.Contains(r.body, "request_in_flight") || strings.Contains(r.body, "rolled_back")
}

// send sends a key. die is the step at which the server is to die; empty: nowhere.
func (a *api) send(ctx context.Context, key, die string) (answered, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, a.address()+"/orders", bytes.NewReader([]byte(`{"amount":7}`)))
	if err != nil {
		return answered{}, err
	}
	r.Header.Set("Idempotency-Key", key)
	r.Header.Set("X-Die", die)
	resp, err := a.client.Do(r)
	if err != nil {
		return answered{}, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return answered{resp.StatusCode, string(body), resp.Header.Get("Idempotent-Replayed") == "true"}, err
}

// insist sends a key until there is an answer that is final.
func (a *api) insist(ctx context.Context, key string) (r answered, err error) {
	limit := time.After(30 * time.Second)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		if r, err = a.send(ctx, key, ""); err == nil && !r.temporary() {
			return r, nil
		}
		select {
		case <-tick.C:
		case <-limit:
			return r, fmt.Errorf("no final answer to %s in 30 s, last %+v: %w", key, r, err)
		}
	}
}

// effects counts the effects of each key.
func (a *api) effects() map[string]int {
	a.t.Helper()
	rows, err := a.pool.Query(a.t.Context(), "SELECT key, count(*) FROM effects GROUP BY key")
	require.NoError(a.t, err)
	defer rows.Close()
	counts := make(map[string]int)
	for rows.Next() {
		var key string
		var n int
		require.NoError(a.t, rows.Scan(&key, &n))
		counts[key] = n
	}
	require.NoError(a.t, rows.Err())
	return counts
}

// afterDeath is the state that a client with the same key may find after a server died at a step.
type afterDeath struct {
	step    string
	effects int  // when the server has died
	replay  bool // the answer was stored
	unknown bool // the outcome is unknown (claims only)
}

// afterAnswer is the step at which the test kills the server.
const afterAnswer = "after the answer"

// The server is killed at every step of a request, and the key sent again to another one (H-07,
// H-23, rule 19). With a claim the outcome of a run that was cut short is unknown. The answer says
// so, and there is no second run. A transaction that was not committed had no effect, and runs
// again.
func TestServerKilledAtEveryStep(t *testing.T) {
	needTime(t)
	for name, steps := range map[string][]afterDeath{
		"claimed": {
			{step: "before the claim"},
			{step: "after the claim", unknown: true},
			{step: "before the effect", unknown: true},
			{step: "after the effect", unknown: true, effects: 1},
			{step: "before the end", unknown: true, effects: 1},
			{step: "after the end", replay: true, effects: 1},
			{step: afterAnswer, replay: true, effects: 1},
		},
		"transactional": {
			{step: "before the claim"},
			{step: "after the claim"},
			{step: "before the effect"},
			{step: "after the effect"},
			{step: "before the end"},
			{step: "after the end", replay: true, effects: 1},
			{step: afterAnswer, replay: true, effects: 1},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rounds, kills := 2, 0
			if soak() {
				rounds = 50
			}
			a := newAPI(t, name == "transactional")
			for round := range rounds {
				for _, want := range steps {
					a.killAt(fmt.Sprintf("%s round %d", want.step, round), want)
					kills++
				}
			}
			soaked(t, "TestServerKilledAtEveryStep/"+name, 0, kills, kills, 0, 0, "at most one effect each, and its answer where there is one")
		})
	}
}

// killAt has the server die at a step of a key, and requires the right answer from its successor.
func (a *api) killAt(key string, want afterDeath) {
	t := a.t
	t.Helper()
	first, err := a.send(t.Context(), key, want.step)
	if want.step == afterAnswer {
		require.NoError(t, err)
		require.Equal(t, http.StatusCreated, first.status)
		a.proc.kill()
	} else {
		require.Error(t, err, "the server was to die %s, and answered %+v", want.step, first)
		<-a.proc.done
	}
	require.Equal(t, want.effects, a.effects()[key], "effects of a server that died %s", want.step)
	a.start()
	for i := range 3 {
		r, err := a.insist(t.Context(), key)
		require.NoError(t, err)
		if want.unknown {
			require.Equal(t, http.StatusConflict, r.status, "died %s: %+v", want.step, r)
			require.Contains(t, r.body, "unknown_outcome")
			require.Equal(t, want.effects, a.effects()[key])
			continue
		}
		require.Equal(t, http.StatusCreated, r.status, "died %s: %+v", want.step, r)
		require.Equal(t, want.replay || i > 0, r.replayed, "died %s", want.step)
		require.Equal(t, 1, a.effects()[key], "died %s", want.step)
	}
}

// The server gets kill -9 at random moments while many clients send, each until it has a final
// answer. In transactions every key has one effect. With claims it has at most one, and exactly one
// if the answer says so (H-07, rule 19).
func TestServerKilledUnderLoad(t *testing.T) {
	needTime(t)
	for _, name := range []string{"claimed", "transactional"} {
		t.Run(name, func(t *testing.T) {
			const clients = 8
			kills := 5
			if soak() {
				kills = 100
			}
			rng, seed := newSeeded(t)
			a := newAPI(t, name == "transactional")
			l := a.load(t.Context(), clients)
			for range kills {
				goal := l.count() + 20
				require.Eventually(t, func() bool { return l.count() >= goal }, 60*time.Second, 2*time.Millisecond, "no answers")
				pause(t, rng, 20*time.Millisecond)
				a.proc.kill()
				a.start()
			}
			all, unknown := l.end(t), 0
			effects := a.effects()
			for key, r := range all {
				switch {
				case name == "claimed" && strings.Contains(r.body, "unknown_outcome"):
					unknown++
					require.LessOrEqual(t, effects[key], 1, "effects of %s", key)
				default:
					require.Equal(t, http.StatusCreated, r.status, "%s: %+v", key, r)
					require.Equal(t, 1, effects[key], "effects of %s", key)
				}
			}
			require.LessOrEqual(t, len(effects), len(all))
			require.LessOrEqual(t, unknown, kills*clients)
			soaked(t, "TestServerKilledUnderLoad/"+name, seed, len(all), kills, 0, 0, fmt.Sprintf(
				"%d effects, none twice; outcome of %d unknown, and told so", len(effects), unknown))
		})
	}
}

// load is a number of clients that send keys, one after the other, and some of them twice at once.
type load struct {
	stop    context.CancelFunc
	clients sync.WaitGroup

	mu  sync.Mutex
	all map[string]answered
	err error
}

func (a *api) load(ctx context.Context, clients int) *load {
	l := &load{all: make(map[string]answered)}
	running, stop := context.WithCancel(ctx)
	l.stop = stop
	for c := range clients {
		l.clients.Go(func() {
			for i := 0; running.Err() == nil; i++ {
				key := fmt.Sprintf("client-%d-%d", c, i)
				if rand.IntN(4) == 0 { // one without a waiting caller
					l.clients.Go(func() { _, _ = a.send(ctx, key, "") })
				}
				r, err := a.insist(ctx, key) // to its end, also when no more are begun
				l.note(key, r, err)
			}
		})
	}
	a.t.Cleanup(func() {
		stop()
		l.clients.Wait()
	})
	return l
}

func (l *load) note(key string, r answered, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all[key] = r
	if err != nil && l.err == nil {
		l.err = err
	}
}

func (l *load) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.all)
}

// end stops the clients, and returns the final answer to each key.
func (l *load) end(t testing.TB) map[string]answered {
	t.Helper()
	l.stop()
	l.clients.Wait()
	require.NoError(t, l.err)
	return l.all
}
