package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/idem-go/idem/dedup"
)

// listLimit bounds a list, calls of yield included.
const listLimit = 10 * time.Minute

// List implements [dedup.Lister]. The database reads both tables once and sorts the matches of f.
// There is no index for this, so the work grows with the tables.
//
// List uses one connection of the pool until it returns, and ends after ten minutes, calls of yield
// included. The function yield may use the store if the pool has another connection.
func (s *Store) List(ctx context.Context, f dedup.Filter, limit int,
	yield func(dedup.Record) bool) error {
	ctx, cancel := context.WithTimeout(ctx, listLimit)
	defer cancel()
	return s.failed(ctx, "list", s.list(ctx, f, limit, yield))
}

func (s *Store) list(ctx context.Context, f dedup.Filter, limit int,
	yield func(dedup.Record) bool) error {
	w := &work{q: s.reader, d: s.d}
	if err := w.readClock(ctx); err != nil {
		return err
	}
	query, args := listing(s.d, f, limit, w.now)
	err := each(ctx, s.reader, query, args, func(rows *sql.Rows) error {
		var changed, claims int64
		r, err := keysTable.scan(rows, &changed, &claims)
		if err != nil {
			return err
		}
		t := eventsTable
		if claims != 0 {
			t = keysTable
		}
		if !yield(view(t, r, w.now)) {
			return errEnough
		}
		return nil
	})
	if errors.Is(err, errEnough) {
		return nil
	}
	return err
}

// errEnough ends a list.
var errEnough = errors.New("no more records are wanted")

// listing returns the query of a list. Rows of processed_events get the columns that only claims
// have.
func listing(d *Dialect, f dedup.Filter, limit int, now time.Time) (query string, args []any) {
	a := &arguments{d: d}
	const changed = "COALESCE(updated_at, created_at)"
	part := func(t *table, more string) string {
		where := []string{"1 = 1"}
		if f.Scope != "" {
			where = append(where, "scope = "+a.add(f.Scope))
		}
		if f.Type != "" {
			where = append(where, "event_type = "+a.add(f.Type))
		}
		if len(f.States) > 0 {
			where = append(where, "status IN "+in(a, statuses(f.States)))
		}
		if f.Unchanged > 0 {
			where = append(where, changed+" <= "+a.add(d.Time(now.Add(-f.Unchanged))))
		}
		if f.Stuck {
			where = append(where, "status = 'claimed' AND lease_until <= "+a.add(d.Time(now)))
		}
		return "SELECT " + t.reading(d) + more + " FROM " + t.name + " WHERE " +
			strings.Join(where, " AND ")
	}
	order := len(keysTable.columns) + 1
	query = part(keysTable, ", "+d.Micros(changed)+", 1")
	if !f.Stuck {
		query = part(eventsTable, ", false, 0, 0, NULL, NULL, "+d.Micros(changed)+", 0") +
			" UNION ALL " + query
	}
	query += fmt.Sprintf(" ORDER BY %d, 1, 2, 3, 4, %d", order, order+1)
	if limit > 0 {
		query += " LIMIT " + strconv.Itoa(limit)
	}
	return query, a.list
}

var statusOf = map[dedup.State]string{
	dedup.Claimed: "claimed", dedup.Released: "released", dedup.Finished: "done",
	dedup.GivenUp: "dead", dedup.Waiting: "moved",
}

// statuses returns values of the column status: one that no row has if no state is known.
func statuses(of []dedup.State) []string {
	all := []string{"none"}
	for _, s := range of {
		if status := statusOf[s]; status != "" {
			all = append(all, status)
		}
	}
	return all
}
