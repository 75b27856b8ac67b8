package sqlstore

import (
	"context"
	"database/sql"
	"encoding/hex"
	"strings"
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/internal/decision"
)

// table is one of the two tables of records.
type table struct {
	name    string
	columns []string // those of the key first
	claims  bool
}

var (
	keyColumns = []string{"tenant", "scope", "event_type", "event_id"}
	shared     = []string{"status", "record_version", "created_at", "updated_at", "expires_at",
		"generation", "retry", "fence", "origin_topic", "origin_partition", "origin_offset",
		"origin_time", "fingerprint", "reason", "schema_version", "result"}
	ofClaims = []string{"uncertain", "failures", "takeovers", "lease_until", "token"}

	keysTable = &table{name: "idempotency_keys", claims: true,
		columns: append(append(append([]string{}, keyColumns...), shared...), ofClaims...)}
	eventsTable = &table{name: "processed_events",
		columns: append(append([]string{}, keyColumns...), shared...)}
)

var timeColumns = map[string]bool{"created_at": true, "updated_at": true, "expires_at": true,
	"origin_time": true, "lease_until": true}

// reading returns the expressions of the columns in a query.
func (t *table) reading(d *Dialect) string {
	all := make([]string, len(t.columns))
	for i, c := range t.columns {
		switch {
		case timeColumns[c]:
			all[i] = d.Micros(c)
		case c == "token":
			all[i] = d.Token(c)
		default:
			all[i] = c
		}
	}
	return strings.Join(all, ", ")
}

// scan reads one row. more are columns behind those of the table.
func (t *table) scan(rows *sql.Rows, more ...any) (*decision.Record, error) {
	var (
		r                              decision.Record
		status                         string
		version, generation, retry     int64
		fence, created, expires        int64
		updated, at, part, pos, schema sql.NullInt64
		topic, reason                  sql.NullString
		mark                           []byte
		failures, takeovers            int64
		lease                          sql.NullInt64
		token                          sql.NullString
	)
	into := []any{&r.Key.Tenant, &r.Key.Scope, &r.Key.Type, &r.Key.ID, &status, &version, &created,
		&updated, &expires, &generation, &retry, &fence, &topic, &part, &pos, &at, &mark, &reason,
		&schema, &r.Result.Data}
	if t.claims {
		into = append(into, &r.Doubt, &failures, &takeovers, &lease, &token)
	}
	if err := rows.Scan(append(into, more...)...); err != nil {
		return nil, err
	}
	var ok bool
	if r.Fingerprint, ok = dedup.ParseFingerprint(mark); !ok || version != 1 {
		return nil, errUnknown
	}
	r.Created, r.Expires = micros(created), micros(expires)
	r.Changed = r.Created
	if updated.Valid {
		r.Changed = micros(updated.Int64)
	}
	r.Position = dedup.Position{Generation: uint32(generation), Retry: uint32(retry)}
	r.Fence, r.Failures, r.Takeovers = uint64(fence), uint32(failures), uint32(takeovers)
	r.First = dedup.Origin{Topic: topic.String, Partition: int32(part.Int64), Offset: pos.Int64}
	if at.Valid {
		r.First.Time = micros(at.Int64)
	}
	r.Reason = reason.String
	r.Result.Schema = uint32(schema.Int64)
	if !schema.Valid {
		r.Result.Data = nil
	}
	return &r, t.state(&r, status, lease, token)
}

// state reads the columns with the state of the record and its last call.
func (t *table) state(r *decision.Record, status string, lease sql.NullInt64,
	token sql.NullString) error {
	r.Retention = r.Expires.Sub(r.Changed)
	switch status {
	case "claimed":
		r.State, r.Lease = decision.Claimed, micros(lease.Int64)
		r.Retention = r.Expires.Sub(r.Lease)
	case "released":
		r.State, r.LastCall, r.MaySucceed = decision.Open, decision.Released, r.Doubt
	case "moved":
		r.State, r.LastCall = decision.Open, decision.Completed
		r.Reopened = r.Position.Generation > 0 && r.Position.Retry == 0
	case "done":
		r.State, r.LastCall = decision.Done, decision.Completed
	case "dead":
		r.State, r.LastCall = decision.Dead, decision.Completed
	default:
		return errUnknown
	}
	if token.Valid {
		var ok bool
		if r.Token, ok = parseToken(token.String); !ok {
			return errUnknown
		}
	}
	return nil
}

// parseToken reads a token with or without hyphens.
func parseToken(s string) (t dedup.Token, ok bool) {
	b, err := hex.DecodeString(strings.ReplaceAll(s, "-", ""))
	if err != nil || len(b) != len(t) {
		return t, false
	}
	copy(t[:], b)
	return t, true
}

func micros(n int64) time.Time { return time.UnixMicro(n).UTC() }

// status is the name of the record's state in the table.
func status(r *decision.Record) string {
	switch {
	case r.State == decision.Claimed:
		return "claimed"
	case r.State == decision.Done:
		return "done"
	case r.State == decision.Dead:
		return "dead"
	case r.LastCall == decision.Released:
		return "released"
	}
	return "moved"
}

// args returns the values of a row, in the order of the columns.
func (t *table) args(d *Dialect, r *decision.Record) []any {
	var mark, reason, schema, data any
	if b := r.Fingerprint.Bytes(); b != nil {
		mark = b
	}
	if r.State == decision.Dead {
		reason = r.Reason
	}
	if r.State == decision.Done && !r.Result.IsZero() {
		schema = int64(r.Result.Schema)
		if r.Result.Data != nil {
			data = r.Result.Data
		}
	}
	all := []any{r.Key.Tenant, r.Key.Scope, r.Key.Type, r.Key.ID, status(r), int64(1),
		d.Time(r.Created), d.Time(r.Changed), d.Time(r.Expires), int64(r.Position.Generation),
		int64(r.Position.Retry), int64(r.Fence), decision.Storable(r.First.Topic),
		int64(r.First.Partition), r.First.Offset, d.originTime(r.First.Time), mark, reason, schema,
		data}
	if !t.claims {
		return all
	}
	var lease, token any
	if r.State == decision.Claimed {
		lease = d.Time(r.Lease)
	}
	if r.Token != (dedup.Token{}) {
		token = r.Token.String()
	}
	return append(all, r.Doubt, int64(r.Failures), int64(r.Takeovers), lease, token)
}

// originTime returns the argument for the time of a record. A time outside the calendar comes from
// a broken producer and is only for people: it counts as unknown.
func (d *Dialect) originTime(t time.Time) any {
	if y := t.Year(); t.IsZero() || y < 1000 || y > 9999 {
		return nil
	}
	return d.Time(t.UTC())
}

// add inserts records for keys without a row. If another transaction has inserted one meanwhile,
// the error is errAgain.
func (t *table) add(ctx context.Context, q Querier, d *Dialect,
	records []*decision.Record) error {
	return t.listed().add(ctx, q, d, t.rows(d, records))
}

// replace writes records with locked rows.
func (t *table) replace(ctx context.Context, q Querier, d *Dialect,
	records []*decision.Record) error {
	return t.listed().replace(ctx, q, d, t.rows(d, records))
}

func (t *table) listed() relation { return relation{t.name, t.columns, len(keyColumns)} }

func (t *table) rows(d *Dialect, records []*decision.Record) [][]any {
	rows := make([][]any, len(records))
	for i, r := range records {
		rows[i] = t.args(d, r)
	}
	return rows
}

// read returns the records of keys, which ascend. tail is the lock, or empty.
func (t *table) read(ctx context.Context, q Querier, d *Dialect, keys []dedup.Key,
	tail string) (map[dedup.Key]*decision.Record, error) {
	found := make(map[dedup.Key]*decision.Record)
	for len(keys) > 0 {
		n := min(len(keys), rowsPerStatement)
		from, args := t.byKeys(d, keys[:n], tail)
		err := t.query(ctx, q, d, from, args, func(r *decision.Record) { found[r.Key] = r })
		if err != nil {
			return nil, err
		}
		keys = keys[n:]
	}
	return found, nil
}

// byKeys returns the FROM clause for the rows of keys, in their order.
func (t *table) byKeys(d *Dialect, keys []dedup.Key, tail string) (from string, args []any) {
	if !d.Lateral {
		from, args = d.chosen(keys)
		return t.name + " " + d.ByKey + " WHERE " + from + " ORDER BY " +
			strings.Join(keyColumns, ", ") + tail, args
	}
	from, args = d.keyByKey(keys)
	return from + " CROSS JOIN LATERAL (SELECT * FROM " + t.name + " WHERE " + ofKey + " LIMIT 1" +
		tail + ") k", args
}

// query reads the rows of a FROM clause.
func (t *table) query(ctx context.Context, q Querier, d *Dialect, from string, args []any,
	yield func(*decision.Record)) error {
	return each(ctx, q, "SELECT "+t.reading(d)+" FROM "+from, args,
		func(rows *sql.Rows) error {
			r, err := t.scan(rows)
			if err == nil {
				yield(r)
			}
			return err
		})
}

// chosen is the condition for keys. Keys that differ by their ID alone are one range of the index
// in every database; a comparison of whole rows is not.
func (d *Dialect) chosen(keys []dedup.Key) (where string, args []any) {
	var parts []string
	for i := 0; i < len(keys); {
		k := keys[i]
		args = append(args, k.Tenant, k.Scope, k.Type)
		n := len(args)
		part := "(tenant = " + d.Param(n-2) + " AND scope = " + d.Param(n-1) +
			" AND event_type = " + d.Param(n) + " AND event_id IN "
		first := i
		for ; i < len(keys) && sameKind(keys[i], k); i++ {
			args = append(args, keys[i].ID)
		}
		parts = append(parts, part+d.params(n+1, i-first)+")")
	}
	return "(" + strings.Join(parts, " OR ") + ")", args
}

// ofKey is the condition for the row of a key of keyByKey or deletion.
const ofKey = "tenant = v.a AND scope = v.b AND event_type = v.c AND event_id = v.d"

// keyByKey returns a list of keys for a subquery that is LATERAL, in their order. The condition of
// chosen misleads a planner that counts rows. While the statistics are those of a small table, the
// cheapest plan seems to read all events of a type, and to compare each with the list.
func (d *Dialect) keyByKey(keys []dedup.Key) (from string, args []any) {
	values, cast := make([]string, len(keys)), "::text"
	for i := 0; i < len(keys); {
		k := keys[i]
		args = append(args, k.Tenant, k.Scope, k.Type)
		n := len(args)
		for ; i < len(keys) && sameKind(keys[i], k); i++ {
			args = append(args, keys[i].ID)
			all := []string{d.Param(n - 2), d.Param(n - 1), d.Param(n), d.Param(len(args))}
			values[i] = "(" + strings.Join(all, cast+", ") + cast + ")"
			cast = "" // the first row decides
		}
	}
	return "(VALUES " + strings.Join(values, ", ") + ") v (a, b, c, d)", args
}

// deletion returns a DELETE of the rows of keys. Other conditions may follow, after AND.
func (d *Dialect) deletion(table string, keys []dedup.Key) (text string, args []any) {
	if !d.JoinedDelete {
		where, args := d.chosen(keys)
		return "DELETE FROM " + table + " WHERE " + where, args
	}
	list := make([]string, len(keys))
	for i, k := range keys {
		n := len(args)
		list[i] = "SELECT " + d.Param(n+1) + " AS a, " + d.Param(n+2) + " AS b, " +
			d.Param(n+3) + " AS c, " + d.Param(n+4) + " AS d"
		args = append(args, k.Tenant, k.Scope, k.Type, k.ID)
	}
	return "DELETE k FROM (" + strings.Join(list, " UNION ALL ") + ") v STRAIGHT_JOIN " + table +
		" k ON " + ofKey, args
}

func sameKind(a, b dedup.Key) bool {
	return a.Tenant == b.Tenant && a.Scope == b.Scope && a.Type == b.Type
}
