package pgoutbox_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/internal/testenv"
	"github.com/idem-go/idem/outbox"
	"github.com/idem-go/idem/outbox/pgoutbox"
)

// modes are the execution modes of statements: prepared, which is pgx's default, and those for
// poolers (P-17).
var modes = map[string]pgx.QueryExecMode{
	"prepared": pgx.QueryExecModeCacheStatement,
	"exec":     pgx.QueryExecModeExec,
	"simple":   pgx.QueryExecModeSimpleProtocol,
}

type configure func(*pgxpool.Config)

func inMode(m pgx.QueryExecMode) configure {
	return func(c *pgxpool.Config) { c.ConnConfig.DefaultQueryExecMode = m }
}

func maxConns(n int32) configure { return func(c *pgxpool.Config) { c.MaxConns = n } }

func param(name, value string) configure {
	return func(c *pgxpool.Config) { c.ConnConfig.RuntimeParams[name] = value }
}

func newPool(t testing.TB, url string, with ...configure) *pgxpool.Pool {
	t.Helper()
	cfg, err := pgxpool.ParseConfig(url)
	require.NoError(t, err)
	cfg.MaxConns = 8
	for _, w := range with {
		w(cfg)
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	return pool
}

// newBox returns an outbox in a schema of its own.
func newBox(t testing.TB, with ...configure) (*pgoutbox.Outbox, *pgxpool.Pool) {
	t.Helper()
	pool := newPool(t, testenv.Postgres(t), with...)
	require.NoError(t, pgoutbox.Migrate(t.Context(), pool))
	return pgoutbox.New(pool), pool
}

func entry(key, id string) outbox.Entry {
	return outbox.Entry{Topic: "orders", Key: key, Type: "order.paid", ID: id, Payload: []byte("payload of " + id)}
}

// add commits a transaction that adds entries.
func add(t testing.TB, pool *pgxpool.Pool, box *pgoutbox.Outbox, entries ...outbox.Entry) {
	t.Helper()
	require.NoError(t, pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
		return box.Add(t.Context(), tx, entries...)
	}))
}

// hold lets a relay take all shards.
func hold(t testing.TB, box *pgoutbox.Outbox, relay string) []outbox.Lease {
	t.Helper()
	held, err := box.Hold(t.Context(), relay, time.Minute, true)
	require.NoError(t, err)
	return held
}

// fetch returns the waiting rows of all shards.
func fetch(t testing.TB, box *pgoutbox.Outbox) []outbox.Row {
	t.Helper()
	return fetchWith(t, box, outbox.Fetch{Limit: 10_000 * outbox.Shards, Bytes: 1 << 30, Halt: true})
}

func fetchWith(t testing.TB, box *pgoutbox.Outbox, f outbox.Fetch) []outbox.Row {
	t.Helper()
	if f.Shards == nil {
		for s := range outbox.Shards {
			f.Shards = append(f.Shards, outbox.Lease{Shard: s})
		}
	}
	rows, err := box.Fetch(t.Context(), f)
	require.NoError(t, err)
	return rows
}

func ids(rows []outbox.Row) []string {
	out := make([]string, len(rows))
	for i, r := range rows {
		out[i] = r.Entry.ID
	}
	return out
}

// states returns the state of each row by its event's ID.
func states(t testing.TB, pool *pgxpool.Pool) map[string]int {
	t.Helper()
	rows, err := pool.Query(t.Context(), "SELECT event_id, state FROM idem_outbox")
	require.NoError(t, err)
	all := map[string]int{}
	var id string
	var state int
	_, err = pgx.ForEachRow(rows, []any{&id, &state}, func() error {
		all[id] = state
		return nil
	})
	require.NoError(t, err)
	return all
}

func begin(t testing.TB, pool *pgxpool.Pool) pgx.Tx {
	t.Helper()
	tx, err := pool.Begin(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
	return tx
}

// together runs n functions at once, and returns their errors.
func together(n int, fn func(int) error) error {
	errs := make([]error, n)
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { errs[i] = fn(i) })
	}
	all.Wait()
	return errors.Join(errs...)
}
