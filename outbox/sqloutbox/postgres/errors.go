package postgres

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"

	"github.com/idem-go/idem/dedup"
)

// fault is the cause of an error.
type fault int

const (
	other   fault = iota // such as a deadlock, or a lock that another transaction holds
	missing              // the tables are missing
	noRight              // a right is missing
	noLocks              // the server has no room for locks
	down                 // the server cannot work now
)

// classify returns the cause of an error by its SQLSTATE.
func classify(code string) fault {
	switch code {
	case "":
		return other
	case "42P01", "3F000":
		return missing
	case "42501":
		return noRight
	case "53200":
		return noLocks
	case "25006", "57P01", "57P02", "57P03", "57P05":
		return down
	}
	switch code[:min(2, len(code))] {
	case "08", "53", "58", "XX":
		return down
	}
	return other
}

// sqlState returns the SQLSTATE of err, or an empty string.
func sqlState(err error) string {
	var e interface{ SQLState() string }
	if errors.As(err, &e) {
		return e.SQLState()
	}
	return ""
}

// addError returns the error of adding. The error matches [dedup.ErrUnavailable] if the event that
// a handler processes is not to blame: the entries were checked before. schema is empty if it is not
// known.
func addError(ctx context.Context, schema string, err error) error {
	if err == nil {
		return nil
	}
	cause := classify(sqlState(err))
	if errors.Is(err, errNoTables) {
		cause = missing
	}
	if ctx.Err() == nil && errors.Is(err, driver.ErrBadConn) {
		cause = down
	}
	switch cause {
	case missing:
		err = &dedup.SetupError{Problem: "the tables of the outbox are missing",
			Fix: "run `idem migrate up --outbox`, or pgoutbox.Migrate", Err: err}
	case noRight:
		err = &dedup.SetupError{Problem: "the role lacks rights on the tables of the outbox",
			Fix: grants(schema), Err: err}
	case noLocks:
		err = fmt.Errorf("%w: the server has no room for more locks: raise "+
			"max_locks_per_transaction, or add events of fewer topics and keys at once: %w",
			dedup.ErrUnavailable, err)
	case down:
		err = fmt.Errorf("%w: %w", dedup.ErrUnavailable, err)
	case other:
	}
	return fmt.Errorf("postgres: outbox: add: %w", err)
}

// grants returns the statements that give a role the rights to add.
func grants(schema string) string {
	usage, on := "", ""
	if schema != "" {
		usage, on = `GRANT USAGE ON SCHEMA "`+schema+`" TO <role>; `, `"`+schema+`".`
	}
	return "run as their owner, with the name of the role: " + usage +
		"GRANT INSERT ON " + on + "idem_outbox TO <role>"
}
