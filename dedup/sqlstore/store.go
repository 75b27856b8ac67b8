package sqlstore

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/idem-go/idem/dedup"
)

const (
	// lockWait is how long a single request waits for the transaction that holds the key (rule
	// 10).
	lockWait = 2 * time.Second
	// groupWait is how long a group and a request with NoWait wait for a lock (rule 1).
	groupWait = 20 * time.Millisecond
	// silence bounds the wait for one call of the database.
	silence = 30 * time.Second
	// endTimeout bounds COMMIT and ROLLBACK, which the caller's context does not (P-16).
	endTimeout = 10 * time.Second
	// attempts bounds the repeats inside one call after lost races.
	attempts = 12
)

// Store keeps events in a database. Make a Store with one of the packages postgres, mysql and
// sqlite; the zero value cannot be used. A Store is safe for concurrent use, and a *Store is
// comparable with ==.
type Store struct {
	db, reader *sql.DB
	d          *Dialect
	closers    []func() error
	commits    commits
}

var (
	_ dedup.Store    = (*Store)(nil)
	_ dedup.Looker   = (*Store)(nil)
	_ dedup.Checker  = (*Store)(nil)
	_ dedup.Operator = (*Store)(nil)
	_ dedup.Lister   = (*Store)(nil)
)

// New returns a store for the tables in db. reader is for look-ups; nil means db. Call New from a
// dialect's package. New does not connect.
func New(db, reader *sql.DB, d *Dialect, closers ...func() error) *Store {
	if reader == nil {
		reader = db
	}
	return &Store{db: db, reader: reader, d: d, closers: closers}
}

// Close closes the databases that the constructor opened. A database that the caller passed stays
// open. In Postgres, a COMMIT may go on after its call has returned. Close first waits for such
// COMMITs, for at most 10 s. If one still goes on, Close returns an error.
func (s *Store) Close() error {
	err := s.commits.wait(endTimeout)
	if err != nil {
		err = s.wrong("close", err)
	}
	for _, c := range s.closers {
		if e := c(); err == nil {
			err = e
		}
	}
	return err
}

// Ping sends a query to the database. The error matches [dedup.ErrUnavailable].
func (s *Store) Ping(ctx context.Context) error {
	var one int
	return s.failed(ctx, "ping", s.reader.QueryRowContext(ctx, "SELECT 1").Scan(&one))
}

func (s *Store) wrong(verb string, err error) error {
	return fmt.Errorf("%s: %s: %w", s.d.Name, verb, err)
}
