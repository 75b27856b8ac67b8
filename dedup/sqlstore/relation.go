package sqlstore

import (
	"context"
	"database/sql"
	"strings"
)

// rowsPerStatement bounds the arguments of a statement.
const rowsPerStatement = 500

// relation is a table to write to.
type relation struct {
	name    string
	columns []string // those of the key first
	key     int      // the number of columns of the key
}

// deferredEvents is the table of deferred events.
var deferredEvents = relation{"deferred_events", []string{"scope", "topic", "queue", "seq",
	"tenant", "event_type", "event_id", "generation", "retry", "due", "blocked", "origin_topic",
	"origin_partition", "origin_offset", "origin_time", "created_at", "data"}, 4}

// deferredQueues is the table of the queues of deferred events.
func deferredQueues(d *Dialect) relation {
	return relation{"deferred_queues", []string{"scope", "topic", "queue", d.name("partition"),
		"next_seq", "head_seq", "due", "blocked", "name", "created_at"}, 3}
}

// params returns "(?, ?, ...)", numbered from first on.
func (d *Dialect) params(first, n int) string {
	all := make([]string, n)
	for i := range all {
		all[i] = d.Param(first + i)
	}
	return "(" + strings.Join(all, ", ") + ")"
}

// insert writes rows in one statement; tail is the clause for existing ones.
func (r relation) insert(ctx context.Context, q Querier, d *Dialect, rows [][]any,
	tail string) (added int64, err error) {
	values, args := make([]string, len(rows)), []any(nil)
	for i, row := range rows {
		values[i] = d.params(len(args)+1, len(row))
		args = append(args, row...)
	}
	result, err := q.ExecContext(ctx, "INSERT INTO "+r.name+" ("+strings.Join(r.columns, ", ")+
		") VALUES "+strings.Join(values, ", ")+tail, args...)
	if err != nil {
		return 0, err
	}
	return result.RowsAffected()
}

// add inserts rows with keys that had no row. If another transaction has inserted one meanwhile,
// the error is errAgain.
func (r relation) add(ctx context.Context, q Querier, d *Dialect, rows [][]any) error {
	for len(rows) > 0 {
		n := min(len(rows), rowsPerStatement)
		added, err := r.insert(ctx, q, d, rows[:n], d.Skip)
		if err == nil && added != int64(n) {
			err = errAgain
		}
		if err != nil {
			return err
		}
		rows = rows[n:]
	}
	return nil
}

// replace writes rows over those with equal keys.
func (r relation) replace(ctx context.Context, q Querier, d *Dialect, rows [][]any) error {
	tail := d.Replace(r.columns[:r.key], r.columns[r.key:])
	for len(rows) > 0 {
		n := min(len(rows), rowsPerStatement)
		if _, err := r.insert(ctx, q, d, rows[:n], tail); err != nil {
			return err
		}
		rows = rows[n:]
	}
	return nil
}

// each runs a query and reads its rows.
func each(ctx context.Context, q Querier, query string, args []any,
	scan func(*sql.Rows) error) (err error) {
	rows, err := q.QueryContext(ctx, query, args...)
	if err != nil {
		return err
	}
	defer func() {
		if e := rows.Close(); err == nil {
			err = e
		}
	}()
	for rows.Next() {
		if err := scan(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}

// arguments are those of one statement, in the order of its text.
type arguments struct {
	d    *Dialect
	list []any
}

// add returns the placeholder of v.
func (a *arguments) add(v any) string {
	a.list = append(a.list, v)
	return a.d.Param(len(a.list))
}

// in returns "(?, ?, ...)" for values.
func in[T any](a *arguments, values []T) string {
	all := make([]string, len(values))
	for i, v := range values {
		all[i] = a.add(v)
	}
	return "(" + strings.Join(all, ", ") + ")"
}
