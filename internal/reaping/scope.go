package reaping

import (
	"context"
	"fmt"
	"time"

	"github.com/idem-go/idem/internal/decision"
)

// recordTables is the number of the tables of records: that of events, and that of claims.
const recordTables = 2

// Age is the progress and the horizon of one scope. ScopeAge of the stores describes them.
type Age struct {
	Scope         string
	ConsumedUntil time.Time
	Horizon       time.Time
	Cutoff        time.Time // rows that expired before may be deleted; zero: no row may
	Ripe          bool      // the horizon is old enough for the deletion of the rows behind it
}

// Rows are the statements of a store on the rows of scopes. table is 0 for events, and 1 for claims.
// Expired and Delete leave out dead letters within their retention.
type Rows interface {
	// Window reads the rows of all scopes that expired from a time on and until another, in the order
	// of their expiry, at most limit. last is when the last of the n rows expired.
	Window(ctx context.Context, table int, from, until time.Time, limit int) (n int, last time.Time,
		err error)
	// Expired reads rows of one scope in the same way. made is when the newest of them was made.
	Expired(ctx context.Context, table int, a *Age, from, to time.Time, limit int) (n int, made,
		last time.Time, err error)
	// Delete deletes a batch of rows of one scope that expired from a time on and before another, and
	// were made before the horizon. Locked rows stay for a later run. n is the number of deleted rows,
	// and last when the last row of the batch expired. more is true if there may be others.
	Delete(ctx context.Context, table int, a *Age, from, to time.Time) (n int64, last time.Time,
		more bool, err error)
	// Move stores a horizon and its cut-off, unless the stored horizon is later: then the cut-off only.
	// It sets a.Horizon.
	Move(ctx context.Context, a *Age, before, cutoff time.Time) error
}

// Scopes deletes the rows of scopes, for one reaper, and moves their horizons. A Scopes is for one
// goroutine.
type Scopes struct {
	Rows    Rows
	Limit   int                         // rows of a table that one move of a horizon reads
	Window  int                         // rows of a table that one statement reads
	Between func(context.Context) error // that of the loop

	floors decision.Floors
}

// Work deletes the rows of one scope behind its horizon, if the horizon is old enough. Only then the
// horizon moves on: a horizon that moved in each run would never be old enough. Work calls events or
// claims after each batch, with the number of its rows. Its errors name the scope.
func (s *Scopes) Work(ctx context.Context, a *Age, events, claims func(rows int64)) error {
	if a.ConsumedUntil.IsZero() || !a.Ripe {
		return nil
	}
	err := s.empty(ctx, a, events, claims)
	if err == nil {
		err = s.move(ctx, a)
	}
	if err != nil {
		return fmt.Errorf("scope %q: %w", a.Scope, err)
	}
	return nil
}

// empty deletes from one table after the other, window after window.
func (s *Scopes) empty(ctx context.Context, a *Age, events, claims func(int64)) error {
	if a.Cutoff.IsZero() {
		return nil
	}
	for table, count := range [recordTables]func(int64){events, claims} {
		err := s.windows(ctx, table, s.begin(table, a), a.Cutoff,
			func(from, to time.Time) (bool, error) {
				return true, s.emptyWindow(ctx, table, a, from, to, count)
			})
		if err != nil {
			return err
		}
	}
	return nil
}

// emptyWindow deletes from one window of a table, batch after batch. No new rows come behind a
// horizon, and a batch without a deletion moves the time on, so emptyWindow ends.
func (s *Scopes) emptyWindow(ctx context.Context, table int, a *Age, from, to time.Time,
	count func(int64)) error {
	for {
		n, last, more, err := s.Rows.Delete(ctx, table, a, from, to)
		count(n)
		if err != nil || !more {
			return err
		}
		if n == 0 && !last.After(from) { // locked rows, all of one time
			last = from.Add(time.Microsecond)
		}
		from = last
		if err := s.Between(ctx); err != nil {
			return err
		}
	}
}

// move is the first step of a deletion: the horizon becomes the time of the newest row that has
// expired.
//
// A row stays while the time of its record is ahead of the horizon. If so many rows stay that
// reading ends with them, only the rows behind them move the horizon, so move reads from the last
// cut-off on, too. Otherwise no row would be deleted any more.
func (s *Scopes) move(ctx context.Context, a *Age) error {
	var rows [recordTables]decision.Expired
	for table := range rows {
		var err error
		if rows[table], err = s.expired(ctx, table, a, s.begin(table, a)); err != nil {
			return err
		}
		if rows[table].Limit.IsZero() || a.Cutoff.IsZero() {
			continue
		}
		rest, err := s.expired(ctx, table, a, a.Cutoff)
		if err != nil {
			return err
		}
		rows[table] = rows[table].Onward(a.Cutoff, rest)
	}
	before, cutoff, some := decision.NextHorizon(a.Horizon, a.ConsumedUntil, rows[:]...)
	if !some {
		return nil
	}
	return s.Rows.Move(ctx, a, before, cutoff)
}

// expired summarizes the rows of a scope that have expired from a time on, at most s.Limit.
func (s *Scopes) expired(ctx context.Context, table int, a *Age, from time.Time) (
	sum decision.Expired, err error) {
	rest, passed := s.Limit, from.Equal(s.begin(table, a))
	err = s.windows(ctx, table, from, a.ConsumedUntil, func(from, to time.Time) (bool, error) {
		n, made, last, err := s.Rows.Expired(ctx, table, a, from, to, rest)
		passed = passed && n == 0 && err == nil && to.Before(a.ConsumedUntil)
		if passed {
			s.floors.Pass(a.Scope, table, to, time.Now())
		}
		if made.After(sum.Made) {
			sum.Made = made
		}
		if rest -= n; rest <= 0 {
			sum.Limit = last
		}
		return rest > 0, err
	})
	return sum, err
}

// windows calls fn for one window of a table after the other, from a time on and until another. A
// window has at most s.Window rows of all scopes, and those that expired at the same time as its
// last row. A window without rows ends the work, and so does fn with false.
func (s *Scopes) windows(ctx context.Context, table int, from, until time.Time,
	fn func(from, to time.Time) (goOn bool, err error)) error {
	for {
		n, last, err := s.Rows.Window(ctx, table, from, until, s.Window)
		if err != nil || n == 0 {
			return err
		}
		to, more := decision.WindowEnd(n, s.Window, last, until)
		goOn, err := fn(from, to)
		if err != nil || !goOn || !more {
			return err
		}
		if err := s.Between(ctx); err != nil {
			return err
		}
		from = to
	}
}

// beginning is a time before all rows.
var beginning = time.UnixMicro(0).UTC()

// begin returns the time from which rows of a scope are read.
func (s *Scopes) begin(table int, a *Age) time.Time {
	return s.floors.Begin(a.Scope, table, beginning, time.Now())
}
