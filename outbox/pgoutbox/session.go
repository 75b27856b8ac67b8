package pgoutbox

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/internal/pgschema"
)

// beginSQL sets the isolation level, and so overrides default_transaction_isolation (P-02).
const beginSQL = "begin isolation level read committed"

// querier is a pool or a transaction.
type querier interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// statements returns the texts for the schema that has the tables. The schema is looked up once,
// with q.
func (o *Outbox) statements(ctx context.Context, q querier) (*statements, error) {
	if s := o.sql.Load(); s != nil {
		return s, nil
	}
	schema := o.schema
	if schema == "" {
		err := q.QueryRow(ctx, pgschema.FindSQL("idem_outbox")).Scan(&schema)
		if errors.Is(err, pgx.ErrNoRows) {
			return nil, errNoTables
		}
		if err != nil {
			return nil, err
		}
	}
	s := newStatements(schema)
	o.sql.Store(s)
	return s, nil
}

// pooled returns the statements, for a method that uses the pool.
func (o *Outbox) pooled(ctx context.Context) (*statements, error) {
	switch {
	case o.wrong != nil:
		return nil, o.wrong
	case o.pool == nil:
		return nil, errNoPool
	}
	return o.statements(ctx, o.pool)
}

// atomic runs the statements that build queues, in one transaction and one round trip. After an
// error, the pool closes the connection, which ends the transaction.
func (o *Outbox) atomic(ctx context.Context, build func(*statements, *pgx.Batch)) error {
	q, err := o.pooled(ctx)
	if err != nil {
		return err
	}
	conn, err := o.pool.Acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	var b pgx.Batch
	b.Queue(beginSQL)
	build(q, &b)
	b.Queue("commit")
	return conn.SendBatch(ctx, &b).Close()
}

// target describes the database of cfg, for errors.
func (o *Outbox) target(cfg *pgx.ConnConfig) target {
	t := target{cfg: cfg, option: o.schema}
	if s := o.sql.Load(); s != nil {
		t.found = s.schema
	}
	return t
}

// failed returns the error of a method that uses the pool.
func (o *Outbox) failed(verb string, err error) error {
	var cfg *pgx.ConnConfig
	if o.pool != nil {
		cfg = o.pool.Config().ConnConfig
	}
	return o.target(cfg).explain(verb, err)
}

// addError returns the error of adding in tx. The error matches [dedup.ErrUnavailable] if the event
// that a handler processes is not to blame: the entries were checked before. The event is not given
// up then.
func (o *Outbox) addError(ctx context.Context, tx pgx.Tx, err error) error {
	if err == nil {
		return nil
	}
	code, lost := sqlState(err), ctx.Err() == nil && tx.Conn() != nil && tx.Conn().IsClosed()
	var cfg *pgx.ConnConfig
	if tx.Conn() != nil {
		cfg = tx.Conn().Config()
	}
	err = o.target(cfg).explain("add", err)
	switch {
	case code == codeNoMemory:
		return fmt.Errorf("%w: %w: %w", dedup.ErrUnavailable, errNoLocks, err)
	case errors.Is(err, dedup.ErrUnavailable): // something is not set up
	case unavailable(code), code == "" && lost:
		return fmt.Errorf("%w: %w", dedup.ErrUnavailable, err)
	}
	return err
}
