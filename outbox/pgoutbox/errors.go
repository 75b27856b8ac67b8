package pgoutbox

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/internal/pgschema"
)

var (
	errNoTables = errors.New("no schema of the search path has them")
	errNoLocks  = errors.New("the server has no room for more locks: raise max_locks_per_transaction, or add fewer aggregates at once")
	errNoTx     = errors.New("pgoutbox: no transaction: tx is nil (a request without a key has none, see httpidem.TxFrom)")
	errNoPool   = errors.New("pgoutbox: New was given no pool")
)

// The SQLSTATEs that are told apart.
const (
	codeNoTable   = "42P01"
	codeNoSchema  = "3F000"
	codeNoRight   = "42501"
	codeNoDB      = "3D000"
	codeNoLogin   = "28000"
	codePassword  = "28P01"
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

// failed says what failed, and what to do where there is something.
func (o *Outbox) failed(verb string, err error) error {
	var cfg *pgx.ConnConfig
	if o.pool != nil {
		cfg = o.pool.Config().ConnConfig
	}
	return o.explain(verb, cfg, err)
}

// explain is failed for a session of cfg.
func (o *Outbox) explain(verb string, cfg *pgx.ConnConfig, err error) error {
	if err == nil || errors.Is(err, errNoPool) {
		return err
	}
	role, database := "", ""
	if cfg != nil {
		role, database = cfg.User, cfg.Database
	}
	setup := &dedup.SetupError{Err: err}
	switch code := sqlState(err); {
	case errors.Is(err, errNoTables), code == codeNoTable, code == codeNoSchema:
		setup.Problem, setup.Fix = "the tables of the outbox are missing", o.migrateFix(cfg)
	case code == codeNoRight:
		setup.Problem, setup.Fix = fmt.Sprintf("role %q lacks rights on the tables of the outbox", role), o.grants(verb, role)
	case code == codeNoDB:
		setup.Problem, setup.Fix = fmt.Sprintf("the database %q does not exist", database), "create it, then "+o.migrateFix(cfg)
	case code == codePassword, code == codeNoLogin:
		setup.Problem, setup.Fix = fmt.Sprintf("the server refuses to log in role %q", role), "give it a password and a line in pg_hba.conf that the server takes"
	default:
		return fmt.Errorf("pgoutbox: %s: %w", verb, err)
	}
	return fmt.Errorf("pgoutbox: %s: %w", verb, setup)
}

// migrateFix is the command that makes the tables, or brings them up to date.
func (o *Outbox) migrateFix(cfg *pgx.ConnConfig) string {
	return "run `" + pgschema.MigrateCommand(cfg, o.schema, "--outbox") + "`, or pgoutbox.Migrate"
}

// grants are the statements that give a role the rights of a verb, as the documentation of the package has them.
func (o *Outbox) grants(verb, role string) string {
	on, to := "", " TO "+pgx.Identifier{role}.Sanitize()
	if s := o.sql.Load(); s != nil {
		on = pgx.Identifier{s.schema}.Sanitize() + "."
	}
	switch verb {
	case "migrate":
		return "migrate as the owner of the tables"
	case "add":
		return "run as their owner: GRANT INSERT ON " + on + "idem_outbox" + to
	}
	return "run as their owner: GRANT SELECT, UPDATE, DELETE ON " + on + "idem_outbox" + to + "; GRANT SELECT, UPDATE ON " + on + "idem_outbox_shards" + to +
		"; GRANT SELECT, INSERT, UPDATE, DELETE ON " + on + "idem_outbox_relays" + to + "; GRANT SELECT ON " + on + "idem_outbox_schema" + to
}

// addError is explain for statements in a transaction that handles an event. It matches [dedup.ErrUnavailable] if the event is not
// to blame, which must then not be given up: its entries were checked before.
func (o *Outbox) addError(ctx context.Context, tx pgx.Tx, err error) error {
	if err == nil {
		return nil
	}
	code, lost := sqlState(err), ctx.Err() == nil && tx.Conn() != nil && tx.Conn().IsClosed()
	var cfg *pgx.ConnConfig
	if tx.Conn() != nil {
		cfg = tx.Conn().Config()
	}
	err = o.explain("add", cfg, err)
	switch {
	case code == codeNoMemory:
		return fmt.Errorf("%w: %w: %w", dedup.ErrUnavailable, errNoLocks, err)
	case errors.Is(err, dedup.ErrUnavailable): // it lacks something
	case unavailable(code), code == "" && lost:
		return fmt.Errorf("%w: %w", dedup.ErrUnavailable, err)
	}
	return err
}

// unavailable reports whether a code says nothing about the event.
func unavailable(code string) bool {
	switch code {
	case "":
		return false
	case codeReadOnly, codeShutdown, codeCrash, codeNotYet, codeIdleEnded:
		return true
	}
	class := code[:min(2, len(code))]
	return class == "08" || class == "53" || class == "58" || class == "XX"
}
