package pgstore

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/internal/pgschema"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// schemaVersion is the version of schema.sql that this release needs at least. Later ones keep working for it.
const schemaVersion = 3

//go:embed schema.sql
var schemaSQL string

//go:embed schema_compact.sql
var compactSQL string

//go:embed sql/*.sql sql/compact/*.sql
var sqlFiles embed.FS

// beginSQL says the isolation level, whatever default_transaction_isolation is (P-02). It does not say READ WRITE: a
// database that was made read-only is to stay so (P-26).
const beginSQL = "begin isolation level read committed"

// commitSQL commits only the transaction that begin_tx.sql marked, which a handler may have ended and replaced by SQL:
// the session's status looks the same then (P-13). Without arguments, both statements travel in one message.
const commitSQL = "select 1 / (coalesce(current_setting('idem.session', true), '') <> '')::int; commit"

// findSchemaSQL looks for the tables along the search path.
var findSchemaSQL = pgschema.FindSQL("idem_schema")

// Schema returns the SQL text that makes the tables, for a migration tool of your own. It may be run again and names no
// schema, so set the search path. By default it is what lies in schema.sql; of the options [Compact] counts, for which
// schema_compact.sql stands in the place of the tables of events and claims.
func Schema(opts ...Option) string { return New(nil, opts...).layout.schema() }

// The part of schema.sql that the compact layout replaces.
const layoutBegins, layoutEnds = "-- [The readable layout", "-- [Both layouts.]"

func (l layout) schema() string {
	before, rest, _ := strings.Cut(schemaSQL, layoutBegins)
	_, after, found := strings.Cut(rest, layoutEnds)
	if l != compact || !found {
		return schemaSQL
	}
	return before + compactSQL + "\n" + layoutEnds + after
}

// Migrate makes the tables or brings them up to date, in one transaction. It may be run at every start and by several
// instances at once: they wait for each other, for at most a minute, and where all is there it takes no lock on a
// table, so that handlers which are running do not hold it up. The role must own the tables.
//
// Without [InSchema] the tables are looked for as [New] does, else made in the first schema of the search path. A
// schema that is named by InSchema is created if it does not exist.
func Migrate(ctx context.Context, pool *pgxpool.Pool, opts ...Option) error {
	s := New(pool, opts...)
	if s.wrong != nil {
		return s.wrong
	}
	m := pgschema.Migration{Lock: "github.com/idem-go/idem/dedup/pgstore", Schema: s.schema, Table: "idem_schema",
		Done: s.upToDate, SQL: s.layout.schema()}
	err := m.Run(ctx, pool)
	switch {
	case errors.Is(err, errLayout):
		return fmt.Errorf("pgstore: migrate: %w", err)
	case sqlState(err) == codeNoRight:
		return fmt.Errorf("pgstore: migrate: %w", &dedup.SetupError{
			Problem: fmt.Sprintf("role %q may not make or change the tables of the store", s.role()), Fix: "migrate as their owner", Err: err,
		})
	}
	return s.failed(ctx, "migrate", err)
}

// shared are the tables of both layouts, and own what each has besides.
var (
	shared = []string{"idem_schema", "event_starts", "idem_progress", "idem_horizons", "idem_scopes", "idem_scope_topics",
		"idem_recipes", "idem_leases", "deferred_queues", "deferred", "deferred_queues_due", "deferred_queues_partition"}
	own = map[layout][]string{
		readable: {"processed_events", "idempotency_keys", "processed_events_expires_at", "idempotency_keys_expires_at"},
		compact: {"processed_events_compact", "idempotency_keys_compact", "processed_events_compact_expires_at",
			"idempotency_keys_compact_expires_at", "idem_kinds", "idem_origins", "processed_events_read",
			"idempotency_keys_read"},
	}
)

// upToDate reports whether everything is there, and fails if the tables have the other layout. CREATE INDEX IF NOT EXISTS
// would lock its table to find that out.
func (s *Store) upToDate(ctx context.Context, tx pgx.Tx) (done bool, err error) {
	var schema string
	var there bool
	err = tx.QueryRow(ctx, "SELECT current_schema(), to_regclass('idem_schema') IS NOT NULL").Scan(&schema, &there)
	if err != nil || !there {
		return false, err
	}
	if err := s.checkLayout(ctx, newStatements(schema, s.layout), tx.QueryRow); err != nil {
		return false, err
	}
	err = tx.QueryRow(ctx, `SELECT (SELECT count(to_regclass(n)) = count(*) FROM unnest($1::text[]) n)
		AND (SELECT coalesce(max(version), 0) >= $2 FROM idem_schema)
		AND EXISTS (SELECT FROM pg_attribute WHERE attrelid = 'idem_schema'::regclass AND attname = 'layout')`,
		slices.Concat(shared, own[s.layout]), schemaVersion).Scan(&done)
	return done, err
}

// form says how the columns that requests mostly share travel: as arrays like the others, or once.
type form int

const (
	mixed form = iota
	alike
)

// What stands in the texts of claims for the columns that may be shared. Sorting by one of them costs nothing.
var (
	mixedColumns = map[layout][]string{
		readable: append([]string{
			"{arrays}", ", $1::text[], $2::text[], $3::text[]" + sharedArrays,
			"{columns}", ", tenant, scope, event_type" + sharedColumns,
			"{topics}", ", $11::text[]", "{topic_column}", ", topic", "{topic}", "r.topic",
			"{tenant}", "r.tenant", "{event_type}", "r.event_type",
		}, mixedShared...),
		compact: append([]string{
			"{arrays}", ", $1::integer[], $2::text[]" + sharedArrays, "{columns}", ", kind, scope" + sharedColumns,
			"{kind}", "r.kind",
		}, mixedShared...),
	}
	mixedShared = []string{"{scope}", "r.scope", "{fingerprint}", "r.fingerprint", "{generation}", "r.generation",
		"{retry}", "r.retry", "{retention}", "r.retention", "{any_age}", "r.any_age",
		"{turn}", "", "{returning}", ""} // two keys may have one ID
	alikeColumns = []string{
		"{arrays}", ", $5::bytea[]", "{columns}", ", fingerprint", "{topics}", "", "{topic_column}", "", "{topic}", "$11::text",
		"{tenant}", "$1::text", "{kind}", "$1::integer", "{scope}", "$2::text", "{event_type}", "$3::text",
		"{fingerprint}", "r.fingerprint", "{generation}", "$6::bigint", "{retry}", "$7::bigint", "{retention}", "$8::bigint",
		"{any_age}", "$9::boolean", "{turn}", "", "{returning}", "RETURNING {id}",
	}
)

const (
	sharedArrays  = ", $5::bytea[], $6::bigint[], $7::bigint[], $8::bigint[], $9::boolean[]"
	sharedColumns = ", fingerprint, generation, retry, retention, any_age"
)

// leaseLeft is for how many microseconds a claim is still held. Transactions have no lease.
var leaseLeft = map[string]string{
	"events": "0::bigint",
	"keys":   "greatest(1, extract(epoch FROM k.lease_until - clock_timestamp()) * 1000000)::bigint",
}

// statements are the texts of sql/*.sql with the schema filled in.
type statements struct {
	schema                                             string // that the texts are for
	beginClaims, beginTx, restore                      string
	lookKeys, insertKeys, existingKeys                 [2]string // by form
	lookEvents, insertEvents, existingEvents           [2]string // by form
	seeKeys, seeEvents                                 [2]string // all that is known, by form
	takeTurn, insertInTurn                             string    // for one event
	renew, complete, release, finishEvents, takeBack   string
	reopenEvent, reopenKey, reopenedEvent, reopenedKey string
	countStart, clearStarts, version, keyColumns       string
	noteConflict, conflicts                            string
	layout, kinds, newKinds, origins, newOrigins       string            // the last four: of the compact layout
	uniqueTests                                        map[string]string // by table
	originEvents, originKeys                           string            // of what is dead
	aging                                              agingSQL
	deferral                                           deferralSQL
	operator                                           operatorSQL
}

func newStatements(schema string, l layout) *statements {
	pairs := l.pairs(pgx.Identifier{schema}.Sanitize())
	fill := func(text string, more ...string) string {
		return strings.NewReplacer(pairs...).Replace(strings.NewReplacer(more...).Replace(text))
	}
	file := func(name string, more ...string) string { return fill(l.file(name), more...) }
	forms := func(verb, table string) [2]string {
		text := l.file(verb + "_" + table)
		switch verb { // texts that are one for both tables
		case "look":
			text = strings.NewReplacer("{hidden}", ", 'busy', 'conflict busy', 'conflict mine'", "{wait}", "0::bigint").Replace(l.file("look"))
		case "see":
			text = strings.NewReplacer("{hidden}", "", "{wait}", leaseLeft[table]).Replace(l.file("look") + l.file("look_old"))
		case "take": // an insert that does nothing out of turn
			text = strings.ReplaceAll(l.file("insert_"+table), "{turn}", " AND current_setting('idem.turn', true) = 'true'")
		}
		text = strings.ReplaceAll(text, "{table}", "{"+table+"_read}")
		for _, part := range []struct{ name, file string }{
			{"{requests}", "requests"}, {"{answer}", "answer_" + table}, {"{grant}", "grant_" + table},
			{"{too_old}", "too_old"},
		} {
			if strings.Contains(text, part.name) {
				text = strings.ReplaceAll(text, part.name, strings.TrimSpace(l.file(part.file)))
			}
		}
		return [2]string{mixed: fill(text, mixedColumns[l]...), alike: fill(text, alikeColumns...)}
	}
	const forget = ", uncertain = false, failures = 0, takeovers = 0, token = NULL"
	q := &statements{
		schema:      schema,
		beginClaims: file("begin_claims"), beginTx: file("begin_tx"), restore: file("restore"),
		lookKeys: forms("look", "keys"), insertKeys: forms("insert", "keys"), existingKeys: forms("existing", "keys"),
		lookEvents: forms("look", "events"), insertEvents: forms("insert", "events"),
		existingEvents: forms("existing", "events"),
		seeKeys:        forms("see", "keys"), seeEvents: forms("see", "events"),
		takeTurn: file("take_turn"), insertInTurn: forms("take", "events")[alike],
		renew: file("renew"), complete: file("complete"), release: file("release"), finishEvents: file("finish_events"),
		takeBack:      file("take_back"),
		originEvents:  file("origin", "{table}", "{events}", "{status}", "{k.status}", "{held}", ""),
		originKeys:    file("origin", "{table}", "{keys}", "{status}", "k.status", "{held}", "AND k.token = r.token"),
		reopenEvent:   file("reopen", "{table}", "{events}", "{clear}", ""),
		reopenKey:     file("reopen", "{table}", "{keys}", "{clear}", forget),
		reopenedEvent: file("reopened", "{table}", "{events_read}", "{other}", "{keys_read}"),
		reopenedKey:   file("reopened", "{table}", "{keys_read}", "{other}", "{events_read}"),
		countStart:    file("count_start"), clearStarts: file("clear_starts"),
		noteConflict: file("note_conflict"), conflicts: file("conflicts"),
		version: file("version"), layout: file("layout"), keyColumns: file("key_columns"),
		aging:       newAgingSQL(file),
		deferral:    newDeferralSQL(file),
		operator:    newOperatorSQL(l, file),
		uniqueTests: uniqueTests(l, file),
	}
	if l == compact {
		q.kinds, q.newKinds, q.origins, q.newOrigins = file("kinds"), file("new_kinds"), file("origins"), file("new_origins")
		q.reopenEvent, q.aging.events = file("reopen_events"), file("reaper_delete_events")
	}
	return q
}

// uniqueTests are the texts that try each primary key, by table. $1 is 32 hexadecimal digits.
func uniqueTests(l layout, file func(string, ...string) string) map[string]string {
	const key, row = "tenant, scope, event_type, event_id", "'', 'idem.check', '', $1"
	const record, zero = ", origin_topic, origin_partition, origin_offset", ", '', 0, 0"
	test := func(table, unique, columns, values string) string {
		return file("unique_test", "{table}", table, "{unique}", unique, "{columns}", unique+columns, "{values}", values)
	}
	tests := map[string]string{"event_starts": test("event_starts", key+record, "", row+zero)}
	if l == compact { // no kind has the number 0
		const events, keys = "processed_events_compact", "idempotency_keys_compact"
		tests[events] = test(events, "kind, id", ", expires, made", "0, $1::text::uuid, 0, 0")
		tests[keys] = test(keys, "kind, id", ", expires_at, status", "0, $1::text::uuid, clock_timestamp(), 'released'")
		tests["idem_kinds"] = test("idem_kinds", "tenant, scope, event_type, form", "", "'', 'idem.check', $1, 1")
		tests["idem_origins"] = test("idem_origins", "topic, partition", "", "$1, 0")
		return tests
	}
	const events, keys = "processed_events", "idempotency_keys"
	tests[events] = test(events, key, ", expires_at", row+", clock_timestamp()")
	tests[keys] = test(keys, key, ", expires_at, status", row+", clock_timestamp(), 'released'")
	return tests
}
