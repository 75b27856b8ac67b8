// Package postgres makes a sqlstore for Postgres 14 and later, on database/sql. The errors of the
// driver must have a method SQLState, as those of pgx (stdlib) and lib/pq have.
//
// The tables are those of package pgstore, in the readable layout, with the same rows. Create them
// with pgstore.Migrate, the text of pgstore.Schema, or the command idem migrate. A group may run on
// both packages at once, as during a rolling deployment. The reapers of both packages delete
// expired rows, one at a time: run either, or both.
package postgres

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/dedup/sqlstore"
)

// Parameters are session parameters for the connection string, or for the role. They end the
// session of a dead worker within half a minute. The transaction that holds an event ends with the
// session.
const Parameters = "client_connection_check_interval=2000&tcp_keepalives_idle=10&" +
	"tcp_keepalives_interval=5&tcp_keepalives_count=3&tcp_user_timeout=30000"

// New returns a store for the tables in the search path of the sessions of db. The caller closes
// db. The pool needs a connection for each concurrent transaction, and some more for claims.
func New(db *sql.DB) *sqlstore.Store { return sqlstore.New(db, nil, dialect()) }

func dialect() *sqlstore.Dialect {
	return &sqlstore.Dialect{
		Name:      "postgres",
		Tables:    "idem migrate up, or pgstore.Migrate",
		Param:     func(i int) string { return "$" + strconv.Itoa(i) },
		Now:       "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint",
		Micros:    func(c string) string { return "(extract(epoch FROM " + c + ") * 1000000)::bigint" },
		Time:      func(t time.Time) any { return t },
		Token:     func(c string) string { return c + "::text" },
		Quote:     `"`,
		Lock:      " FOR UPDATE",
		LockFree:  " FOR UPDATE SKIP LOCKED",
		Skip:      " ON CONFLICT DO NOTHING",
		Replace:   replace,
		Reap:      reapSettings,
		InOrder:   orderSettings,
		Lateral:   true,
		Isolation: sql.LevelReadCommitted,
		Begin:     begin, Mark: mark, Check: check, Classify: classify,
		CommitStays: true, // P-18
	}
}

// settings of the reaper's transactions. The index on expires_at must serve to find old rows, in
// its order, with any statistics. If no index serves, the plan has a scan that is off, and its
// estimated cost makes Postgres compile the statement (jit). That takes 100 ms and more.
const (
	reapSettings = `SELECT set_config('statement_timeout', '60000', true),
	set_config('lock_timeout', '5s', true), set_config('enable_seqscan', 'off', true),
	set_config('jit', 'off', true)`
	orderSettings = `SELECT set_config('enable_bitmapscan', 'off', true),
	set_config('enable_sort', 'off', true)`
)

func replace(key, columns []string) string {
	sets := make([]string, len(columns))
	for i, c := range columns {
		sets[i] = c + " = excluded." + c
	}
	return " ON CONFLICT (" + strings.Join(key, ", ") + ") DO UPDATE SET " +
		strings.Join(sets, ", ")
}

// statementSlack keeps the time-out of statements above that of locks: a held key must not look
// like a fault of the event.
const statementSlack = 3 * time.Second

// begin sets the time-outs of the transaction. The list is evaluated from left to right, so the
// first columns are those of the session. Keys are looked up in the index, with any statistics. A
// plan that was made for an empty table would read all of a large one.
func begin(ctx context.Context, q sqlstore.Querier, wait, idle time.Duration) (
	func(context.Context) error, error) {
	const text = `SELECT current_setting('lock_timeout'), current_setting('statement_timeout'),
		current_setting('enable_seqscan'), set_config('enable_seqscan', 'off', true),
		set_config('lock_timeout', $1::text, true),
		set_config('statement_timeout', $2::text, true),
		CASE WHEN $3::text <> ''
		     THEN set_config('idle_in_transaction_session_timeout', $3::text, true) END`
	stand := ""
	if idle > 0 {
		stand = milliseconds(idle)
	}
	var lock, statement, scans string
	err := scan(ctx, q, text, []any{milliseconds(wait), milliseconds(wait + statementSlack), stand},
		&lock, &statement, &scans, new(any), new(any), new(any), new(any))
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) error {
		const text = `SELECT set_config('lock_timeout', $1::text, true),
			set_config('statement_timeout', $2::text, true),
			set_config('enable_seqscan', $3::text, true)`
		_, err := q.ExecContext(ctx, text, lock, statement, scans)
		return err
	}, nil
}

// milliseconds is d as a setting, at least 1, because zero means no limit.
func milliseconds(d time.Duration) string {
	return strconv.FormatInt(min(max(1, d.Milliseconds()), 1<<31-1), 10)
}

// mark sets a parameter for the time of the transaction. After a COMMIT or ROLLBACK by SQL the
// parameter is gone, also if another transaction has begun (P-13).
func mark(ctx context.Context, q sqlstore.Querier) (func(context.Context) error, error) {
	token := dedup.NewToken().String()
	_, err := q.ExecContext(ctx, "SELECT set_config('idem.run', $1::text, true)", token)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) error {
		var found sql.NullString
		err := scan(ctx, q, "SELECT current_setting('idem.run', true)", nil, &found)
		if err == nil && found.String != token {
			err = dedup.ErrTxEnded
		}
		return err
	}, nil
}

// check fails if the tables are not those that this release needs.
func check(ctx context.Context, q sqlstore.Querier) ([]string, error) {
	var layout, encoding, interval string
	var version, server int
	err := scan(ctx, q, `SELECT layout, version, current_setting('server_encoding'),
		current_setting('server_version_num')::int,
		current_setting('client_connection_check_interval')
		FROM idem_schema ORDER BY version DESC LIMIT 1`, nil, &layout, &version, &encoding, &server,
		&interval)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return nil, errors.New("table idem_schema is empty: run pgstore.Migrate")
	case err != nil:
		return nil, err
	case layout != "readable":
		return nil, fmt.Errorf("the tables have the %s layout: only the readable one is supported, "+
			"use another schema or package pgstore", layout)
	case version < 3:
		return nil, fmt.Errorf("the tables have version %d, this release needs 3: run "+
			"pgstore.Migrate", version)
	case encoding != "UTF8":
		return nil, fmt.Errorf("the encoding of the database must be UTF8, it is %s", encoding)
	case server < 140000:
		return nil, fmt.Errorf("the server is older than Postgres 14: %d", server)
	}
	if interval == "0" {
		return []string{"client_connection_check_interval is 0: a worker that is killed during a " +
			"statement holds its event until the statement ends: set the parameter for the role, " +
			"or in the connection string"}, nil
	}
	return nil, nil
}

func scan(ctx context.Context, q sqlstore.Querier, text string, args []any, into ...any) (err error) {
	rows, err := q.QueryContext(ctx, text, args...)
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

// classify reads the SQLSTATE.
func classify(err error) sqlstore.Class {
	if errors.Is(err, dedup.ErrTxEnded) {
		return sqlstore.Ended
	}
	var e interface{ SQLState() string }
	if !errors.As(err, &e) {
		return sqlstore.Unknown
	}
	switch code := e.SQLState(); code {
	case "40001", "40P01":
		return sqlstore.Again
	case "55P03":
		return sqlstore.Locked
	case "25P02":
		return sqlstore.Aborted
	case "42P01", "42703", "3F000", "42501", "3D000", "28000", "28P01":
		return sqlstore.Setup
	case "25006", "25P03", "25P04", "57P01", "57P02", "57P03", "57P05":
		// With 25P03 and 25P04 the server has ended the session, such as that of a worker that was
		// suspended during its handler.
		return sqlstore.Down
	case "57014":
		return sqlstore.Stopped
	default:
		switch code[:min(2, len(code))] {
		case "08", "53", "58", "XX":
			return sqlstore.Down
		}
		return sqlstore.Refused
	}
}
