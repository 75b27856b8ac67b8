package classify

import (
	"database/sql/driver"
	"errors"

	"github.com/idem-go/idem/internal/mark"
)

// SQL marks errors of a database by their SQLSTATE, which an error has as the method SQLState()
// string, such as those of pgx and lib/pq. It also knows driver.ErrBadConn of database/sql.
//
//	SQLSTATE                                                    mark
//	08 (connection), but 08P01; 53 (resources); 57P01, 57P02,   Unavailable
//	57P03, 57P05 (shutdown); 25006 (read-only, after a
//	fail-over); 58030 (I/O error); driver.ErrBadConn
//	22 (data), but 2200H; 23502 (not null)                      Permanent
//	others, such as 23503, 23505, 40001, 40P01, 42P01, 57014    none
//
// A unique or a foreign key has no mark, since another event may change the row that is in the way.
// A check (23514) has none, since PostgreSQL reports a missing partition in the same way. An
// exhausted sequence (2200H) has none either. Both would dead-letter every event at once.
func SQL(err error) error {
	if err == nil {
		return nil
	}
	if errors.Is(err, driver.ErrBadConn) {
		return mark.New(mark.Unavailable, 0, err)
	}
	var state interface {
		error
		SQLState() string
	}
	if !errors.As(err, &state) {
		return err
	}
	switch ofSQLState(state.SQLState()) {
	case down:
		return mark.New(mark.Unavailable, 0, err)
	case hopeless:
		return mark.New(mark.Permanent, 0, err)
	case unsure:
	}
	return err
}

// meaning is the meaning of a code.
type meaning uint8

const (
	unsure   meaning = iota
	down             // the dependency cannot be used
	hopeless         // another attempt would fail too
)

// ofSQLState returns the meaning of a SQLSTATE.
func ofSQLState(state string) meaning {
	switch state {
	case "08P01", "2200H":
		return unsure
	case "57P01", "57P02", "57P03", "57P05", "25006", "58030":
		return down
	case "23502":
		return hopeless
	}
	if len(state) != 5 {
		return unsure
	}
	switch state[:2] {
	case "08", "53":
		return down
	case "22":
		return hopeless
	}
	return unsure
}
