package pgstore

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/idem-go/idem/dedup"
	"github.com/jackc/pgx/v5"
)

// Check implements [dedup.Checker]. Check writes test rows in transactions and rolls these back,
// because only a write shows a unique key that is missing or broken after a restore.
//
// Errors:
//
//   - Tables are missing, older than this release, or of another layout ([Compact]).
//   - The role lacks a right that every worker needs.
//   - A key is not unique, or is not compared byte by byte.
//   - The encoding is not UTF8.
//   - The server is older than version 14.
//   - The server is a standby, or the database is read-only.
//
// Missing tables, missing rights and a refused log-in are a [*dedup.SetupError], which names the
// fix.
//
// Warnings:
//
//   - Commits do not wait for the disk.
//   - Sessions outlive their client for long.
//   - [Configure] has not seen the pool, so pgx may cancel a COMMIT that waits for a synchronous
//     standby.
func (s *Store) Check(ctx context.Context) (warnings []string, err error) {
	q, err := s.db.statements(ctx)
	if errors.Is(err, errLayout) {
		return nil, fmt.Errorf("%w: %w", errUnfit, err)
	}
	if err != nil {
		return nil, s.db.failed(ctx, "check", err)
	}
	conn, err := s.db.acquire(ctx)
	if err != nil {
		return nil, s.db.failed(ctx, "check", err)
	}
	defer conn.end(ctx)
	for _, check := range []func(context.Context, session, *statements) ([]string, error){
		checkServer, s.checkSettings, s.checkTables, checkUnique,
	} {
		more, err := check(ctx, conn, q)
		warnings = append(warnings, more...)
		if errors.Is(err, errUnfit) {
			return warnings, err
		}
		if err != nil {
			return warnings, s.db.failed(ctx, "check", err)
		}
	}
	return warnings, nil
}

var errUnfit = errors.New("pgstore: check")

func unfit(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{errUnfit}, args...)...)
}

func checkServer(ctx context.Context, conn session, _ *statements) ([]string, error) {
	var version int
	var encoding string
	var standby, readOnly bool
	err := conn.QueryRow(ctx, `SELECT current_setting('server_version_num')::int,
		current_setting('server_encoding'), pg_is_in_recovery(),
		current_setting('default_transaction_read_only')::boolean`).
		Scan(&version, &encoding, &standby, &readOnly)
	switch {
	case err != nil:
		return nil, err
	case version < 140000:
		return nil, unfit("Postgres 14 or later is needed, this is %d.%d", version/10000,
			version%10000)
	case encoding != "UTF8": // some IDs could not be stored
		return nil, unfit("the encoding of the database must be UTF8, it is %s", encoding)
	case standby:
		return nil, fmt.Errorf("the server is a standby: %w", dedup.ErrUnavailable)
	case readOnly:
		return nil, fmt.Errorf("default_transaction_read_only is on: %w", dedup.ErrUnavailable)
	}
	return nil, nil
}

func (s *Store) checkSettings(ctx context.Context, conn session,
	_ *statements) (warnings []string, err error) {
	var fsync, pages bool
	var commit, check, standbys string
	var keepalive int
	err = conn.QueryRow(ctx, `SELECT current_setting('fsync')::boolean,
		current_setting('full_page_writes')::boolean, current_setting('synchronous_commit'),
		current_setting('synchronous_standby_names'),
		current_setting('client_connection_check_interval'),
		CASE WHEN inet_client_addr() IS NULL THEN -1
		     ELSE current_setting('tcp_keepalives_idle')::int END`).
		Scan(&fsync, &pages, &commit, &standbys, &check, &keepalive)
	if err != nil {
		return nil, err
	}
	if !fsync || !pages {
		warnings = append(warnings,
			"fsync or full_page_writes is off: a crash of the server may lose or corrupt the store")
	}
	if commit == "off" && !s.db.durable {
		warnings = append(warnings, "synchronous_commit is off: a crash of the server loses the "+
			"last commits, effects and records, while the offsets stay: use pgstore.Durable, or "+
			"rewind the consumer group after a crash")
	}
	if standbys != "" && !guarded(conn.Conn()) {
		warnings = append(warnings, unguarded)
	}
	if check == "0" {
		warnings = append(warnings, "client_connection_check_interval is 0: a worker that is "+
			"killed during a statement holds its event until the statement ends: use "+
			"pgstore.Configure or set the parameter for the role")
	}
	if keepalive == 0 || keepalive > 300 {
		warnings = append(warnings, fmt.Sprintf("tcp_keepalives_idle is %d s: a host without a "+
			"network holds its event for longer: use pgstore.Configure or set the parameter for "+
			"the role", keepalive))
	}
	return warnings, nil
}

func (s *Store) checkTables(ctx context.Context, conn session, q *statements) ([]string, error) {
	var version int
	if err := conn.QueryRow(ctx, q.version).Scan(&version); err != nil {
		return nil, err
	}
	if version < schemaVersion {
		return nil, unfit("the tables have version %d, this release needs %d: %s", version,
			schemaVersion, s.db.setup().migrateFix())
	}
	if err := checkComplete(ctx, conn, q, s.db.setup()); err != nil {
		return nil, err
	}
	rows, err := conn.Query(ctx, q.keyColumns)
	if err != nil {
		return nil, err
	}
	folded, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return nil, err
	}
	// another collation may treat two IDs as equal, or sort batches differently (P-23, P-04)
	if len(folded) > 0 {
		return nil, unfit(`%s: the collation must be "C"`, strings.Join(folded, ", "))
	}
	return nil, nil
}

// checkComplete fails if tables are missing, or if the role lacks a right that every worker needs.
func checkComplete(ctx context.Context, conn session, q *statements, u setup) error {
	var missing, names, tables, rights, lacks []string
	for _, p := range u.layout.privileges() {
		names = append(names, p.table)
		for right := range strings.SplitSeq(p.rights, ", ") {
			if p.check {
				tables, rights = append(tables, p.table), append(rights, right)
			}
		}
	}
	err := conn.QueryRow(ctx, `
		SELECT coalesce(array_agg(n) FILTER (WHERE to_regclass($1 || '.' || n) IS NULL), '{}')
		FROM unnest($2::text[]) n`,
		pgx.Identifier{q.schema}.Sanitize(), names).Scan(&missing)
	if err != nil {
		return err
	}
	if len(missing) > 0 {
		return &dedup.SetupError{Problem: "the store lacks " + strings.Join(missing, ", "),
			Fix: u.migrateFix()}
	}
	err = conn.QueryRow(ctx, `
		SELECT coalesce(
			array_agg(DISTINCT t) FILTER (WHERE NOT has_table_privilege($1 || '.' || t, r)), '{}')
		FROM unnest($2::text[], $3::text[]) AS p(t, r)`,
		pgx.Identifier{q.schema}.Sanitize(), tables, rights).Scan(&lacks)
	if err != nil {
		return err
	}
	if len(lacks) > 0 {
		return &dedup.SetupError{
			Problem: fmt.Sprintf("role %q lacks rights on %s", u.role(), strings.Join(lacks, ", ")),
			Fix:     "run as the owner of the tables: " + u.grants(lacks),
		}
	}
	return nil
}

func checkUnique(ctx context.Context, conn session, q *statements) ([]string, error) {
	for table, text := range q.uniqueTests {
		if err := checkTable(ctx, conn, table, text); err != nil {
			return nil, err
		}
	}
	return nil, nil
}

func checkTable(ctx context.Context, conn session, table, text string) error {
	tx, err := conn.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.ReadCommitted})
	if err != nil {
		return err
	}
	defer func() {
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
		defer cancel()
		_ = tx.Rollback(end) // after an error the connection is closed
	}()
	id := dedup.NewToken().String() // two checks at once use different keys
	for _, want := range []int64{1, 0} {
		tag, err := tx.Exec(ctx, text, id)
		if sqlState(err) == codeNoUnique {
			return unfit("table %s has no valid unique key: "+
				"restore its primary key as in pgstore.Schema", table)
		}
		if err != nil {
			return err
		}
		if got := tag.RowsAffected(); got != want {
			return unfit("table %s: inserting one key twice gave %d rows instead of %d: its "+
				"primary key is broken (REINDEX), or a trigger changes the row", table, got, want)
		}
	}
	return nil
}
