package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/dedup"
)

// importColumns are the columns that a query may have, as they are read.
var importColumns = []struct{ name, read, without string }{
	{"event_id", "event_id::text", ""},
	{"type", "type::text", "NULL::text"},
	{"tenant", "tenant::text", "NULL::text"},
	{"time", "time::timestamptz", "NULL::timestamptz"},
}

// openTable looks at the query before anything is asked or done.
func (im *importer) openTable(ctx context.Context) (func(context.Context) error, error) {
	f := im.f
	switch {
	case f.since != "" || f.until != "" || f.toCommitted:
		return nil, usage(
			"--since, --until and --to-committed are for --from-topic: use WHERE in the query",
		)
	case len(f.types) > 1:
		return nil, usage(
			"--from-table takes one --type, that of all rows; " +
				"with several, give the query a column type",
		)
	case f.given() || f.typeFixed != "":
		return nil, usage(
			"--id-*, --type-* and --tenant-* are for --from-topic: " +
				"a query names its columns event_id, type, tenant",
		)
	}
	pool := im.store.pool
	if url := cmp.Or(f.tableURL, os.Getenv("IDEM_IMPORT_URL")); url != "" {
		im.a.secrets.AddURL(url)
		var err error
		if pool, err = im.a.postgresPool(ctx, "--from-url", url); err != nil {
			return nil, err
		}
	}
	if pool == nil {
		return nil, usage("which Postgres has the table? give --from-url, the store is not in one")
	}
	query := strings.TrimRight(strings.TrimSpace(f.table), "; \t\n")
	im.counts.From = "The rows of " + query
	wrapped, err := wrapQuery(ctx, pool, query, len(f.types) == 1)
	if err != nil {
		return nil, err
	}
	im.total, im.about = estimateRows(ctx, pool, wrapped), true
	return func(ctx context.Context) error { return im.readTable(ctx, pool, wrapped) }, nil
}

// estimateRows asks the planner how many rows a query has, without running it. Zero: not known.
func estimateRows(ctx context.Context, pool *pgxpool.Pool, query string) int64 {
	var plans []struct {
		Plan struct {
			Rows float64 `json:"Plan Rows"`
		}
	}
	err := pool.QueryRow(ctx, "EXPLAIN (FORMAT JSON) "+query).Scan(&plans)
	if err != nil || len(plans) != 1 { // only the progress needs it
		return 0
	}
	return int64(plans[0].Plan.Rows)
}

// wrapQuery reads the columns of a query and returns a query with all of them as text. typed means
// that the type of the rows is known without a column.
func wrapQuery(ctx context.Context, pool *pgxpool.Pool, query string, typed bool) (string, error) {
	conn, err := pool.Acquire(ctx)
	if err != nil {
		return "", fmt.Errorf("--from-table: %w", err)
	}
	defer conn.Release()
	described, err := conn.Conn().PgConn().Prepare(ctx, "", query, nil)
	if err != nil {
		return "", usage("--from-table: %w", err)
	}
	var names []string
	for _, c := range described.Fields {
		names = append(names, c.Name)
	}
	switch {
	case !slices.Contains(names, "event_id"):
		return "", usage(
			"--from-table: the query has no column event_id, but %q: "+
				"name the column, such as SELECT payment_id AS event_id",
			names,
		)
	case !typed && !slices.Contains(names, "type"):
		return "", usage(
			"--from-table: the type of the events is missing: "+
				"give --type, or add a column type to the query, which has %q",
			names,
		)
	case typed && slices.Contains(names, "type"):
		return "", usage("--from-table: the query has a column type, leave --type away")
	}
	var columns []string
	for _, c := range importColumns {
		if slices.Contains(names, c.name) {
			columns = append(columns, c.read)
		} else {
			columns = append(columns, c.without)
		}
	}
	return "SELECT " + strings.Join(columns, ", ") + " FROM (" + query + "\n) AS q", nil
}

// readTable reads the rows through a cursor, in a read-only transaction. Neither the server nor
// this process holds more than a batch.
func (im *importer) readTable(ctx context.Context, pool *pgxpool.Pool, query string) error {
	return pgx.BeginTxFunc(
		ctx,
		pool,
		pgx.TxOptions{AccessMode: pgx.ReadOnly},
		func(tx pgx.Tx) error {
			for _, q := range []string{
				"SET LOCAL timezone = 'UTC'", "DECLARE idem_import NO SCROLL CURSOR FOR " + query,
			} {
				if _, err := tx.Exec(ctx, q); err != nil {
					return fmt.Errorf("--from-table: %w", err)
				}
			}
			for {
				n, err := im.readRows(ctx, tx)
				if err != nil || n == 0 {
					return err
				}
			}
		},
	)
}

func (im *importer) readRows(ctx context.Context, tx pgx.Tx) (n int, err error) {
	rows, err := tx.Query(ctx, fmt.Sprintf("FETCH %d FROM idem_import", importBatch))
	if err != nil {
		return 0, fmt.Errorf("--from-table: %w", err)
	}
	var id, typ, tenant *string
	var at *time.Time
	_, err = pgx.ForEachRow(rows, []any{&id, &typ, &tenant, &at}, func() error {
		n++
		im.count()
		return im.addRow(ctx, id, typ, tenant, at)
	})
	if err != nil {
		return n, fmt.Errorf("--from-table: row %d: %w", im.counts.Read, err)
	}
	return n, nil
}

func (im *importer) addRow(ctx context.Context, id, typ, tenant *string, at *time.Time) error {
	f := im.f
	if len(f.types) == 1 {
		typ = &f.types[0]
	}
	if tenant == nil {
		tenant = &f.tenant
	}
	where := fmt.Sprintf("row %d", im.counts.Read)
	if id == nil || *id == "" || typ == nil {
		im.counts.NoIdentity++
		im.example(where, fmt.Errorf("no event_id or no type"))
		return nil
	}
	var origin dedup.Origin
	if at != nil {
		origin.Time = *at
	}
	return im.add(ctx, where, *typ, *tenant, *id, origin)
}
