package pgoutbox

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/outbox"
)

// errUnfit is what Check finds.
var errUnfit = errors.New("pgoutbox: check")

func unfit(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{errUnfit}, args...)...)
}

// roles are what each kind of role does with the tables, as the package's documentation has it.
var roles = []struct {
	can            string
	tables, rights []string
}{
	{"add entries", []string{"idem_outbox"}, []string{"INSERT"}},
	{"relay", []string{"idem_outbox", "idem_outbox", "idem_outbox", "idem_outbox_shards", "idem_outbox_shards",
		"idem_outbox_relays", "idem_outbox_relays", "idem_outbox_relays", "idem_outbox_relays"},
		[]string{"SELECT", "UPDATE", "DELETE", "SELECT", "UPDATE", "SELECT", "INSERT", "UPDATE", "DELETE"}},
}

// Check looks whether the outbox can be used, and writes nothing.
//
// Errors: tables or indexes missing or of an older version, shards missing, numbers that are drawn in stock (a CACHE of the identity
// column other than 1 breaks the order of commits, rule 22), numbers that are behind those of the rows (logical replication leaves sequences
// behind; seen by roles that may read the sequence, such as the owner), a server older than 14, an encoding other than UTF8, a standby or a
// database that is read-only. Warnings: rights that this role lacks, for adding and for relaying, which as a rule are two roles; and
// commits that do not wait for the disk: an event may then be published of a transaction that a crash undoes.
func (o *Outbox) Check(ctx context.Context) (warnings []string, err error) {
	q, err := o.pooled(ctx)
	if err != nil {
		return nil, o.failed("check", err)
	}
	for _, check := range []func(context.Context, *statements) ([]string, error){o.checkServer, o.checkTables, o.checkRows} {
		more, err := check(ctx, q)
		warnings = append(warnings, more...)
		if errors.Is(err, errUnfit) {
			return warnings, err
		}
		if err != nil {
			return warnings, o.failed("check", err)
		}
	}
	return warnings, nil
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
		return nil, unfit("Postgres 14 or later is needed, this is %d.%d", version/10000, version%10000)
	case encoding != "UTF8":
		return nil, unfit("the encoding of the database must be UTF8, it is %s", encoding)
	case readOnly:
		return nil, unfit("the server is a standby, or the database is read-only")
	case forgets:
		warnings = append(warnings, "synchronous_commit or fsync is off: an event may be published of a transaction that a crash undoes")
	}
	return warnings, nil
}

func (o *Outbox) checkTables(ctx context.Context, q *statements) (warnings []string, err error) {
	quoted := pgx.Identifier{q.schema}.Sanitize()
	for _, role := range roles {
		var missing, invalid, lacks string
		var plain bool
		err := o.pool.QueryRow(ctx, q.checkTables, quoted, relations, role.tables, role.rights).Scan(&missing, &invalid, &plain, &lacks)
		switch {
		case err != nil:
			return nil, err
		case missing != "":
			return nil, &dedup.SetupError{Problem: "the outbox lacks " + missing, Fix: o.migrateFix(o.pool.Config().ConnConfig)}
		case invalid != "":
			return nil, unfit("indexes that are not valid: %s: REINDEX them", invalid)
		case !plain:
			return nil, unfit("column seq of idem_outbox must be an identity with CACHE 1 that ascends: with a larger cache each session " +
				"draws numbers in stock, and events of one aggregate are published out of order (rule 22): ALTER TABLE idem_outbox ALTER seq SET CACHE 1, " +
				"then let all writers connect anew")
		case lacks != "":
			warnings = append(warnings, fmt.Sprintf("this role cannot %s: it lacks %s", role.can, lacks))
		}
	}
	return warnings, nil
}

// checkRows needs the rights of a relay; without them nothing is said.
func (o *Outbox) checkRows(ctx context.Context, q *statements) ([]string, error) {
	var shards, version int
	var behind bool
	err := o.pool.QueryRow(ctx, q.checkRows, outbox.Shards, pgx.Identifier{q.schema}.Sanitize()).Scan(&shards, &version, &behind)
	switch {
	case sqlState(err) == codeNoRight:
		return nil, nil
	case err != nil:
		return nil, err
	case version < schemaVersion:
		return nil, unfit("the tables have version %d, this release needs %d: %s", version, schemaVersion, o.migrateFix(o.pool.Config().ConnConfig))
	case shards != outbox.Shards:
		return nil, unfit("idem_outbox_shards has %d of %d rows: run pgoutbox.Migrate, else some events are never published", shards, outbox.Shards)
	case behind:
		return nil, unfit("idem_outbox has rows with numbers that its sequence has still to give out, as after a replication or a copy that " +
			"leaves sequences behind: new events would be published before those that wait. Before anybody writes: " +
			"SELECT setval(pg_get_serial_sequence('idem_outbox', 'seq'), (SELECT max(seq) FROM idem_outbox))")
	}
	return nil, nil
}
