package pgoutbox

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/idem-go/idem/dedup"
)

var (
	errNoTables = errors.New("the tables of the outbox are not there: run pgoutbox.Migrate or `idem migrate up --outbox`")
	errNoRight  = errors.New("the role has no right to do this: see the rights in the documentation of package pgoutbox")
	errNoLocks  = errors.New("the server has no room for more locks: raise max_locks_per_transaction, or add fewer aggregates at once")
	errNoTx     = errors.New("pgoutbox: no transaction: tx is nil (a request without a key has none, see httpidem.TxFrom)")
	errNoPool   = errors.New("pgoutbox: New was given no pool")
)

// The SQLSTATEs that are told apart.
const (
	codeNoTable   = "42P01"
	codeNoSchema  = "3F000"
	codeNoRight   = "42501"
	codeNoMemory  = "53200"
	codeReadOnly  = "25006"
	codeShutdown  = "57P01"
	codeCrash     = "57P02"
	codeNotYet    = "57P03"
	codeIdleEnded = "57P05"
)

func sqlState(err error) string {
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		return pg.Code
	}
	return ""
}

// storeError says what failed, and what to do where there is something.
func storeError(verb string, err error) error {
	if err == nil || errors.Is(err, errNoPool) {
		return err
	}
	switch sqlState(err) {
	case codeNoTable, codeNoSchema:
		return fmt.Errorf("pgoutbox: %s: %w: %w", verb, errNoTables, err)
	case codeNoRight:
		return fmt.Errorf("pgoutbox: %s: %w: %w", verb, errNoRight, err)
	}
	return fmt.Errorf("pgoutbox: %s: %w", verb, err)
}

// addError is storeError for statements in a transaction that handles an event. It matches [dedup.ErrUnavailable] if the event is not
// to blame, which must then not be given up: its entries were checked before.
func addError(ctx context.Context, tx pgx.Tx, err error) error {
	if err == nil {
		return nil
	}
	code, lost := sqlState(err), ctx.Err() == nil && tx.Conn() != nil && tx.Conn().IsClosed()
	err = storeError("add", err)
	switch {
	case code == codeNoMemory:
		return fmt.Errorf("%w: %w: %w", dedup.ErrUnavailable, errNoLocks, err)
	case unavailable(code), code == "" && (lost || errors.Is(err, errNoTables)):
		return fmt.Errorf("%w: %w", dedup.ErrUnavailable, err)
	}
	return err
}

// unavailable reports whether a code says nothing about the event.
func unavailable(code string) bool {
	switch code {
	case "":
		return false
	case codeNoTable, codeNoSchema, codeNoRight, codeReadOnly, codeShutdown, codeCrash, codeNotYet, codeIdleEnded:
		return true
	}
	class := code[:min(2, len(code))]
	return class == "08" || class == "53" || class == "58" || class == "XX"
}
