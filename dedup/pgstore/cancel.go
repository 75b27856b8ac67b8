package pgstore

import (
	"context"
	"errors"
	"net"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// A commit waits for the synchronous standbys. pgx gives up after a time-out and asks the server to
// cancel. Then the server ends its wait and shows the commit to everyone, although no standby has
// it. Workers would see a handled event, and a promoted standby would not know the event. So the
// store sends no cancel request during COMMIT. The server goes on waiting, and the event is Busy
// until a standby is back (P-18), or until the primary restarts.

// guardKey is the key of a connection's cancelGuard in its custom data.
const guardKey = "github.com/idem-go/idem/dedup/pgstore.cancelGuard"

var errCommitting = errors.New("pgstore: a commit is not cancelled")

// cancelGuard belongs to one connection.
type cancelGuard struct{ committing atomic.Bool }

// guardCommits gives each connection of a pool a cancelGuard. For a cancel request, pgx dials
// another connection, with the settings of the connection to cancel.
func guardCommits(cfg *pgxpool.Config) {
	before := cfg.BeforeConnect
	cfg.BeforeConnect = func(ctx context.Context, c *pgx.ConnConfig) error {
		if before != nil {
			if err := before(ctx, c); err != nil {
				return err
			}
		}
		g, dial, after := new(cancelGuard), c.DialFunc, c.AfterConnect
		c.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
			if g.committing.Load() {
				return nil, errCommitting
			}
			return dial(ctx, network, addr)
		}
		c.AfterConnect = func(ctx context.Context, conn *pgconn.PgConn) error {
			conn.CustomData()[guardKey] = g
			if after != nil {
				return after(ctx, conn)
			}
			return nil
		}
		return nil
	}
}

// guardOf returns the cancelGuard of a connection. A connection lacks one if Configure has not seen
// its pool, or if BeforeConnect of the pool was replaced since.
func guardOf(conn *pgx.Conn) (*cancelGuard, bool) {
	g, ok := conn.PgConn().CustomData()[guardKey].(*cancelGuard)
	return g, ok
}

func guarded(conn *pgx.Conn) bool {
	_, ok := guardOf(conn)
	return ok
}

// unguarded is the warning for connections without a cancelGuard, if the server has synchronous
// standbys.
const unguarded = "a COMMIT that waits for a synchronous standby may be cancelled, and then counts " +
	"without the standby: call pgstore.Configure on the configuration of the pool, after " +
	"BeforeConnect is set"

// withoutCancel runs commit, and sends no cancel request if commit runs out of time. A connection
// without a guard sends one, and [Store.Check] warns of it.
func withoutCancel(conn *pgx.Conn, commit func() error) error {
	g, ok := guardOf(conn)
	if !ok {
		return commit()
	}
	g.committing.Store(true)
	err := commit()
	if !conn.IsClosed() { // pgx sends the request from another goroutine, later
		g.committing.Store(false)
	}
	return err
}
