package pgoutbox

import (
	"context"
	"embed"
	"errors"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/internal/pgschema"
	"github.com/idem-go/idem/outbox"
)

// schemaVersion is the version of schema.sql that this release needs at least. Later ones keep working for it.
const schemaVersion = 1

//go:embed schema.sql
var schemaSQL string

//go:embed sql/*.sql
var sqlFiles embed.FS

// beginSQL says the isolation level, whatever default_transaction_isolation is (P-02).
const beginSQL = "begin isolation level read committed"

// Schema returns the SQL text that makes the tables, for a migration tool of your own. It may be run again and names no schema, so set
// the search path. It is what lies in schema.sql.
func Schema() string { return schemaSQL }

// Migrate makes the tables or brings them up to date, in one transaction. It may be run at every start and by several instances at
// once: they wait for each other, for at most a minute, and where all is there it takes no lock on a table. The role must own the
// tables.
//
// Without [InSchema] the tables are looked for as [New] does, else made in the first schema of the search path. A schema that is named
// by InSchema is created if it does not exist.
func Migrate(ctx context.Context, pool *pgxpool.Pool, opts ...Option) error {
	o := New(pool, opts...)
	if o.wrong != nil {
		return o.wrong
	}
	m := pgschema.Migration{Lock: "github.com/idem-go/idem/outbox/pgoutbox", Schema: o.schema, Table: "idem_outbox",
		Done: upToDate, SQL: schemaSQL}
	return o.failed("migrate", m.Run(ctx, pool))
}

// relations is all that schema.sql makes.
var relations = []string{"idem_outbox_schema", "idem_outbox", "idem_outbox_shards", "idem_outbox_relays", "idem_outbox_waiting",
	"idem_outbox_parked", "idem_outbox_sent"}

// upToDate reports whether everything is there. CREATE INDEX IF NOT EXISTS would lock its table to find that out.
func upToDate(ctx context.Context, tx pgx.Tx) (done bool, err error) {
	err = tx.QueryRow(ctx, "SELECT count(to_regclass(n)) = count(*) FROM unnest($1::text[]) n", relations).Scan(&done)
	if err != nil || !done {
		return false, err
	}
	err = tx.QueryRow(ctx, `SELECT (SELECT coalesce(max(version), 0) >= $1 FROM idem_outbox_schema)
		AND (SELECT count(*) = $2 FROM idem_outbox_shards)`, schemaVersion, outbox.Shards).Scan(&done)
	return done, err
}

// statements are the texts of sql/*.sql with the schema filled in.
type statements struct {
	schema                                            string // that the texts are for
	insert, lockOne                                   string
	alive, bury, renew, give, take, held              string
	leaveShards, leave                                string
	plain, fetch, fetchSkip                           string
	settleShards, settleRows, settleSent, settleKept  string
	settleParked, settleBlocked, purge                string
	backlog, parked, parkedLock, parkedRetry, skipRow string
	checkServer, checkTables, checkRows               string
}

func newStatements(schema string) *statements {
	quoted := pgx.Identifier{schema}.Sanitize()
	names := strings.NewReplacer("{outbox}", quoted+".idem_outbox", "{shards}", quoted+".idem_outbox_shards",
		"{relays}", quoted+".idem_outbox_relays", "{schema_version}", quoted+".idem_outbox_schema")
	file := func(name string, more ...string) string {
		text, err := sqlFiles.ReadFile("sql/" + name + ".sql")
		if err != nil {
			panic(err) // it is in the binary
		}
		return names.Replace(strings.NewReplacer(more...).Replace(strings.TrimSuffix(string(text), "\n")))
	}
	const ended = "UPDATE {outbox} o SET state = 1, ended_at = clock_timestamp() FROM sent r WHERE o.seq = r.seq"
	const retried = "UPDATE {outbox} o SET state = 0, ended_at = NULL, error = NULL FROM this t WHERE o.seq = t.seq"
	return &statements{
		schema: schema,
		insert: file("insert"), lockOne: file("lock_one"),
		alive: file("alive"), bury: file("bury"), renew: file("renew"), give: file("give"), take: file("take"), held: file("held"),
		leaveShards: file("leave_shards"), leave: file("leave"),
		plain: file("plain"), fetch: file("fetch", "{skip}", ""), fetchSkip: file("fetch", "{skip}", file("fetch_skip")),
		settleShards: file("settle_shards"), settleRows: file("settle_rows"),
		settleSent:   file("settle_sent", "{end}", "DELETE FROM {outbox} o USING sent r WHERE o.seq = r.seq"),
		settleKept:   file("settle_sent", "{end}", ended),
		settleParked: file("settle_parked"), settleBlocked: file("settle_blocked"),
		purge: file("purge"), backlog: file("backlog"),
		parked: file("parked"), parkedLock: file("parked_lock"),
		parkedRetry: file("parked_end", "{end}", retried),
		skipRow:     file("parked_end", "{end}", "DELETE FROM {outbox} o USING this t WHERE o.seq = t.seq"),
		checkServer: file("check_server"), checkTables: file("check_tables"), checkRows: file("check_rows"),
	}
}

// querier is a pool or a transaction.
type querier interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// statements returns the texts for the schema that has the tables. q is asked for it once.
func (o *Outbox) statements(ctx context.Context, q querier) (*statements, error) {
	if s := o.sql.Load(); s != nil {
		return s, nil
	}
	schema := o.schema
	if schema == "" {
		err := q.QueryRow(ctx, pgschema.FindSQL("idem_outbox")).Scan(&schema)
		if errors.Is(err, pgx.ErrNoRows) {
			return nil, errNoTables
		}
		if err != nil {
			return nil, err
		}
	}
	s := newStatements(schema)
	o.sql.Store(s)
	return s, nil
}

// pooled is statements for what works with the pool.
func (o *Outbox) pooled(ctx context.Context) (*statements, error) {
	switch {
	case o.wrong != nil:
		return nil, o.wrong
	case o.pool == nil:
		return nil, errNoPool
	}
	return o.statements(ctx, o.pool)
}

// atomic runs what build queues in one transaction and one round trip. A transaction that fails ends with its connection, which
// the pool closes: that is rare.
func (o *Outbox) atomic(ctx context.Context, build func(*statements, *pgx.Batch)) error {
	q, err := o.pooled(ctx)
	if err != nil {
		return err
	}
	conn, err := o.pool.Acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	var b pgx.Batch
	b.Queue(beginSQL)
	build(q, &b)
	b.Queue("commit")
	return conn.SendBatch(ctx, &b).Close()
}
