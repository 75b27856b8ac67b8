package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/idem-go/idem/dedup/sqlstore/sqlite"
)

// sqliteScheme begins the name of a file with a store, such as sqlite:shop.db.
const sqliteScheme = "sqlite:"

// sqlitePath returns the path of a file in SQLite, and whether text names one.
func sqlitePath(text string) (path string, ok bool) {
	path, ok = strings.CutPrefix(text, sqliteScheme)
	return strings.TrimPrefix(path, "//"), ok // sqlite:///shop.db is the file /shop.db
}

// openSQLite opens a file that has the tables. Any other path is an error: the driver would create
// the file, or the tables in the file of another program. With bare, such a path is a store without
// tables.
func (a *app) openSQLite(ctx context.Context, path string) (*openedStore, error) {
	if path == "" {
		return nil, usage("--store: name a file, such as sqlite:shop.db")
	}
	l := &openedStore{name: "sqlite " + path, file: path}
	l.state = sqliteTables(ctx, path)
	missing := errors.Is(l.state.err, fs.ErrNotExist) || l.state.err == nil && l.state.layout == ""
	usable := l.state.err == nil && !missing
	switch {
	case a.bare && !usable:
		return l, nil
	case missing:
		return nil, found("%s: the file, or the tables in it, are missing: the consumer makes "+
			"them, or idem migrate up", l.name)
	case l.state.err != nil:
		return nil, fmt.Errorf("%s: %w", l.name, l.state.err)
	}
	return l, a.createSQLite(ctx, l)
}

// createSQLite opens the file of a store, and makes the file and the tables if they are missing.
func (a *app) createSQLite(ctx context.Context, l *openedStore) error {
	if l.sql != nil {
		return nil
	}
	s, err := sqlite.Open(ctx, l.file, sqlite.NoReaper())
	if err != nil {
		return fmt.Errorf("%s: %w", l.name, err)
	}
	a.closers = append(a.closers, func() { _ = s.Close() })
	l.store, l.sql = s, s
	return nil
}

// sqliteTables reads a file without changing it. The error of a path without a file matches
// [fs.ErrNotExist].
func sqliteTables(ctx context.Context, path string) (t tables) {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return tables{err: err}
	case !info.Mode().IsRegular():
		return tables{err: errors.New("not a file")}
	}
	db, err := readSQLite(path)
	if err != nil {
		return tables{err: err}
	}
	defer db.Close()
	var n int
	err = db.QueryRowContext(ctx,
		"SELECT count(*) FROM sqlite_master WHERE name = 'idem_schema'").Scan(&n)
	if err != nil || n == 0 {
		return tables{err: err}
	}
	return schemaVersion(ctx, db)
}

// readSQLite opens a file for reading only.
func readSQLite(path string) (*sql.DB, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	u := url.URL{Scheme: "file", Path: path, RawQuery: "mode=ro&_pragma=busy_timeout(2000)"}
	return sql.Open("sqlite", u.String())
}

// schemaVersion reads the version of tables that are there.
func schemaVersion(ctx context.Context, db *sql.DB) (t tables) {
	t.err = db.QueryRowContext(ctx, "SELECT layout, version FROM idem_schema ORDER BY version "+
		"DESC LIMIT 1").
		Scan(&t.layout, &t.version)
	return t
}
