package pgstore

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// endTimeout bounds COMMIT and ROLLBACK, which the caller's context does not (P-16).
const endTimeout = 10 * time.Second

type poolConn = pgxpool.Conn

// session is a connection on loan from the pool. The zero value is none.
type session struct{ *poolConn }

// end returns the connection to its pool without a transaction. Rolling back is cheaper than the new connection that the
// pool would make instead, and the caller's context may have ended (P-16).
func (s session) end(ctx context.Context) {
	if c := s.Conn(); !c.IsClosed() && c.PgConn().TxStatus() != 'I' {
		bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
		defer cancel()
		_, _ = c.Exec(bounded, "rollback") // if it fails the pool closes the connection
	}
	s.Release()
}

// Release returns the connection to its pool. It closes a connection to a standby, or to a former primary, before. Such
// a session would fail for as long as the pool keeps it, which is an hour by default. A new one may find the primary of
// today (P-26). A pooler may keep back the parameters that show this: then its own settings decide.
func (s session) Release() {
	if c := s.Conn(); !c.IsClosed() {
		parameter := c.PgConn().ParameterStatus
		if parameter("in_hot_standby") == "on" || parameter("default_transaction_read_only") == "on" {
			ctx, cancel := context.WithTimeout(context.Background(), endTimeout)
			defer cancel()
			_ = c.Close(ctx) // closed in any case
		}
	}
	s.poolConn.Release()
}
