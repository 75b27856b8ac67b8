package pgstore

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// ErrTxOwned is what Commit and Rollback of a handler's transaction return: the transaction belongs to the store,
// which ends it when the handler has returned. It matches [dedup.ErrTxEnded].
var ErrTxOwned = fmt.Errorf("pgstore: the transaction is the store's to end: %w", dedup.ErrTxEnded)

var (
	errOption   = errors.New("pgstore: option")
	errNoTables = errors.New("no schema of the search path has them")
	errLayout   = errors.New("layout")
	errNoAnswer = errors.New("keys kept changing while they were asked for")
	errUnknown  = errors.New("a record was written by a release that this one does not know (rule 35)")
)

// The SQLSTATEs that are told apart.
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
	codeFull          = "53200" // the memory of the server, or its table of locks
)

// sqlState returns the code of the server's error in err, or "".
func sqlState(err error) string {
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		return pg.Code
	}
	return ""
}

// lostRace reports whether the same thing may succeed in a moment.
func lostRace(err error) bool {
	switch sqlState(err) {
	case codeSerialization, codeDeadlock, codeNoLock:
		return true
	}
	return errors.Is(err, errNoAnswer)
}

// infrastructure reports whether a code says something about the server and nothing about the statement (P-26).
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

// giveBack returns conn to its pool, unless its server says that it does not write: a standby, or what was the primary
// once. Such a session would fail for as long as the pool keeps it, which is an hour by default; a new one may find the
// primary of today (P-26). A pooler may keep back what the server says: then its own settings decide.
func giveBack(conn *pgxpool.Conn) {
	if c := conn.Conn(); !c.IsClosed() {
		says := c.PgConn().ParameterStatus
		if says("in_hot_standby") == "on" || says("default_transaction_read_only") == "on" {
			ctx, cancel := context.WithTimeout(context.Background(), endTimeout)
			defer cancel()
			_ = c.Close(ctx) // closed in any case
		}
	}
	conn.Release()
}

// failed says what an error of one of the store's own statements means. Since the keys were validated, such an
// error is never the event's fault: it is ErrUnavailable, so that nothing is given up for it, unless the caller went
// away or the server refuses a value.
func (s *Store) failed(ctx context.Context, verb string, err error) error {
	var lost *dedup.LostError
	switch code := sqlState(err); {
	case err == nil:
		return nil
	case errors.As(err, &lost), errors.Is(err, errOption):
		return err
	case errors.Is(ctx.Err(), context.Canceled):
		if errors.Is(err, context.Canceled) {
			return fmt.Errorf("pgstore: %s: %w", verb, err)
		}
		return fmt.Errorf("pgstore: %s: %w (%w)", verb, context.Canceled, err)
	case strings.HasPrefix(code, "22"), strings.HasPrefix(code, "54"):
		return fmt.Errorf("pgstore: %s: %w", verb, err)
	}
	if setup := s.setupError(err); setup != nil {
		return fmt.Errorf("pgstore: %s: %w", verb, setup)
	}
	return fmt.Errorf("pgstore: %s: %w: %w", verb, dedup.ErrUnavailable, err)
}

// commitError says what an error of COMMIT means. An ordinary error of the server says that it rolled back; anything
// else leaves it open whether it committed (P-11). pgconn.SafeToRetry cannot tell: pgx 5.12 reports a connection that
// breaks after COMMIT was sent as one that was closed before.
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
	return fmt.Errorf("pgstore: commit: %w: %w: %w", dedup.ErrUnavailable, dedup.ErrUnknownCommit, err)
}

func severity(pg *pgconn.PgError) string {
	if pg.SeverityUnlocalized != "" {
		return pg.SeverityUnlocalized
	}
	return pg.Severity
}

// pause waits before another try: longer each time, and never the same for two that ran into each other.
func pause(ctx context.Context, try int) error {
	t := time.NewTimer(time.Duration(1+rand.IntN(10*try)) * time.Millisecond)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}
