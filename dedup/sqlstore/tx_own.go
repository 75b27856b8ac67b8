package sqlstore

import (
	"context"
	"database/sql"
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/internal/decision"
)

// work is a transaction in progress.
type work struct {
	q      Querier
	d      *Dialect
	scopes []string // the scopes of the requests, to read their horizons

	now      time.Time
	horizons map[string]time.Time
}

// txKind is how a transaction of the store's own begins.
type txKind struct {
	db       *sql.DB
	limit    time.Duration // of the transaction
	wait     time.Duration // for a lock
	settings []string      // statements at the start; an empty one is left out
}

// ownTx runs fn in a transaction of the store's own. A failed COMMIT is an error with an unknown
// outcome: repetitions with the same tokens have no further effect.
func (s *Store) ownTx(ctx context.Context, verb string, scopes []string,
	fn func(context.Context, *work) error) error {
	return s.inTx(ctx, verb, txKind{db: s.db, limit: silence, wait: lockWait}, scopes, fn)
}

// inTx runs fn in a transaction. A transaction that lost a race is run again, a bounded number of
// times.
func (s *Store) inTx(ctx context.Context, verb string, kind txKind, scopes []string,
	fn func(context.Context, *work) error) error {
	var err error
	for try := 1; ; try++ {
		err = s.inTxOnce(ctx, kind, scopes, fn)
		if err == nil || try == attempts || !s.lostRace(err) || pause(ctx, try) != nil {
			return s.failed(ctx, verb, err)
		}
	}
}

func (s *Store) inTxOnce(ctx context.Context, kind txKind, scopes []string,
	fn func(context.Context, *work) error) (err error) {
	ctx, cancel := context.WithTimeout(ctx, kind.limit)
	defer cancel()
	if s.d.EndBySQL {
		return s.onConn(ctx, kind.db, func(q Querier) error {
			return s.steps(ctx, q, kind, scopes, fn)
		})
	}
	life := s.newLife(ctx)
	defer func() { err = life.end(err) }()
	tx, err := kind.db.BeginTx(life.ctx, &sql.TxOptions{Isolation: s.d.Isolation})
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // no effect after a commit
	if err := life.begin(); err != nil {
		return err
	}
	if err := s.steps(ctx, tx, kind, scopes, fn); err != nil {
		return err
	}
	return life.commit(tx)
}

// steps runs fn in a transaction that has begun, and gives the session its settings back.
func (s *Store) steps(ctx context.Context, q Querier, kind txKind, scopes []string,
	fn func(context.Context, *work) error) error {
	restore, err := s.d.Begin(ctx, q, kind.wait, endTimeout)
	if err != nil {
		return err
	}
	for _, text := range kind.settings {
		if text != "" && err == nil {
			_, err = q.ExecContext(ctx, text)
		}
	}
	if err == nil {
		err = fn(ctx, &work{q: q, d: s.d, scopes: scopes})
	}
	if restore != nil { // the session goes back to the application, after an error too
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
		defer cancel()
		if e := restore(end); err == nil {
			err = e
		}
	}
	return err
}

// readClock reads the clock of the server, and the horizons. A horizon is read after the rows. A
// reaper moves the horizon before it deletes a row, so a transaction that finds no row knows the
// horizon.
func (w *work) readClock(ctx context.Context) error {
	w.horizons = make(map[string]time.Time)
	for i := 0; i == 0 || i < len(w.scopes); i++ {
		now, horizon := "0", "NULL"
		if w.d.Now != "" {
			now = w.d.Now
		}
		var args []any
		if i < len(w.scopes) {
			horizon = "(SELECT " + w.d.Micros(w.d.name("before")) +
				" FROM idem_horizons WHERE scope = " + w.d.Param(1) + ")"
			args = append(args, w.scopes[i])
		}
		var at int64
		var before sql.NullInt64
		if err := w.row(ctx, "SELECT "+now+", "+horizon, args, &at, &before); err != nil {
			return err
		}
		if w.d.Now == "" {
			at = time.Now().UnixMicro()
		}
		if i == 0 {
			w.now = micros(at)
		}
		if before.Valid {
			w.horizons[w.scopes[i]] = micros(before.Int64)
		}
	}
	return nil
}

// row reads the only row of a query.
func (w *work) row(ctx context.Context, query string, args []any, into ...any) (err error) {
	rows, err := w.q.QueryContext(ctx, query, args...)
	if err != nil {
		return err
	}
	defer func() {
		if e := rows.Close(); err == nil {
			err = e
		}
	}()
	if !rows.Next() {
		if err := rows.Err(); err != nil {
			return err
		}
		return sql.ErrNoRows
	}
	return rows.Scan(into...)
}

func scopesOf(reqs []dedup.Request) (scopes []string) {
	seen := make(map[string]bool)
	for i := range reqs {
		if scope := reqs[i].Key.Scope; !seen[scope] {
			seen[scope] = true
			scopes = append(scopes, scope)
		}
	}
	return scopes
}

// read returns the records of keys, which ascend. The first call then reads the clock and the
// horizons. A later call may wait for a lock, and then find rows that are younger than the clock.
// So the last change of each row moves the present forward.
func (w *work) read(ctx context.Context, t *table, keys []dedup.Key,
	tail string) (map[dedup.Key]*decision.Record, error) {
	found, err := t.read(ctx, w.q, w.d, keys, tail)
	if err == nil && w.now.IsZero() {
		err = w.readClock(ctx)
	}
	if err != nil {
		return nil, err
	}
	for _, r := range found {
		w.now = later(w.now, r.Changed)
	}
	return found, nil
}
