package reaping

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// row is a row in memory. Its times are numbers of microseconds.
type row struct {
	scope         string
	made, expires int64
	dead          bool // stays, as a dead letter within its retention
	locked        bool
	gone          bool
}

// memory has the rows of scopes, those of each table in the order of their expiry.
type memory struct {
	rows  [recordTables][]row
	batch int
	calls []string
	fails int // the number of the call that fails; 0: no call
}

// micro is a time n microseconds after the beginning.
func micro(n int64) time.Time { return time.UnixMicro(n).UTC() }

// called notes a call.
func (m *memory) called(format string, args ...any) error {
	m.calls = append(m.calls, fmt.Sprintf(format, args...))
	if len(m.calls) == m.fails {
		return errDown
	}
	return nil
}

// of notes a call for a part of a table.
func (m *memory) of(table int, what string, from, to time.Time) error {
	return m.called("%s %s %d-%d", [recordTables]string{"events", "claims"}[table], what,
		from.UnixMicro(), to.UnixMicro())
}

// find returns rows that expired from a time on and until another, at most limit.
func (m *memory) find(table int, from, to time.Time, limit int, is func(r *row) bool) (
	all []*row, last time.Time) {
	for i := range m.rows[table] {
		r := &m.rows[table][i]
		if at := micro(r.expires); len(all) < limit && is(r) && !at.Before(from) && at.Before(to) {
			all, last = append(all, r), at
		}
	}
	return all, last
}

func (m *memory) Window(_ context.Context, table int, from, until time.Time, limit int) (int,
	time.Time, error) {
	err := m.of(table, "window", from, until)
	all, last := m.find(table, from, until, limit, func(*row) bool { return true })
	return len(all), last, err
}

func (m *memory) Expired(_ context.Context, table int, a *Age, from, to time.Time, limit int) (int,
	time.Time, time.Time, error) {
	err := m.of(table, "expired", from, to)
	all, last := m.find(table, from, to, limit, func(r *row) bool {
		return r.scope == a.Scope && !r.dead
	})
	var made time.Time
	for _, r := range all {
		if at := micro(r.made); at.After(made) {
			made = at
		}
	}
	return len(all), made, last, err
}

func (m *memory) Delete(_ context.Context, table int, a *Age, from, to time.Time) (n int64,
	last time.Time, more bool, err error) {
	if err := m.of(table, "delete", from, to); err != nil {
		return 0, last, true, err
	}
	all, last := m.find(table, from, to, m.batch, func(r *row) bool {
		return r.scope == a.Scope && !r.dead && !micro(r.made).After(a.Horizon)
	})
	for _, r := range all {
		if r.gone = !r.locked; r.gone {
			n++
		}
	}
	m.rows[table] = slices.DeleteFunc(m.rows[table], func(r row) bool { return r.gone })
	return n, last, len(all) == m.batch, nil
}

func (m *memory) Move(_ context.Context, a *Age, before, cutoff time.Time) error {
	err := m.called("move %d %d", before.UnixMicro(), cutoff.UnixMicro())
	a.Horizon = before
	return err
}

func (m *memory) between(context.Context) error { return m.called("between") }

// left returns when the rows of a table expire.
func (m *memory) left(table int) (all []int64) {
	for _, r := range m.rows[table] {
		all = append(all, r.expires)
	}
	return all
}

// taken returns the calls, and forgets them.
func (m *memory) taken() (all []string) {
	all, m.calls = m.calls, nil
	return all
}
