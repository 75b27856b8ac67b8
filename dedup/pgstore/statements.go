package pgstore

import (
	"strings"

	"github.com/jackc/pgx/v5"
)

// statements are the texts of sql/*.sql for one schema.
type statements struct {
	schema                                             string // of the texts
	beginClaims, beginTx, restore                      string
	lookKeys, insertKeys, existingKeys                 [2]string // by form
	lookEvents, insertEvents, existingEvents           [2]string // by form
	seeKeys, seeEvents                                 [2]string // with running claims, by form
	takeTurn, insertInTurn                             string    // for one event
	renew, complete, completed, release                string
	finishEvents, takeBack                             string
	reopenEvent, reopenKey, reopenedEvent, reopenedKey string
	countStart, clearStarts, version, keyColumns       string
	noteConflict, conflicts                            string
	layout                                             string
	kinds, newKinds, origins, newOrigins               string            // of the compact layout
	uniqueTests                                        map[string]string // by table
	originEvents, originKeys                           string            // for dead letters
	aging                                              agingSQL
	deferral                                           deferralSQL
	operator                                           operatorSQL
}

func newStatements(schema string, l layout) *statements {
	names := strings.NewReplacer(l.pairs(pgx.Identifier{schema}.Sanitize())...)
	fill := func(text string, more ...string) string {
		if len(more) > 0 {
			text = strings.NewReplacer(more...).Replace(text)
		}
		return names.Replace(text)
	}
	file := func(name string, more ...string) string { return fill(l.file(name), more...) }
	forms := func(verb, table string) [2]string {
		text := l.file(verb + "_" + table)
		switch verb { // texts that are the same for both tables
		case "look":
			text = strings.NewReplacer("{wait}", "0::bigint",
				"{hidden}", ", 'busy', 'conflict busy', 'conflict mine'").Replace(l.file("look"))
		case "see":
			text = strings.NewReplacer("{wait}", leaseLeft[table],
				"{hidden}", "").Replace(l.file("look") + l.file("look_old"))
		case "take": // an insert that has no effect without its lock
			text = strings.ReplaceAll(l.file("insert_"+table), "{turn}",
				" AND current_setting('idem.turn', true) = 'true'")
		}
		text = strings.ReplaceAll(text, "{table}", "{"+table+"_read}")
		for _, part := range []struct{ name, file string }{
			{"{requests}", "requests"}, {"{answer}", "answer_" + table},
			{"{grant}", "grant_" + table}, {"{too_old}", "too_old"},
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
		lookKeys: forms("look", "keys"), insertKeys: forms("insert", "keys"),
		existingKeys: forms("existing", "keys"),
		lookEvents:   forms("look", "events"), insertEvents: forms("insert", "events"),
		existingEvents: forms("existing", "events"),
		seeKeys:        forms("see", "keys"), seeEvents: forms("see", "events"),
		takeTurn: file("take_turn"), insertInTurn: forms("take", "events")[alike],
		renew: file("renew"), complete: file("complete"), completed: file("completed"),
		release: file("release"), finishEvents: file("finish_events"),
		takeBack: file("take_back"),
		originEvents: file("origin", "{table}", "{events}", "{status}", "{k.status}",
			"{held}", ""),
		originKeys: file("origin", "{table}", "{keys}", "{status}", "k.status",
			"{held}", "AND k.token = r.token AND k.xmin = pg_current_xact_id_if_assigned()::xid"),
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
		q.kinds, q.newKinds, q.origins, q.newOrigins = file("kinds"), file("new_kinds"),
			file("origins"), file("new_origins")
		q.reopenEvent = file("reopen_events")
		q.aging.tables[eventsTable].remove = file("reaper_delete_events")
	}
	return q
}

// form is how the mostly shared values of a column travel: as arrays, or once.
type form int

const (
	mixed form = iota
	alike
)

// Replacements for placeholders of columns that requests may share. A sort by a shared value is
// free.
var (
	mixedColumns = map[layout][]string{
		readable: append([]string{
			"{arrays}", ", $1::text[], $2::text[], $3::text[]" + sharedArrays,
			"{columns}", ", tenant, scope, event_type" + sharedColumns,
			"{topics}", ", $11::text[]", "{topic_column}", ", topic", "{topic}", "r.topic",
			"{tenant}", "r.tenant", "{event_type}", "r.event_type",
		}, mixedShared...),
		compact: append([]string{
			"{arrays}", ", $1::integer[], $2::text[]" + sharedArrays,
			"{columns}", ", kind, scope" + sharedColumns,
			"{kind}", "r.kind",
		}, mixedShared...),
	}
	mixedShared = []string{
		"{scope}", "r.scope", "{fingerprint}", "r.fingerprint", "{generation}", "r.generation",
		"{retry}", "r.retry", "{retention}", "r.retention", "{any_age}", "r.any_age",
		"{turn}", "", "{returning}", "", // two keys may have the same ID
	}
	alikeColumns = []string{
		"{arrays}", ", $5::bytea[]", "{columns}", ", fingerprint",
		"{topics}", "", "{topic_column}", "", "{topic}", "$11::text",
		"{tenant}", "$1::text", "{kind}", "$1::integer", "{scope}", "$2::text",
		"{event_type}", "$3::text", "{fingerprint}", "r.fingerprint",
		"{generation}", "$6::bigint", "{retry}", "$7::bigint", "{retention}", "$8::bigint",
		"{any_age}", "$9::boolean", "{turn}", "", "{returning}", "RETURNING {id}",
	}
)

const (
	sharedArrays  = ", $5::bytea[], $6::bigint[], $7::bigint[], $8::bigint[], $9::boolean[]"
	sharedColumns = ", fingerprint, generation, retry, retention, any_age"
)

// leaseLeft is the remaining lease of a claim in microseconds. Transactions have no lease.
var leaseLeft = map[string]string{
	"events": "0::bigint",
	"keys": "greatest(1, " +
		"extract(epoch FROM k.lease_until - clock_timestamp()) * 1000000)::bigint",
}

// uniqueTests are the texts that test each primary key, by table. $1 is 32 hexadecimal digits.
func uniqueTests(l layout, file func(string, ...string) string) map[string]string {
	const key, row = "tenant, scope, event_type, event_id", "'', 'idem.check', '', $1"
	const record, zero = ", origin_topic, origin_partition, origin_offset", ", '', 0, 0"
	test := func(table, unique, columns, values string) string {
		return file("unique_test", "{table}", table, "{unique}", unique,
			"{columns}", unique+columns, "{values}", values)
	}
	tests := map[string]string{"event_starts": test("event_starts", key+record, "", row+zero)}
	if l == compact { // no kind has number 0
		const events, keys = "processed_events_compact", "idempotency_keys_compact"
		tests[events] = test(events, "kind, id", ", expires, made", "0, $1::text::uuid, 0, 0")
		tests[keys] = test(keys, "kind, id", ", expires_at, status",
			"0, $1::text::uuid, clock_timestamp(), 'released'")
		tests["idem_kinds"] = test("idem_kinds", "tenant, scope, event_type, form", "",
			"'', 'idem.check', $1, 1")
		tests["idem_origins"] = test("idem_origins", "topic, partition", "", "$1, 0")
		return tests
	}
	const events, keys = "processed_events", "idempotency_keys"
	tests[events] = test(events, key, ", expires_at", row+", clock_timestamp()")
	tests[keys] = test(keys, key, ", expires_at, status", row+", clock_timestamp(), 'released'")
	return tests
}

// agingSQL are the statements about progress, horizons and identity.
type agingSQL struct {
	progress, progressForget, progressRead                             string
	registerScope, registerDescriptors, registerOthers, registerTopics string
	registerWrite                                                      string
	begin, lease, leave, scopes, silent, store, stuck, starts          string
	tables                                                             [recordTables]agingTable
}

// recordTables is the number of the tables of records: that of events, and that of claims.
const (
	eventsTable = iota
	claimsTable
	recordTables
)

// agingTable has the statements about old rows of one table.
type agingTable struct{ window, expired, remove string }

func newAgingSQL(file func(name string, more ...string) string) agingSQL {
	return agingSQL{
		progress: file("progress"), progressForget: file("progress_forget"),
		progressRead:  file("progress_read"),
		registerScope: file("register_scope"), registerDescriptors: file("register_descriptors"),
		registerOthers: file("register_others"), registerTopics: file("register_topics"),
		registerWrite: file("register_write"),
		begin:         file("reaper_begin"), lease: file("reaper_lease"),
		leave:  file("reaper_leave"),
		scopes: file("horizon_scopes"), silent: file("reaper_silent"), store: file("horizon_store"),
		stuck: file("reaper_stuck"), starts: file("reaper_starts"),
		tables: [recordTables]agingTable{
			eventsTable: newAgingTable(file, "events"), claimsTable: newAgingTable(file, "keys"),
		},
	}
}

func newAgingTable(file func(name string, more ...string) string, name string) agingTable {
	return agingTable{
		window:  file("reaper_window", "{table}", "{"+name+"_read}"),
		expired: file("horizon_expired", "{table}", "{"+name+"_read}"),
		remove:  file("reaper_delete", "{table}", "{"+name+"}"),
	}
}

// deferralSQL are the statements about deferred events. These are the same in both layouts.
type deferralSQL struct {
	insert, settle, lock, postpone, remove, ended, delay, due, first, find, those, queues string
}

func newDeferralSQL(file func(name string, more ...string) string) deferralSQL {
	event := strings.TrimSpace(file("deferred_event"))
	return deferralSQL{
		insert: file("defer_insert"), settle: file("defer_settle"), lock: file("defer_lock"),
		postpone: file("defer_postpone"), remove: file("defer_remove"), ended: file("defer_ended"),
		delay: file("defer_delay"),
		due:   file("defer_due", "{event}", event), first: file("defer_first", "{event}", event),
		find: file("defer_find", "{event}", event), those: file("defer_those", "{event}", event),
		queues: file("defer_queues"),
	}
}

// operatorSQL are the statements of operators.
type operatorSQL struct {
	begin, inspect, find, list, forget             string
	lockEvents, lockKeys, look                     string
	newEvents, newKeys, discardEvents, discardKeys string
}

func newOperatorSQL(l layout, file func(name string, more ...string) string) operatorSQL {
	columns := []string{"{record_events}", l.file("record_events"),
		"{record_keys}", l.file("record_keys")}
	q := operatorSQL{
		begin: file("operator_begin"), forget: file("forget"), look: file("discard_look"),
		inspect: file("inspect", columns...), find: file("find", columns...),
		list:          file("list", columns...),
		lockEvents:    file("discard_lock", "{table}", "{events}"),
		lockKeys:      file("discard_lock", "{table}", "{keys}"),
		newEvents:     file("discard_new", "{table}", "{events}"),
		newKeys:       file("discard_new", "{table}", "{keys}"),
		discardEvents: file("discard", "{table}", "{events}", "{clear}", ""),
		discardKeys: file("discard", "{table}", "{keys}", "{clear}",
			", lease_until = NULL, token = NULL"),
	}
	if l == compact {
		q.newEvents, q.discardEvents = file("discard_new_events"), file("discard_events")
	}
	return q
}
