// Package sqlite keeps events in one SQLite file: a durable store that needs no server. The driver
// is modernc.org/sqlite, which needs no C compiler.
package sqlite

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	_ "embed"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/dedup/sqlstore"
	"github.com/idem-go/idem/dedup/sqlstore/internal/setup"
	driver "modernc.org/sqlite"
	lib "modernc.org/sqlite/lib"
)

//go:embed schema.sql
var schemaSQL string

// busyTimeout is how long a statement waits for another process that writes the file.
const busyTimeout = 2 * time.Second

// Open opens the file at path, creates the file and the tables if they are missing, and returns the
// store. [sqlstore.Store.Close] closes the file. The directory must exist. A [*dedup.SetupError]
// means that the file has a table of another program with the name of one of these. Open has then
// not changed the file.
//
// One connection writes, and others read beside the writer (WAL). Several processes may open the
// file; it must be on a local disk. A commit waits for the disk (synchronous = FULL), so that a
// crash of the process or of the machine keeps all commits.
//
// The store deletes expired rows by itself, in a goroutine that Close ends and waits for: once a
// minute, as [sqlstore.Reaper] does. [Reap] changes the configuration, and [NoReaper] leaves the
// deletion to you. The file keeps its largest size, and new rows fill the free pages.
func Open(ctx context.Context, path string, opts ...Option) (*sqlstore.Store, error) {
	c := config{reap: true}
	for _, o := range opts {
		o(&c)
	}
	if err := c.reaper.Validate(); err != nil {
		return nil, fmt.Errorf("sqlite: open: %w", err)
	}
	writer, reader, err := openFile(ctx, path)
	if err != nil {
		return nil, err
	}
	if !c.reap {
		return sqlstore.New(writer, reader, dialect(), reader.Close, writer.Close), nil
	}
	alive, stop := context.WithCancel(context.WithoutCancel(ctx))
	done := make(chan struct{})
	wait := func() error {
		stop()
		<-done
		return nil
	}
	s := sqlstore.New(writer, reader, dialect(), wait, reader.Close, writer.Close)
	go func() {
		defer close(done)
		_ = sqlstore.NewReaper(s, c.reaper).Run(alive) // fails for mistakes of configuration only
	}()
	return s, nil
}

// openFile opens the file and makes the tables. One connection writes, the others read.
func openFile(ctx context.Context, path string) (writer, reader *sql.DB, err error) {
	if path == "" || strings.HasPrefix(path, ":memory:") {
		return nil, nil, errors.New("sqlite: open: name a file; for a store in memory use memstore")
	}
	path, err = filepath.Abs(path)
	if err != nil {
		return nil, nil, fmt.Errorf("sqlite: open: %w", err)
	}
	if err := refuseForeign(ctx, path); err != nil {
		return nil, nil, fmt.Errorf("sqlite: open %q: %w", path, err)
	}
	writer, err = open(path, "immediate", 1)
	if err != nil {
		return nil, nil, err
	}
	if err := create(ctx, writer); err != nil {
		_ = writer.Close()
		return nil, nil, fmt.Errorf("sqlite: open %q: %w", path, err)
	}
	reader, err = open(path, "deferred", 8)
	if err != nil {
		_ = writer.Close()
		return nil, nil, err
	}
	return writer, reader, nil
}

// refuseForeign fails if the file has a table of another program. The look changes nothing in the
// file. The connections of the store would set its journal mode, which stays in the file.
func refuseForeign(ctx context.Context, path string) (err error) {
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	db, err := openWith(path, url.Values{"mode": {"rw"}, "_pragma": {waits}}, 1)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	const names = "SELECT name FROM sqlite_master WHERE type IN ('table', 'view')"
	return setup.RefuseForeign(ctx, db, names, schemaSQL, "choose another file, or rename that table")
}

// schemaVersion is the version that schemaSQL records.
const schemaVersion = 2

// create makes the tables if any part of them is missing. Otherwise it only reads, so that a file
// opens while a transaction of a handler writes to it.
func create(ctx context.Context, db *sql.DB) error {
	made, err := created(ctx, db)
	if err == nil && !made {
		_, err = db.ExecContext(ctx, schemaSQL)
	}
	return err
}

// created reports whether the file has all tables and indexes, and this version or a later one.
func created(ctx context.Context, db *sql.DB) (bool, error) {
	var names string
	err := db.QueryRowContext(ctx, "SELECT coalesce(group_concat(name, ' '), '') FROM sqlite_master "+
		"WHERE type IN ('table', 'index')").Scan(&names)
	if err != nil || !setup.Complete(strings.Fields(names), schemaSQL) {
		return false, err
	}
	var version int
	err = db.QueryRowContext(ctx, "SELECT coalesce(max(version), 0) FROM idem_schema").Scan(&version)
	return version >= schemaVersion, err
}

func open(path, lock string, conns int) (*sql.DB, error) {
	db, err := openWith(path, url.Values{"_txlock": {lock}, "_pragma": {
		waits, "journal_mode(WAL)", "synchronous(FULL)", "foreign_keys(1)",
	}}, conns)
	if err != nil {
		return nil, fmt.Errorf("sqlite: open %q: %w", path, err)
	}
	return db, nil
}

// waits is the setting for busyTimeout.
var waits = "busy_timeout(" + strconv.FormatInt(busyTimeout.Milliseconds(), 10) + ")"

// openWith opens the file with the parameters of a URL for the driver.
func openWith(path string, q url.Values, conns int) (*sql.DB, error) {
	u := url.URL{Scheme: "file", Path: path, RawQuery: q.Encode()}
	db, err := sql.Open("sqlite", u.String())
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(conns)
	db.SetMaxIdleConns(conns)
	return db, nil
}

func dialect() *sqlstore.Dialect {
	return &sqlstore.Dialect{
		Name: "sqlite", Tables: "sqlite.Open",
		// Without a number: the driver looks up the name of each numbered one among all others,
		// which took most of the time of a large batch.
		Param:  func(int) string { return "?" },
		Micros: func(c string) string { return c },
		Time:   func(t time.Time) any { return t.UnixMicro() },
		Token:  func(c string) string { return c },
		Quote:  `"`,
		Index:  func(name string) string { return " INDEXED BY " + name },
		Skip:   " ON CONFLICT DO NOTHING",
		Replace: func(key, columns []string) string {
			sets := make([]string, len(columns))
			for i, c := range columns {
				sets[i] = c + " = excluded." + c
			}
			return " ON CONFLICT (" + strings.Join(key, ", ") + ") DO UPDATE SET " +
				strings.Join(sets, ", ")
		},
		Begin: func(context.Context, sqlstore.Querier, time.Duration, time.Duration) (
			func(context.Context) error, error) {
			return nil, nil
		},
		Mark: mark, Check: check, Classify: classify, Lives: lives, OneWriter: true,
		RowLookup: true,
	}
}

// mark sets a savepoint. Any statement that ends the transaction removes the savepoint.
func mark(ctx context.Context, q sqlstore.Querier) (func(context.Context) error, error) {
	if _, err := q.ExecContext(ctx, "SAVEPOINT idem_run"); err != nil {
		return nil, err
	}
	return func(ctx context.Context) error {
		_, err := q.ExecContext(ctx, "RELEASE idem_run")
		return err
	}, nil
}

// lives reports whether conn is inside a transaction. SQLite rolls back the whole transaction after
// some errors: a write that was cancelled, a full disk, OR ROLLBACK. Inside a transaction, SQLite
// refuses BEGIN, without an effect.
func lives(conn sqldriver.Conn) bool {
	c, ok := conn.(sqldriver.ExecerContext)
	if !ok {
		return false
	}
	_, err := c.ExecContext(context.Background(), "BEGIN", nil)
	if err == nil {
		_, _ = c.ExecContext(context.Background(), "ROLLBACK", nil) // the store closes conn
		return false
	}
	var e *driver.Error
	return errors.As(err, &e) && e.Code() == lib.SQLITE_ERROR
}

// check warns of a file system without a write-ahead log.
func check(ctx context.Context, q sqlstore.Querier) (warnings []string, err error) {
	rows, err := q.QueryContext(ctx, "PRAGMA journal_mode")
	if err != nil {
		return nil, err
	}
	defer func() {
		if e := rows.Close(); err == nil {
			err = e
		}
	}()
	var mode string
	if rows.Next() {
		err = rows.Scan(&mode)
	}
	if err := errors.Join(err, rows.Err()); err != nil {
		return nil, err
	}
	if mode != "wal" {
		warnings = append(warnings, "the journal mode is "+mode+", not wal: look-ups wait for "+
			"writers; keep the file on a local disk")
	}
	return warnings, nil
}

func classify(err error) sqlstore.Class {
	if errors.Is(err, dedup.ErrTxAborted) {
		return sqlstore.Aborted
	}
	var e *driver.Error
	if !errors.As(err, &e) {
		return sqlstore.Unknown
	}
	switch e.Code() & 0xff {
	case lib.SQLITE_BUSY, lib.SQLITE_LOCKED:
		return sqlstore.Locked
	case lib.SQLITE_FULL, lib.SQLITE_IOERR, lib.SQLITE_CANTOPEN, lib.SQLITE_READONLY,
		lib.SQLITE_CORRUPT, lib.SQLITE_NOTADB, lib.SQLITE_NOMEM, lib.SQLITE_INTERRUPT:
		return sqlstore.Down
	case lib.SQLITE_ERROR:
		switch {
		case strings.Contains(e.Error(), "no such table"):
			return sqlstore.Setup
		case strings.Contains(e.Error(), "no such savepoint"):
			return sqlstore.Ended
		}
	}
	return sqlstore.Refused
}
