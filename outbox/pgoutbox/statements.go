package pgoutbox

import (
	"embed"
	"strings"

	"github.com/jackc/pgx/v5"
)

//go:embed sql/*.sql
var sqlFiles embed.FS

// statements are the texts of sql/*.sql for one schema.
type statements struct {
	schema                                            string
	insert, insertOne, insertAlone, lockOne           string
	alive, bury, renew, give, take, held              string
	leaveShards, leave                                string
	plain, fetch, fetchSkip                           string
	settleShards, settleRows, settleSent, settleKept  string
	settleParked, settleBlocked, purge                string
	backlog, parked, parkedLock, parkedRetry, skipRow string
	checkServer, checkTables, checkRows               string
}

// table returns the quoted name of the table of events, with its schema.
func (s *statements) table() string { return pgx.Identifier{s.schema, "idem_outbox"}.Sanitize() }

func newStatements(schema string) *statements {
	quoted := pgx.Identifier{schema}.Sanitize()
	names := strings.NewReplacer(
		"{outbox}", quoted+".idem_outbox", "{shards}", quoted+".idem_outbox_shards",
		"{relays}", quoted+".idem_outbox_relays", "{schema_version}", quoted+".idem_outbox_schema")
	file := func(name string, more ...string) string {
		text, err := sqlFiles.ReadFile("sql/" + name + ".sql")
		if err != nil {
			panic(err) // the files are in the binary
		}
		one := strings.TrimSuffix(string(text), "\n")
		return names.Replace(strings.NewReplacer(more...).Replace(one))
	}
	const (
		sentDeleted = "DELETE FROM {outbox} o USING sent r WHERE o.seq = r.seq"
		sentKept    = "UPDATE {outbox} o SET state = 1, ended_at = clock_timestamp() " +
			"FROM sent r WHERE o.seq = r.seq"
		retried = "UPDATE {outbox} o SET state = 0, ended_at = NULL, error = NULL " +
			"FROM this t WHERE o.seq = t.seq"
		skipped = "DELETE FROM {outbox} o USING this t WHERE o.seq = t.seq"
	)
	return &statements{
		schema: schema,
		insert: file("insert"), insertOne: file("insert_one"),
		lockOne: file("lock_one"), insertAlone: file("insert_alone"),
		alive: file("alive"), bury: file("bury"), renew: file("renew"),
		give: file("give"), take: file("take"), held: file("held"),
		leaveShards: file("leave_shards"), leave: file("leave"),
		plain: file("plain"), fetch: file("fetch", "{skip}", ""),
		fetchSkip:    file("fetch", "{skip}", file("fetch_skip")),
		settleShards: file("settle_shards"), settleRows: file("settle_rows"),
		settleSent:   file("settle_sent", "{end}", sentDeleted),
		settleKept:   file("settle_sent", "{end}", sentKept),
		settleParked: file("settle_parked"), settleBlocked: file("settle_blocked"),
		purge: file("purge"), backlog: file("backlog"),
		parked: file("parked"), parkedLock: file("parked_lock"),
		parkedRetry: file("parked_end", "{end}", retried),
		skipRow:     file("parked_end", "{end}", skipped),
		checkServer: file("check_server"), checkTables: file("check_tables"),
		checkRows: file("check_rows"),
	}
}
