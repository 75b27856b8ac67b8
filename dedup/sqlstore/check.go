package sqlstore

import (
	"context"
	"database/sql"
	"slices"
	"strings"
	"sync"
)

// Check implements [dedup.Checker]: the tables are there, of this release, and with safe settings.
// A table or a right that is missing is a [*dedup.SetupError].
func (s *Store) Check(ctx context.Context) (warnings []string, err error) {
	if err := s.Ping(ctx); err != nil {
		return nil, err
	}
	for _, t := range tables {
		err := t.query(ctx, s.reader, s.d, t.name+" WHERE 1 = 0", nil, nil)
		if err != nil {
			return nil, s.failed(ctx, "check", err)
		}
	}
	for _, r := range []relation{progressTable(s.d), horizonsTable(s.d), scopesTable, topicsTable,
		descriptorsTable, deferredEvents, deferredQueues(s.d)} {
		text := "SELECT " + strings.Join(r.columns, ", ") + " FROM " + r.name + " WHERE 1 = 0"
		if err := each(ctx, s.reader, text, nil, func(*sql.Rows) error { return nil }); err != nil {
			return nil, s.failed(ctx, "check", err)
		}
	}
	asked := &asking{q: s.reader}
	warnings, err = s.d.Check(ctx, asked)
	if s.isVerdict(err, asked.failures()) {
		return warnings, s.wrong("check", err)
	}
	return warnings, s.failed(ctx, "check", err)
}

// isVerdict reports whether an error of [Dialect].Check judges the database. The class of a lost
// connection is that of a plain error, so the failures of the queries decide: without an answer of
// the server there is no verdict.
func (s *Store) isVerdict(err error, queries []error) bool {
	return err != nil && s.d.Classify(err) == Unknown && !slices.ContainsFunc(queries, s.mayPass)
}

// asking remembers the failures of its queries.
type asking struct {
	q      Querier
	mu     sync.Mutex
	failed []error
	rows   []*sql.Rows
}

func (a *asking) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	result, err := a.q.ExecContext(ctx, query, args...)
	a.note(nil, err)
	return result, err
}

func (a *asking) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	rows, err := a.q.QueryContext(ctx, query, args...)
	a.note(rows, err)
	return rows, err
}

func (a *asking) note(rows *sql.Rows, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if err != nil {
		a.failed = append(a.failed, err)
	} else if rows != nil {
		a.rows = append(a.rows, rows)
	}
}

// failures returns the errors of the queries and of their rows. Rows keep their error after Close.
func (a *asking) failures() []error {
	a.mu.Lock()
	defer a.mu.Unlock()
	all := slices.Clone(a.failed)
	for _, rows := range a.rows {
		if err := rows.Err(); err != nil {
			all = append(all, err)
		}
	}
	return all
}
