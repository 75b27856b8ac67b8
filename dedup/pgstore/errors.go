package pgstore

import (
	"errors"
	"fmt"

	"github.com/idem-go/idem/dedup"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// ErrTxOwned is the result of Commit and Rollback of a handler's transaction. The store ends the
// transaction after the handler has returned. ErrTxOwned matches [dedup.ErrTxEnded].
var ErrTxOwned = fmt.Errorf("pgstore: only the store may end the transaction: %w", dedup.ErrTxEnded)

var (
	errOption   = errors.New("pgstore: option")
	errNoTables = errors.New("no schema of the search path has the tables")
	errLayout   = errors.New("layout")
	errNoAnswer = errors.New("the keys kept changing during the call")
	errUnknown  = errors.New("an unknown release wrote the record")
)

// The SQLSTATEs that the store handles.
const (
	codeSerialization = "40001"
	codeDeadlock      = "40P01"
	codeNoLock        = "55P03"
	codeNoTable       = "42P01"
	codeNoColumn      = "42703"
	codeNoSchema      = "3F000"
	codeNoRight       = "42501"
	codeNoDatabase    = "3D000"
	codeNoLogin       = "28000"
	codePassword      = "28P01"
	codeNoUnique      = "42P10"
	codeZero          = "22012" // division by zero
	codeNoSavepoint   = "3B001"
	codeReadOnly      = "25006"
	codeFull          = "53200" // no memory, or no room in the table of locks
	codeCanceled      = "57014" // a time-out of the statement
)

// sqlState returns the code of the server's error in err, or "".
func sqlState(err error) string {
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		return pg.Code
	}
	return ""
}

// lostRace reports whether a repeat may succeed in a moment.
func lostRace(err error) bool {
	switch sqlState(err) {
	case codeSerialization, codeDeadlock, codeNoLock:
		return true
	}
	return errors.Is(err, errNoAnswer)
}

// infrastructure reports whether code is about the server and not about the statement (P-26).
func infrastructure(code string) bool {
	switch code {
	case "":
		return false
	case codeReadOnly, "57P01", "57P02", "57P03", "57P05":
		return true
	}
	class := code[:min(2, len(code))]
	return class == "08" || class == "53" || class == "58" || class == "XX"
}

func contended(err error) error {
	return fmt.Errorf("pgstore: %w: %w", dedup.ErrContended, err)
}

// commitError explains an error of COMMIT. An ordinary error of the server means a rollback. After
// any other error the transaction may have been committed (P-11). The function pgconn.SafeToRetry
// does not help. If a connection breaks after COMMIT was sent, pgx 5.12 reports a connection closed
// before.
func commitError(err error) error {
	var pg *pgconn.PgError
	switch {
	case errors.As(err, &pg) && severity(pg) == "ERROR":
		if infrastructure(pg.Code) {
			return fmt.Errorf("pgstore: commit: %w: %w", dedup.ErrUnavailable, err)
		}
		return fmt.Errorf("pgstore: commit: %w", err)
	case errors.Is(err, pgx.ErrTxCommitRollback):
		return fmt.Errorf("pgstore: commit: %w", err)
	}
	return fmt.Errorf("pgstore: commit: %w: %w: %w", dedup.ErrUnavailable, dedup.ErrUnknownCommit,
		err)
}

func severity(pg *pgconn.PgError) string {
	if pg.SeverityUnlocalized != "" {
		return pg.SeverityUnlocalized
	}
	return pg.Severity
}

// registerError is a refusal by the store, not a failure of the store.
type registerError struct {
	kind error
	text string
}

func (e *registerError) Error() string {
	return fmt.Sprintf("pgstore: register: %v: %s", e.kind, e.text)
}

func (e *registerError) Unwrap() error { return e.kind }
