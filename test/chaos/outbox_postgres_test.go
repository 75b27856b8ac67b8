package chaos

import (
	"context"
	"database/sql"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/dedup/pgstore"
	"github.com/idem-go/idem/outbox"
	"github.com/idem-go/idem/outbox/pgoutbox"
)

// postgresBox is an outbox in Postgres.
type postgresBox struct {
	url   string
	pool  *pgxpool.Pool
	db    *sql.DB // of pool
	out   *pgoutbox.Outbox
	guard *dedup.Guard
	entry func(emission) outbox.Entry
}

// newMailbox returns a mailbox in Postgres. The tables are created.
func newMailbox(
	t testing.TB, brokers []string, url string, partitions int32, opts ...pgoutbox.Option,
) *mailbox {
	t.Helper()
	b := emptyMailbox(t, brokers, partitions)
	b.pg = openPostgresBox(t, url, opts...)
	b.pg.entry = func(e emission) outbox.Entry { return b.entry(e) }
	b.db = b.pg
	require.NoError(t, pgoutbox.Migrate(t.Context(), b.pg.pool))
	require.NoError(t, pgstore.Migrate(t.Context(), b.pg.pool))
	b.exec(`CREATE TABLE emitted (seq bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
		event_id text, tx int, n int, aggregate int)`)
	return b
}

// openPostgresBox opens an outbox with existing tables.
func openPostgresBox(t testing.TB, url string, opts ...pgoutbox.Option) *postgresBox {
	t.Helper()
	p := &postgresBox{url: url, pool: openPool(t, url)}
	p.db = stdlib.OpenDBFromPool(p.pool)
	t.Cleanup(func() { require.NoError(t, p.db.Close()) })
	p.out = pgoutbox.New(p.pool, opts...)
	p.guard = newGuard(t, pgstore.New(p.pool))
	return p
}

// openPool returns connections for all the writers of a test.
func openPool(t testing.TB, url string) *pgxpool.Pool {
	t.Helper()
	cfg, err := pgxpool.ParseConfig(url)
	require.NoError(t, err)
	cfg.MaxConns = 40
	pool, err := pgxpool.NewWithConfig(context.Background(), cfg) // the schema is dropped after it was closed
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	return pool
}

// count returns the number that a query selects.
func (p *postgresBox) count(t testing.TB, query string, args ...any) (n int) {
	t.Helper()
	require.NoError(t, p.pool.QueryRow(t.Context(), query, args...).Scan(&n), query)
	return n
}

func (p *postgresBox) relayFlags() []string { return []string{"-postgres", p.url} }

func (p *postgresBox) relays() outbox.Store { return p.out }

func (p *postgresBox) query(ctx context.Context, text string) (*sql.Rows, error) {
	return p.db.QueryContext(ctx, text)
}

// committed needs track_commit_timestamp.
func (p *postgresBox) committed() string {
	return `SELECT tx, n, aggregate FROM emitted ORDER BY pg_xact_commit_timestamp(xmin), tx, n`
}

// runsAgain knows lock_not_available, deadlock_detected and serialization_failure.
func (p *postgresBox) runsAgain(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && (pg.Code == "55P03" || pg.Code == "40P01" || pg.Code == "40001")
}

func (p *postgresBox) transact(
	ctx context.Context, how way, parent dedup.Key, fn func(func([]emission) error) error,
) error {
	if how == gated {
		_, _, err := dedup.DoTx(ctx, p.guard, parent, recordRetention,
			func(ctx context.Context, tx pgx.Tx) (struct{}, error) {
				return struct{}{}, fn(func(events []emission) error { return p.emit(ctx, tx, how, events) })
			})
		return err
	}
	tx, err := p.pool.Begin(ctx)
	if err != nil {
		return err
	}
	if how == queued {
		tx = p.out.Queue(tx)
	}
	err = fn(func(events []emission) error { return p.emit(ctx, tx, how, events) })
	if err != nil {
		return errors.Join(err, tx.Rollback(ctx))
	}
	return tx.Commit(ctx)
}

// emit adds events to the outbox, and notes them.
func (p *postgresBox) emit(ctx context.Context, tx pgx.Tx, how way, events []emission) error {
	if len(events) == 0 {
		return nil
	}
	var ids []string
	var txs, ns, aggregates []int
	entries := make([]outbox.Entry, len(events))
	for i, e := range events {
		entry := p.entry(e)
		ids, txs, ns, aggregates = append(ids, id(&entry)), append(txs, e.tx), append(ns, e.n), append(aggregates, e.aggregate)
		entries[i] = gatedEntry(entry, how, e.named())
	}
	_, err := tx.Exec(ctx, `INSERT INTO emitted (event_id, tx, n, aggregate)
		SELECT i, t, n, a FROM unnest($1::text[], $2::int[], $3::int[], $4::int[]) WITH ORDINALITY AS u(i, t, n, a, at) ORDER BY at`,
		ids, txs, ns, aggregates)
	if err != nil {
		return err
	}
	return p.out.Add(ctx, tx, entries...)
}
