package postgres_test

import (
	"context"
	"crypto/rand"
	"database/sql"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	_ "github.com/jackc/pgx/v5/stdlib"
	_ "github.com/lib/pq"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/internal/testenv"
	"github.com/idem-go/idem/outbox"
	"github.com/idem-go/idem/outbox/outboxtest"
	"github.com/idem-go/idem/outbox/pgoutbox"
	"github.com/idem-go/idem/outbox/sqloutbox/postgres"
)

// transaction is one of database/sql, or of pgx.
type transaction struct {
	sql *sql.Tx
	pgx pgx.Tx
}

// writers are those of one table: pgoutbox, and this package on drivers.
type writers struct {
	pool *pgxpool.Pool
	dbs  []*sql.DB
	next atomic.Int64
	sql  *postgres.Outbox
	pgx  *pgoutbox.Outbox
}

func newWriters(t testing.TB, drivers ...string) *writers {
	t.Helper()
	url := testenv.Postgres(t)
	cfg, err := pgxpool.ParseConfig(url)
	require.NoError(t, err)
	cfg.MaxConns = 12
	w := &writers{sql: postgres.New()}
	w.pool, err = pgxpool.NewWithConfig(t.Context(), cfg)
	require.NoError(t, err)
	t.Cleanup(w.pool.Close)
	require.NoError(t, pgoutbox.Migrate(t.Context(), w.pool))
	w.pgx = pgoutbox.New(w.pool)
	for _, driver := range drivers {
		db, err := sql.Open(driver, url)
		require.NoError(t, err)
		db.SetMaxOpenConns(12)
		t.Cleanup(func() { require.NoError(t, db.Close()) })
		w.dbs = append(w.dbs, db)
	}
	return w
}

// begin takes another writer each time. native: pgoutbox is one of them.
func (w *writers) begin(ctx context.Context, native bool) (tx transaction, err error) {
	n := len(w.dbs)
	if native {
		n++
	}
	at := int(w.next.Add(1)) % n
	if at == len(w.dbs) {
		tx.pgx, err = w.pool.Begin(ctx)
	} else {
		tx.sql, err = w.dbs[at].BeginTx(ctx, nil)
	}
	return tx, err
}

func (w *writers) add(ctx context.Context, tx transaction, entries ...outbox.Entry) error {
	if tx.pgx != nil {
		return w.pgx.Add(ctx, tx.pgx, entries...)
	}
	return w.sql.Add(ctx, tx.sql, entries...)
}

func end(native func(pgx.Tx, context.Context) error, std func(*sql.Tx) error) func(context.Context, transaction) error {
	return func(ctx context.Context, tx transaction) error {
		if tx.pgx != nil {
			return native(tx.pgx, ctx)
		}
		return std(tx.sql)
	}
}

func exec(ctx context.Context, tx transaction, text string) error {
	if tx.pgx != nil {
		_, err := tx.pgx.Exec(ctx, text)
		return err
	}
	_, err := tx.sql.ExecContext(ctx, text)
	return err
}

func (w *writers) site(native bool) outboxtest.Site[transaction] {
	run := func(ctx context.Context, text string, args ...any) error {
		_, err := w.pool.Exec(ctx, text, args...)
		return err
	}
	return outboxtest.Site[transaction]{
		Outbox:   w.pgx,
		Begin:    func(ctx context.Context) (transaction, error) { return w.begin(ctx, native) },
		Commit:   end(pgx.Tx.Commit, (*sql.Tx).Commit),
		Rollback: end(pgx.Tx.Rollback, (*sql.Tx).Rollback),
		Add:      w.add,
		Savepoint: func(ctx context.Context, tx transaction) (inner transaction, undo, keep func(context.Context) error, err error) {
			later := func(text string) func(context.Context) error {
				return func(ctx context.Context) error { return exec(ctx, tx, text) }
			}
			return tx, later("ROLLBACK TO SAVEPOINT here"), later("RELEASE SAVEPOINT here"), exec(ctx, tx, "SAVEPOINT here")
		},
		States: func(ctx context.Context) (map[string]int, error) {
			rows, err := w.pool.Query(ctx, "SELECT event_id, state FROM idem_outbox")
			if err != nil {
				return nil, err
			}
			all := map[string]int{}
			var id string
			var state int
			_, err = pgx.ForEachRow(rows, []any{&id, &state}, func() error {
				all[id] = state
				return nil
			})
			return all, err
		},
		ExpireShards: func(ctx context.Context, shards []int) error {
			const text = "UPDATE idem_outbox_shards SET lease_until = clock_timestamp() - interval '1s'"
			if shards == nil {
				return run(ctx, text)
			}
			return run(ctx, text+" WHERE shard = ANY ($1)", shards)
		},
		ExpireRelays: func(ctx context.Context) error {
			return run(ctx, "UPDATE idem_outbox_relays SET alive_until = clock_timestamp() - interval '1s'")
		},
		LoseRow: func(ctx context.Context, seq int64) error {
			if err := run(ctx, "DELETE FROM idem_outbox WHERE seq = $1", seq); err != nil {
				return err
			}
			return run(ctx, "SELECT setval(pg_get_serial_sequence('idem_outbox', 'seq'), $1, false)", seq)
		},
		LockShard: func(ctx context.Context, shard int) (func() error, error) {
			tx, err := w.pool.Begin(ctx)
			if err != nil {
				return nil, err
			}
			_, err = tx.Exec(ctx, "SELECT FROM idem_outbox_shards WHERE shard = $1 FOR UPDATE", shard)
			return func() error { return tx.Rollback(context.Background()) }, err
		},
	}
}

var drivers = []string{"pgx", "postgres"}

// Rule 22: both packages, on all drivers, add to one table at once, and the relay of pgoutbox
// publishes all in the order of commits.
func TestConformance(t *testing.T) {
	outboxtest.Run(t, func(t testing.TB) outboxtest.Site[transaction] { return newWriters(t, drivers...).site(true) })
}

func TestRoundTripOfEachDriver(t *testing.T) {
	for _, driver := range drivers {
		t.Run(driver, func(t *testing.T) {
			outboxtest.RoundTrip(t, newWriters(t, driver).site(false))
			outboxtest.RoundTripAlone(t, newWriters(t, driver).site(false))
		})
	}
}

// Rule 22: an Add waits for an Add of the other package to the same topic and key, and for no other,
// whichever comes first.
func TestBothPackagesTakeTheSameLocks(t *testing.T) {
	w := newWriters(t, drivers...)
	entry := func(key, id string) outbox.Entry {
		return outbox.Entry{Topic: "orders", Key: key, Type: "t", ID: id}
	}
	for _, first := range []int{0, 1, 2} {
		for _, second := range []int{0, 1, 2} {
			open := func(which int) transaction {
				w.next.Store(int64(which) - 1)
				tx, err := w.begin(t.Context(), true)
				require.NoError(t, err)
				t.Cleanup(func() { _ = end(pgx.Tx.Rollback, (*sql.Tx).Rollback)(context.Background(), tx) })
				return tx
			}
			one, two := open(first), open(second)
			require.NoError(t, w.add(t.Context(), one, entry("A", "1")))
			require.NoError(t, w.add(t.Context(), two, entry("B", "2")))
			require.NoError(t, exec(t.Context(), two, "SET LOCAL lock_timeout = '50ms'"))
			err := w.add(t.Context(), two, entry("A", "3"))
			var code interface{ SQLState() string }
			require.ErrorAs(t, err, &code)
			require.Equal(t, "55P03", code.SQLState())
			require.NotErrorIs(t, err, dedup.ErrUnavailable)
			require.NoError(t, end(pgx.Tx.Rollback, (*sql.Tx).Rollback)(t.Context(), one))
			require.NoError(t, end(pgx.Tx.Rollback, (*sql.Tx).Rollback)(t.Context(), two))
		}
	}
}

// Errors name the cause and the remedy.
func TestErrors(t *testing.T) {
	require.ErrorContains(t, postgres.New().Add(t.Context(), nil, outbox.Entry{}), "tx is nil")
	w := newWriters(t, "pgx")
	begin := func() *sql.Tx {
		tx, err := w.dbs[0].BeginTx(t.Context(), nil)
		require.NoError(t, err)
		t.Cleanup(func() { _ = tx.Rollback() })
		return tx
	}
	e := outbox.Entry{Topic: "orders", Key: "k", Type: "t", ID: "1"}
	large := e
	large.Payload = make([]byte, 2000)
	tx := begin()
	require.ErrorIs(t, postgres.New(postgres.MaxBytes(1000)).Add(t.Context(), tx, large), outbox.ErrEntry)
	require.ErrorContains(t, postgres.New(postgres.MaxBytes(0)).Add(t.Context(), tx, e), "MaxBytes")
	require.ErrorContains(t, postgres.New(postgres.InSchema("A")).Add(t.Context(), tx, e), "InSchema")
	require.ErrorContains(t, postgres.New(postgres.Observers(1)).Add(t.Context(), tx, e), "Observers")
	require.NoError(t, w.sql.Add(t.Context(), tx, e), "the transaction goes on")
	for name, box := range map[string]*postgres.Outbox{
		"no such schema": postgres.New(postgres.InSchema("nowhere")), "no table": postgres.New(),
	} {
		tx := begin()
		_, err := tx.ExecContext(t.Context(), "SET LOCAL search_path = pg_temp")
		require.NoError(t, err)
		err = box.Add(t.Context(), tx, e)
		var setup *dedup.SetupError
		require.ErrorAs(t, err, &setup, name)
		require.ErrorIs(t, err, dedup.ErrUnavailable, name)
	}
	gone := begin()
	var pid int
	require.NoError(t, gone.QueryRowContext(t.Context(), "SELECT pg_backend_pid()").Scan(&pid))
	_, err := w.pool.Exec(t.Context(), "SELECT pg_terminate_backend($1)", pid)
	require.NoError(t, err)
	bounded, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	err = w.sql.Add(bounded, gone, e)
	require.ErrorIs(t, err, dedup.ErrUnavailable)
}

// The remedy for missing rights has every statement that is needed, those for the schema too.
func TestAdd_RightsRemedy(t *testing.T) {
	w := newWriters(t, "pgx")
	role := "test_" + strings.ToLower(rand.Text())
	run := func(text string) {
		_, err := w.pool.Exec(t.Context(), text)
		require.NoError(t, err)
	}
	var schema string
	require.NoError(t, w.pool.QueryRow(t.Context(), "SELECT current_schema()").Scan(&schema))
	run("CREATE ROLE " + role)
	t.Cleanup(func() {
		_, err := w.pool.Exec(context.WithoutCancel(t.Context()), "DROP OWNED BY "+role+"; DROP ROLE "+role)
		require.NoError(t, err)
	})
	found := postgres.New()
	add := func(box *postgres.Outbox, role string) error {
		tx, err := w.dbs[0].BeginTx(t.Context(), nil)
		require.NoError(t, err)
		defer func() { require.NoError(t, tx.Rollback()) }()
		_, err = tx.ExecContext(t.Context(), "SET LOCAL ROLE "+role)
		require.NoError(t, err)
		return box.Add(t.Context(), tx, outbox.Entry{Topic: "orders", Key: "k", Type: "t", ID: "1"})
	}
	require.NoError(t, add(found, "NONE"), "the schema is looked up")
	for name, box := range map[string]*postgres.Outbox{"found": found, "named": postgres.New(postgres.InSchema(schema))} {
		err := add(box, role)
		require.ErrorIs(t, err, dedup.ErrUnavailable, name)
		var setup *dedup.SetupError
		require.ErrorAs(t, err, &setup, name)
		_, grants, ok := strings.Cut(setup.Fix, ": ")
		require.True(t, ok, setup.Fix)
		run(strings.ReplaceAll(grants, "<role>", role))
		require.NoError(t, add(box, role), name)
		run("DROP OWNED BY " + role)
	}
}
