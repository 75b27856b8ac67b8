package pgstore

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// endTimeout bounds COMMIT and ROLLBACK, which the caller's context does not (P-16).
const endTimeout = 10 * time.Second

type poolConn = pgxpool.Conn

// session is a connection on loan from the pool. The zero value has no connection.
type session struct{ *poolConn }

// end returns the connection to the pool without a transaction. A rollback is cheaper than a new
// connection. The caller's context may have ended (P-16).
func (s session) end(ctx context.Context) {
	if c := s.Conn(); !c.IsClosed() && c.PgConn().TxStatus() != 'I' {
		bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
		defer cancel()
		_, _ = c.Exec(bounded, "rollback") // after an error the pool closes the connection
	}
	s.Release()
}

// Release returns the connection to the pool. If the server has become a standby or read-only,
// Release closes the connection first. Otherwise each use would fail for as long as the pool
// keeps the connection, an hour by default. A new connection may find the current primary
// (P-26). If a pooler hides the server's parameters, the pooler's own settings decide.
func (s session) Release() {
	if c := s.Conn(); !c.IsClosed() {
		parameter := c.PgConn().ParameterStatus
		if parameter("in_hot_standby") == "on" ||
			parameter("default_transaction_read_only") == "on" {
			ctx, cancel := context.WithTimeout(context.Background(), endTimeout)
			defer cancel()
			_ = c.Close(ctx) // closed in any case
		}
	}
	s.poolConn.Release()
}
