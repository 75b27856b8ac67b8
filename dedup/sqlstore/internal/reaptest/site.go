// Package reaptest tests progress, registrations and the deletion of rows in each dialect.
package reaptest

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/dedup/sqlstore"
	"github.com/stretchr/testify/require"
)

// Site is a database with the tables of one test.
type Site struct {
	// DB is a pool beside the store.
	DB *sql.DB
	// Dialect returns a new dialect.
	Dialect func() *sqlstore.Dialect
	// Open returns a store of the tables.
	Open func(t testing.TB, d *sqlstore.Dialect) *sqlstore.Store
	// Slow makes the server end deletions of scope a, as after a time-out. Nil if it cannot.
	Slow func(t testing.TB)
}

func (s Site) store(t testing.TB) *sqlstore.Store { return s.Open(t, s.Dialect()) }

// exec runs a statement. Each ¿ becomes a placeholder.
func (s Site) exec(t testing.TB, text string, args ...any) {
	t.Helper()
	_, err := s.DB.ExecContext(t.Context(), s.placed(text), args...)
	require.NoError(t, err)
}

func (s Site) placed(text string) string {
	d := s.Dialect()
	for i := 1; strings.Contains(text, "¿"); i++ {
		text = strings.Replace(text, "¿", d.Param(i), 1)
	}
	return text
}

func (s Site) count(t testing.TB, text string) (n int) {
	t.Helper()
	require.NoError(t, s.DB.QueryRowContext(context.WithoutCancel(t.Context()), text).Scan(&n))
	return n
}

// left returns the records in the tables, as "table/id".
func (s Site) left(t testing.TB) (all []string) {
	t.Helper()
	rows, err := s.DB.QueryContext(t.Context(), "SELECT 'event', event_id FROM processed_events "+
		"UNION ALL SELECT 'key', event_id FROM idempotency_keys")
	require.NoError(t, err)
	defer rows.Close()
	for rows.Next() {
		var table, id string
		require.NoError(t, rows.Scan(&table, &id))
		all = append(all, table+"/"+id)
	}
	require.NoError(t, rows.Err())
	slices.Sort(all)
	return all
}

// old is a record that a test puts into the tables. Times are ages. The zero expired is an expiry
// in an hour.
type old struct {
	scope, id        string
	status           string // "done"
	made, expired    time.Duration
	origin, changed  time.Duration // zero: null
	generation       int
	leaseOver        time.Duration
	notEvent, notKey bool
}

func (s Site) put(t testing.TB, rows ...old) {
	t.Helper()
	d, now := s.Dialect(), time.Now()
	for _, r := range rows {
		if r.status == "" {
			r.status = "done"
		}
		if r.expired == 0 {
			r.expired = -time.Hour
		}
		age := func(age time.Duration) any {
			if age == 0 {
				return nil
			}
			return d.Time(now.Add(-age))
		}
		columns := "tenant, scope, event_type, event_id, status, record_version, generation, " +
			"retry, fence, created_at, expires_at, origin_time, updated_at"
		args := []any{"", r.scope, "x", r.id, r.status, 1, r.generation, 0, 1, age(r.made),
			age(r.expired), age(r.origin), age(r.changed)}
		if !r.notEvent {
			s.exec(t, "INSERT INTO processed_events ("+columns+") VALUES (¿"+
				strings.Repeat(", ¿", 12)+")", args...)
		}
		if !r.notKey {
			if r.changed == 0 {
				args[12] = args[9]
			}
			args = append(args, false, 0, 0, age(r.leaseOver))
			s.exec(t, "INSERT INTO idempotency_keys ("+columns+
				", uncertain, failures, takeovers, lease_until) VALUES (¿"+
				strings.Repeat(", ¿", 16)+")", args...)
		}
	}
}

// many puts n expired records of a scope into the tables.
func (s Site) many(t testing.TB, n int, r old) {
	t.Helper()
	rows := make([]old, n)
	for i := range rows {
		rows[i] = r
		rows[i].id = fmt.Sprint(i)
		rows[i].expired -= time.Duration(i) * time.Millisecond
	}
	s.put(t, rows...)
}

const day = 24 * time.Hour

// soonest is a configuration without waits: a horizon counts at once.
func soonest() sqlstore.ReaperConfig {
	return sqlstore.ReaperConfig{Grace: time.Microsecond, Pause: -1}
}

// reap runs a new reaper once, as a job outside of the program does.
func reap(t testing.TB, s *sqlstore.Store, cfg sqlstore.ReaperConfig) sqlstore.ReapResult {
	t.Helper()
	result, err := sqlstore.NewReaper(s, cfg).RunOnce(t.Context())
	require.NoError(t, err)
	require.False(t, result.Elsewhere)
	return result
}

func record(t testing.TB, s *sqlstore.Store, scope string, progress ...dedup.Progress) {
	t.Helper()
	require.NoError(t, s.RecordProgress(t.Context(), scope, progress))
}

// caughtUp is the progress of a group without a lag.
func caughtUp() dedup.Progress { return dedup.Progress{Topic: "t", Next: 1, CaughtUp: true} }

func ago(d time.Duration) time.Time { return time.Now().Add(-d) }
