package pgoutbox

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/outbox"
)

// errUnfit marks the errors of Check that are not the database's.
var errUnfit = errors.New("pgoutbox: check")

func unfit(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{errUnfit}, args...)...)
}

// dbRole is a kind of database role, with the rights that it needs on each table.
type dbRole struct {
	can            string
	tables, rights []string
}

// roles are the kinds of roles in the documentation of the package, without the operator.
var roles = []dbRole{
	newDBRole("add entries", "idem_outbox", "INSERT"),
	newDBRole("relay",
		"idem_outbox", "SELECT", "idem_outbox", "UPDATE", "idem_outbox", "DELETE",
		"idem_outbox_shards", "SELECT", "idem_outbox_shards", "UPDATE",
		"idem_outbox_relays", "SELECT", "idem_outbox_relays", "INSERT",
		"idem_outbox_relays", "UPDATE", "idem_outbox_relays", "DELETE"),
}

// newDBRole returns a role that needs pairs of a table and a right.
func newDBRole(can string, pairs ...string) dbRole {
	r := dbRole{can: can}
	for i := 0; i < len(pairs); i += 2 {
		r.tables, r.rights = append(r.tables, pairs[i]), append(r.rights, pairs[i+1])
	}
	return r
}

// Check reports whether the outbox can be used, and only reads.
//
// If the database fails or does not answer, the error matches [dedup.ErrUnavailable]. Missing
// tables, missing rights and a refused log-in are a [*dedup.SetupError], which matches too and
// names the fix. Any other error names a problem that has to be solved before use:
//
//   - Tables or indexes are missing, invalid or of an older version, or shards are missing.
//   - The identity column has a CACHE other than 1, which breaks the order of commits.
//   - The sequence is behind the rows, as after logical replication. Only roles that may read the
//     sequence, such as the owner, see this.
//   - The server is older than 14, is a standby or read-only, or its encoding is not UTF8.
//
// Warnings name rights that this role lacks for adding or for relaying, which usually are two
// roles. Another warning is for commits that do not wait for the disk: an event may be published
// although a crash undoes the transaction.
func (o *Outbox) Check(ctx context.Context) (warnings []string, err error) {
	q, err := o.pooled(ctx)
	if o.wrong != nil || o.pool == nil {
		return nil, o.failed("check", err)
	}
	if err != nil {
		return nil, o.checkFailed(err)
	}
	type check func(context.Context, *statements) ([]string, error)
	for _, check := range []check{o.checkServer, o.checkTables, o.checkRows} {
		more, err := check(ctx, q)
		warnings = append(warnings, more...)
		if errors.Is(err, errUnfit) {
			return warnings, err
		}
		if err != nil {
			return warnings, o.checkFailed(err)
		}
	}
	return warnings, nil
}

// checkFailed returns the error of a database that did not answer a question of Check.
func (o *Outbox) checkFailed(err error) error {
	err = o.failed("check", err)
	if errors.Is(err, dedup.ErrUnavailable) { // something is not set up
		return err
	}
	return fmt.Errorf("%w: %w", dedup.ErrUnavailable, err)
}

func (o *Outbox) checkServer(ctx context.Context, q *statements) (warnings []string, err error) {
	var version int
	var encoding string
	var readOnly, forgets bool
	err = o.pool.QueryRow(ctx, q.checkServer).Scan(&version, &encoding, &readOnly, &forgets)
	switch {
	case err != nil:
		return nil, err
	case version < 140000:
		return nil, unfit("Postgres 14 or later is needed, this is %d.%d",
			version/10000, version%10000)
	case encoding != "UTF8":
		return nil, unfit("the encoding of the database must be UTF8, it is %s", encoding)
	case readOnly:
		return nil, unfit("the server is a standby, or the database is read-only")
	case forgets:
		warnings = append(warnings, "synchronous_commit or fsync is off: "+
			"an event may be published although a crash undoes its transaction")
	}
	return warnings, nil
}

func (o *Outbox) checkTables(ctx context.Context, q *statements) (warnings []string, err error) {
	quoted := pgx.Identifier{q.schema}.Sanitize()
	for _, role := range roles {
		var missing, invalid, lacks string
		var plain bool
		err := o.pool.QueryRow(ctx, q.checkTables, quoted, relations, role.tables, role.rights).
			Scan(&missing, &invalid, &plain, &lacks)
		switch {
		case err != nil:
			return nil, err
		case missing != "":
			problem := "the outbox lacks " + missing
			return nil, &dedup.SetupError{Problem: problem, Fix: o.migrateFix()}
		case invalid != "":
			return nil, unfit("indexes are not valid: %s: REINDEX them", invalid)
		case !plain:
			return nil, unfit("column seq of idem_outbox must be an ascending identity "+
				"with CACHE 1: with a larger cache each session reserves numbers, and events "+
				"of one topic and key are published out of order: "+
				"ALTER TABLE %s ALTER seq SET CACHE 1, then restart all writers", q.table())
		case lacks != "":
			warnings = append(warnings,
				fmt.Sprintf("this role cannot %s: it lacks %s", role.can, lacks))
		}
	}
	return warnings, nil
}

// checkRows needs the rights of a relay. Without these rights no problem is reported.
func (o *Outbox) checkRows(ctx context.Context, q *statements) ([]string, error) {
	var shards, version int
	var behind bool
	err := o.pool.QueryRow(ctx, q.checkRows, outbox.Shards, pgx.Identifier{q.schema}.Sanitize()).
		Scan(&shards, &version, &behind)
	switch {
	case sqlState(err) == codeNoRight:
		return nil, nil
	case err != nil:
		return nil, err
	case version < schemaVersion:
		return nil, unfit("the tables have version %d, this release needs %d: %s",
			version, schemaVersion, o.migrateFix())
	case shards != outbox.Shards:
		return nil, unfit("idem_outbox_shards has %d of %d rows: run pgoutbox.Migrate, "+
			"otherwise some events are never published", shards, outbox.Shards)
	case behind:
		return nil, unfit("the sequence of idem_outbox is behind its rows, as after a "+
			"replication or a copy without sequences: new events would be published before "+
			"those that wait. Before any new event: "+
			"SELECT setval(pg_get_serial_sequence('%s', 'seq'), (SELECT max(seq) FROM %s))",
			strings.ReplaceAll(q.table(), "'", "''"), q.table())
	}
	return nil, nil
}

// migrateFix returns the command that creates or updates the tables in the database of the pool.
func (o *Outbox) migrateFix() string {
	return o.target(o.pool.Config().ConnConfig).migrateFix()
}
