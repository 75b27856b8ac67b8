package mysql

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/outbox"
)

// settings are those of a session and its server that matter.
type settings struct {
	charset               string
	autocommit, increment int
	flush, sync           int
	readOnly, cluster     string
}

// Check reports whether the outbox can be used, and only reads. The user needs the rights of a
// relay.
//
// The error names a problem that has to be solved before use, or a failure of the database:
//
//   - Tables are missing or of an older version, or rows of idem_outbox_locks or idem_outbox_shards
//     are missing.
//   - The server is read-only.
//   - The session has another character set than utf8mb4, or does not commit by itself
//     (autocommit).
//
// Warnings are for commits that do not wait for the disk: an event may be published although a
// crash undoes the transaction. Another warning is for several nodes that write
// (auto_increment_increment, wsrep_on): the order of commits is kept on one node only.
func (o *Outbox) Check(ctx context.Context) (warnings []string, err error) {
	if err := o.usable(); err != nil {
		return nil, explain("check", err)
	}
	var s settings
	err = one(ctx, o.db, "SELECT @@SESSION.character_set_client, @@SESSION.autocommit, "+
		"@@GLOBAL.read_only, @@SESSION.auto_increment_increment, "+
		"@@GLOBAL.innodb_flush_log_at_trx_commit, @@GLOBAL.sync_binlog * @@GLOBAL.log_bin + "+
		"(1 - @@GLOBAL.log_bin)",
		&s.charset, &s.autocommit, &s.readOnly, &s.increment, &s.flush, &s.sync)
	if err == nil {
		err = each(ctx, o.db, "SHOW VARIABLES LIKE 'wsrep_on'", func(rows *sql.Rows) error {
			return rows.Scan(new(string), &s.cluster)
		})
	}
	if err != nil {
		return nil, explain("check", err)
	}
	var version, locks, shards int
	if err := one(ctx, o.db, rowsText, &version, &locks, &shards); err != nil {
		return nil, explain("check", err)
	}
	if problem := tablesProblem(version, locks, shards); problem != "" {
		return nil, fmt.Errorf("mysql: outbox: check: %w",
			&dedup.SetupError{Problem: problem, Fix: "run Migrate of sqloutbox/mysql"})
	}
	problem, warnings := s.judge()
	if problem != "" {
		return nil, fmt.Errorf("mysql: outbox: check: %s", problem)
	}
	return warnings, nil
}

// tablesProblem returns why the tables cannot be used, or "".
func tablesProblem(version, locks, shards int) string {
	switch {
	case version < schemaVersion:
		return fmt.Sprintf("the tables of the outbox have version %d, this release needs %d",
			version, schemaVersion)
	case locks != slots:
		return fmt.Sprintf("idem_outbox_locks has %d of %d rows: events of a topic and key could be "+
			"published out of order", locks, slots)
	case shards != outbox.Shards:
		return fmt.Sprintf("idem_outbox_shards has %d of %d rows: some events are never published",
			shards, outbox.Shards)
	}
	return ""
}

// isReadOnly reports whether @@GLOBAL.read_only means that the server refuses writes. The variable
// is a number in MySQL and in MariaDB up to 11. In MariaDB 12 it is OFF, ON, NO_LOCK or
// NO_LOCK_NO_ADMIN.
func isReadOnly(setting string) bool { return setting != "0" && setting != "OFF" }

// judge returns a problem that has to be solved, or warnings.
func (s *settings) judge() (problem string, warnings []string) {
	switch {
	case isReadOnly(s.readOnly):
		return "the server is read-only", nil
	case s.charset != "utf8mb4":
		return "the character set of the session must be utf8mb4, it is " + s.charset +
			": set charset in the connection string", nil
	case s.autocommit != 1:
		return "autocommit is off: reading would leave transactions open", nil
	}
	if s.flush != 1 || s.sync != 1 {
		warnings = append(warnings, "innodb_flush_log_at_trx_commit or sync_binlog is not 1: "+
			"an event may be published although a crash undoes its transaction")
	}
	if s.increment != 1 || s.cluster == "ON" {
		warnings = append(warnings, "the server is part of a cluster with several writers "+
			"(auto_increment_increment or wsrep_on): events of one topic and key keep the order "+
			"of commits only if all of them are added on one node")
	}
	return "", warnings
}
