package mysql

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"

	my "github.com/go-sql-driver/mysql"

	"github.com/idem-go/idem/dedup"
)

// number returns the number of an error of the server, or 0.
func number(err error) uint16 {
	var e *my.MySQLError
	if errors.As(err, &e) {
		return e.Number
	}
	return 0
}

// fault is the cause of an error.
type fault int

const (
	other   fault = iota // such as a deadlock, or a lock that another transaction holds
	missing              // a table, a column or a database is missing
	noRight              // a right is missing
	down                 // the server cannot work now
)

// classify returns the cause of an error of the server by its number.
func classify(number uint16) fault {
	switch number {
	case 1049, 1054, 1146:
		return missing
	case 1044, 1045, 1142, 1143:
		return noRight
	case 1021, 1037, 1038, 1040, 1041, 1053, 1203, 1290, 1836, 1927:
		return down
	}
	return other
}

// explain adds verb to err. If something is not set up, the result is a [*dedup.SetupError] with
// the remedy.
func explain(verb string, err error) error {
	if err == nil || errors.Is(err, errNoDB) {
		return err
	}
	switch classify(number(err)) {
	case missing:
		err = &dedup.SetupError{Problem: "the tables of the outbox are missing",
			Fix: "create the tables with mysql.Migrate of package sqloutbox", Err: err}
	case noRight:
		err = &dedup.SetupError{Problem: "the user lacks rights on the tables of the outbox",
			Fix: "grant the rights that the documentation of sqloutbox/mysql lists", Err: err}
	case down, other:
	}
	return fmt.Errorf("mysql: outbox: %s: %w", verb, err)
}

// addError returns the error of adding. The error matches [dedup.ErrUnavailable] if the event that
// a handler processes is not to blame: the entries were checked before.
func addError(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	gone := ctx.Err() == nil &&
		(errors.Is(err, driver.ErrBadConn) || errors.Is(err, my.ErrInvalidConn))
	explained := explain("add", err)
	if gone || classify(number(err)) == down {
		return fmt.Errorf("%w: %w", dedup.ErrUnavailable, explained)
	}
	return explained
}
