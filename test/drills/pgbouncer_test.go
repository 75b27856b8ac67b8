package drills

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	_ "github.com/jackc/pgx/v5/stdlib" // the driver
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/dedup/pgstore"
	sqlpostgres "github.com/idem-go/idem/dedup/sqlstore/postgres"
	"github.com/idem-go/idem/internal/testenv"
	"github.com/idem-go/idem/outbox"
	"github.com/idem-go/idem/outbox/pgoutbox"
)

// startup are the parameters of pgstore.Configure that a pooler must ignore, by the docs and
// pgstore.
const startup = "client_connection_check_interval,tcp_keepalives_idle,tcp_keepalives_interval," +
	"tcp_keepalives_count,tcp_user_timeout"

// sessions are the sizes of the pools of PgBouncer. In transaction mode there are fewer sessions
// than clients.
var sessions = map[string]string{"session": "60", "transaction": "12"}

// bouncer is a PgBouncer in front of a Postgres.
type bouncer struct {
	*process
	path, config, addr string
	prepared           bool // knows prepared statements in transaction mode
}

func startBouncer(t testing.TB, p *postgres, mode, ignore string) *bouncer {
	t.Helper()
	b := &bouncer{path: pgbouncer(t), addr: testenv.FreeAddr(t)}
	out, err := exec.CommandContext(t.Context(), b.path, "--version").Output()
	require.NoError(t, err)
	version := regexp.MustCompile(`PgBouncer 1\.(\d+)`).FindSubmatch(out)
	require.NotNil(t, version, "%s", out)
	minor, err := strconv.Atoi(string(version[1]))
	require.NoError(t, err)
	b.prepared = minor >= 21
	// A parameter of pgstore.Configure that PgBouncer ignores. So the role has it, as documented.
	p.exec(t, "postgres", "ALTER ROLE idem SET client_connection_check_interval = 2000")
	dir := directory(t)
	host, port, err := net.SplitHostPort(p.addr)
	require.NoError(t, err)
	ownHost, ownPort, err := net.SplitHostPort(b.addr)
	require.NoError(t, err)
	b.config = filepath.Join(dir, "pgbouncer.ini")
	users := filepath.Join(dir, "users")
	require.NoError(t, os.WriteFile(users, []byte(`"idem" ""`+"\n"), 0o644))
	lines := []string{
		"[databases]", fmt.Sprintf("* = host=%s port=%s", host, port),
		"[pgbouncer]", "listen_addr=" + ownHost, "listen_port=" + ownPort, "unix_socket_dir=",
		"auth_type=trust", "auth_file=" + users, "pool_mode=" + mode,
		// New sessions of the server all the time. In session mode each client needs its own.
		"default_pool_size=" + sessions[mode], "max_client_conn=200", "server_lifetime=1", "server_round_robin=1",
		"ignore_startup_parameters=" + ignore,
	}
	if b.prepared {
		lines = append(lines, "max_prepared_statements=100")
	}
	require.NoError(t, os.WriteFile(b.config, []byte(strings.Join(lines, "\n")+"\n"), 0o644))
	b.serve(t)
	return b
}

func (b *bouncer) serve(t testing.TB) {
	t.Helper()
	b.process = start(t, b.config+".log", b.path, b.config)
	require.Eventually(t, func() bool {
		conn, err := net.DialTimeout("tcp", b.addr, time.Second)
		if err == nil {
			_ = conn.Close()
		}
		return err == nil
	}, 10*time.Second, 20*time.Millisecond, "PgBouncer does not answer: %s.log", b.config)
}

// url has the exec mode of pgx as its last parameter. An empty mode is the default of pgx.
func (b *bouncer) url(database, mode string) string {
	u := "postgres://idem@" + b.addr + "/" + database + "?sslmode=disable&connect_timeout=2"
	if mode != "" {
		u += "&default_query_exec_mode=" + mode
	}
	return u
}

func pgbouncer(t testing.TB) string {
	t.Helper()
	if path, err := exec.LookPath("/usr/sbin/pgbouncer"); err == nil {
		return path
	}
	return program(t, "pgbouncer", "Debian: apt-get install pgbouncer")
}

// through is a way to reach Postgres.
type through struct {
	pool, mode string // of PgBouncer, of pgx
	database   string // database/sql, or pgx
	short      bool
}

// P-17: events that go through PgBouncer have one effect each, in both of its modes and in each
// mode of pgx that the documentation names. In transaction mode PgBouncer gives each transaction
// another session of the server. PgBouncer is killed in the middle.
func TestPgBouncer_P17(t *testing.T) {
	pgbouncer(t)
	p := startPostgres(t)
	for i, w := range []through{
		{"session", "", "pgx", true},
		{"session", "exec", "pgx", false},
		{"session", "simple_protocol", "pgx", false},
		{"session", "", "database-sql", false},
		{"transaction", "exec", "pgx", true},
		{"transaction", "simple_protocol", "pgx", true},
		{"transaction", "exec", "database-sql", true},
		{"transaction", "simple_protocol", "database-sql", false},
	} {
		if !w.short && !long() {
			continue
		}
		mode := w.mode
		if mode == "" {
			mode = "default"
		}
		t.Run(w.pool+"/"+w.database+"/"+mode, func(t *testing.T) {
			database := fmt.Sprintf("drill%d", i)
			p.prepare(t, database)
			b := startBouncer(t, p, w.pool, startup)
			pooled(t, p, b, w, database)
		})
	}
}

// prepare creates a database with the tables of store, outbox and drill.
func (p *postgres) prepare(t testing.TB, database string) {
	t.Helper()
	p.exec(t, "postgres", "CREATE DATABASE "+database)
	pool, err := pgxpool.New(t.Context(), p.url(database))
	require.NoError(t, err)
	defer pool.Close()
	require.NoError(t, pgstore.Migrate(t.Context(), pool))
	require.NoError(t, pgoutbox.Migrate(t.Context(), pool))
	p.exec(t, database, "CREATE TABLE effects (id text NOT NULL)")
}

// pooled runs workers and relays through PgBouncer, and kills PgBouncer in the middle.
func pooled(t *testing.T, p *postgres, b *bouncer, w through, database string) {
	outside, published := newCounts(), newCounts()
	url := b.url(database, w.mode)
	var workers []*idem.Processor
	for range 3 {
		router := idem.NewRouter()
		idem.On(router, "outside", func(_ context.Context, e idem.Event[event]) error {
			outside.add(e.ID)
			return nil
		})
		var store dedup.Store
		if w.database == "pgx" {
			store = pgxWorker(t, router, url)
		} else {
			store = sqlWorker(t, router, url)
		}
		workers = append(workers, worker(t, store, router))
	}
	relays := startRelays(t, url, published)
	half := lasting(1500*time.Millisecond, 6*time.Second)
	l := startLoad(t, workers, 2*time.Millisecond, "inside", "outside")
	time.Sleep(half)
	b.kill()
	time.Sleep(300 * time.Millisecond)
	b.serve(t)
	time.Sleep(half)
	l.stop()
	r := tally(l.sent("outside"), outside.copyOf())
	r.began = l.began
	in := tally(l.sent("inside"), effectsIn(t, p.url(database)))
	r.sent, r.effects, r.lost, r.doubled = r.sent+in.sent, r.effects+in.effects, r.lost+in.lost, r.doubled+in.doubled
	if w.database == "pgx" { // each of these emits an event
		assert.Eventually(t, func() bool { return tally(l.sent("inside"), published.copyOf()).lost == 0 },
			30*time.Second, 50*time.Millisecond, "an emitted event is not published")
		out := tally(l.sent("inside"), published.copyOf())
		r.notes = fmt.Sprintf("published: lost=%d copies=%d", out.lost, out.doubled)
	}
	relays()
	r.print(t)
	require.Positive(t, in.sent)
	require.Zero(t, r.lost)
	require.Zero(t, r.doubled)
	if w.mode == "exec" || long() {
		command(t, b, database, w)
	}
}

// pgxWorker has a store of package pgstore. Its handler of "inside" also emits an event.
func pgxWorker(t testing.TB, router *idem.Router, url string) dedup.Store {
	t.Helper()
	store, err := pgstore.Open(t.Context(), url+"&pool_max_conns=6")
	require.NoError(t, err)
	t.Cleanup(store.Close)
	pool, err := pgxpool.New(t.Context(), url) // Add of the outbox needs no session settings
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	box := pgoutbox.New(pool)
	idem.OnTx(router, "inside", func(ctx context.Context, tx pgx.Tx, e idem.Event[event]) error {
		if _, err := tx.Exec(ctx, "INSERT INTO effects VALUES ($1)", e.ID); err != nil {
			return err
		}
		return box.Add(ctx, tx, outbox.Entry{Topic: "out", Key: e.ID, Type: "done", ID: e.ID, Payload: []byte(`{}`)})
	})
	return store
}

// sqlWorker has a store of package sqlstore/postgres.
func sqlWorker(t testing.TB, router *idem.Router, url string) dedup.Store {
	t.Helper()
	db, err := sql.Open("pgx", url+"&"+sqlpostgres.Parameters)
	require.NoError(t, err)
	db.SetMaxOpenConns(6)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	idem.OnTx(router, "inside", func(ctx context.Context, tx *sql.Tx, e idem.Event[event]) error {
		_, err := tx.ExecContext(ctx, "INSERT INTO effects VALUES ($1)", e.ID)
		return err
	})
	return sqlpostgres.New(db)
}

// recorder is a producer that counts events.
type recorder struct{ *counts }

func (r recorder) ProduceEach(_ context.Context, msgs []*idem.Message) []error {
	for _, m := range msgs {
		for _, h := range m.Headers {
			if h.Key == "event-id" {
				r.add(string(h.Value))
			}
		}
	}
	return make([]error, len(msgs))
}

// startRelays runs two relays until the returned function is called.
func startRelays(t testing.TB, url string, published *counts) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	for range 2 {
		pool, err := pgxpool.New(t.Context(), url)
		require.NoError(t, err)
		t.Cleanup(pool.Close)
		relay, err := outbox.NewRelay(outbox.RelayConfig{
			Store: pgoutbox.New(pool), Producer: recorder{published}, Interval: 50 * time.Millisecond, Lease: 3 * time.Second,
		})
		require.NoError(t, err)
		all.Go(func() {
			if err := relay.Run(ctx); err != nil && !errors.Is(err, context.Canceled) {
				assert.NoError(t, err)
			}
		})
	}
	stop = func() {
		cancel()
		all.Wait()
	}
	t.Cleanup(stop)
	return stop
}

// command runs verbs of the command through PgBouncer.
func command(t *testing.T, b *bouncer, database string, w through) {
	t.Helper()
	url := b.url(database, w.mode)
	idem := func(args ...string) (string, error) {
		cmd := exec.CommandContext(t.Context(), idemCommand(t), args...)
		cmd.Env = append(os.Environ(), "IDEM_STORE="+url, "IDEM_GROUP=workers", "IDEM_SCOPE=workers")
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	out, err := idem("event", "get", "-o", "json", idOf(0, 0))
	require.NoError(t, err, out)
	require.Contains(t, out, "done")
	out, err = idem("event", "list", "--status", "done", "--limit", "5")
	require.NoError(t, err, out)
	out, err = idem("outbox", "status", "-o", "json")
	require.NoError(t, err, out)
	require.True(t, json.Valid([]byte(out)), out)
	out, _ = idem("doctor", "-o", "json") // no brokers: the result is not good
	require.Contains(t, out, "postgres.pooler")
	out, err = idem("migrate", "status")
	require.NoError(t, err, out)
}

var built struct {
	sync.Once
	path string
	err  error
}

// idemCommand returns the path of the command, which is built once.
func idemCommand(t testing.TB) string {
	t.Helper()
	built.Do(func() {
		dir, err := os.MkdirTemp("", "idem-command-") //nolint:usetesting // of all drills, removed in TestMain
		if err != nil {
			built.err = err
			return
		}
		built.path = filepath.Join(dir, "idem")
		out, err := exec.Command("go", "-C", "../../cmd/idem", "build", "-o", built.path).CombinedOutput()
		if err != nil {
			built.err = fmt.Errorf("go build: %w: %s", err, out)
		}
	})
	require.NoError(t, built.err)
	return built.path
}
