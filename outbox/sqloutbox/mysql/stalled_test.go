package mysql_test

import (
	"bytes"
	"context"
	"database/sql"
	"net"
	"sync/atomic"
	"testing"
	"time"

	my "github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/internal/netproxy"
	"github.com/idem-go/idem/internal/testenv"
	"github.com/idem-go/idem/outbox"
	"github.com/idem-go/idem/outbox/sqloutbox/mysql"
)

// stall silences the connections of a pool at a statement, as a frozen host or a firewall does. All
// sockets stay open.
type stall struct {
	links netproxy.Links
	at    atomic.Pointer[string] // the begin of the statement; nil: none
	after bool                   // the statement still reaches the server
	over  chan struct{}          // closed at the statement
}

// newStalling returns another pool on the database of db, which stalls at a statement.
func newStalling(t *testing.T, db *sql.DB, after bool) (*stall, *sql.DB) {
	t.Helper()
	cfg, err := my.ParseDSN(testenv.MariaDB(t))
	require.NoError(t, err)
	require.NoError(t, db.QueryRowContext(t.Context(), "SELECT database()").Scan(&cfg.DBName))
	s := &stall{after: after, over: make(chan struct{})}
	cfg.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := s.links.DialContext(ctx, network, address)
		return &stalling{Conn: conn, by: s}, err
	}
	connector, err := my.NewConnector(cfg)
	require.NoError(t, err)
	pool := sql.OpenDB(connector)
	t.Cleanup(func() {
		s.links.Cut()
		_ = pool.Close() // its connections are broken
	})
	return s, pool
}

type stalling struct {
	net.Conn
	by *stall
}

// Write implements net.Conn.
func (c *stalling) Write(p []byte) (int, error) {
	at := c.by.at.Load()
	const header = 5 // the length of the packet, its number, and the command
	if at == nil || len(p) < header || !bytes.HasPrefix(p[header:], []byte(*at)) ||
		!c.by.at.CompareAndSwap(at, nil) {
		return c.Conn.Write(p)
	}
	if !c.by.after {
		c.by.links.Silence()
		close(c.by.over)
		return c.Conn.Write(p) // until the connection is closed
	}
	n, err := c.Conn.Write(p)
	c.by.links.Silence() // the driver reads the answer after this
	close(c.by.over)
	return n, err
}

// The context bounds the end of a transaction too. A server that does not answer COMMIT or ROLLBACK
// holds no relay.
func TestContextBoundsTheEndOfATransaction(t *testing.T) {
	db := newDB(t)
	fetch := func(ctx context.Context, box *mysql.Outbox) error {
		_, err := box.Fetch(ctx, outbox.Fetch{
			Shards: []outbox.Lease{{Shard: 1}}, Limit: 1, Bytes: 1,
		})
		return err
	}
	settle := func(ctx context.Context, box *mysql.Outbox) error {
		_, err := box.Settle(ctx, "r", []outbox.Lease{{Shard: 1}},
			outbox.Settlement{Sent: []outbox.RowID{{Seq: 1}}})
		return err
	}
	hold := func(ctx context.Context, box *mysql.Outbox) error {
		_, err := box.Hold(ctx, "r", time.Minute, true)
		return err
	}
	leave := func(ctx context.Context, box *mysql.Outbox) error { return box.Leave(ctx, "r") }
	retry := func(ctx context.Context, box *mysql.Outbox) error {
		return box.Retry(ctx, outbox.RowID{Seq: 1})
	}
	for name, c := range map[string]struct {
		call func(context.Context, *mysql.Outbox) error
		at   string
		want error
	}{
		"Fetch":  {fetch, "COMMIT", context.DeadlineExceeded},
		"Settle": {settle, "COMMIT", context.DeadlineExceeded},
		"Hold":   {hold, "COMMIT", context.DeadlineExceeded},
		"Leave":  {leave, "COMMIT", context.DeadlineExceeded},
		"Retry":  {retry, "ROLLBACK", outbox.ErrNotParked},
	} {
		t.Run(name, func(t *testing.T) {
			s, pool := newStalling(t, db, true)
			s.at.Store(&c.at)
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			const limit = 8 * time.Second
			cut := time.AfterFunc(limit, s.links.Cut)
			defer cut.Stop()
			began := time.Now()
			err := c.call(ctx, mysql.New(pool))
			require.Less(t, time.Since(began), limit, "the call ended with its connection only")
			require.ErrorIs(t, err, c.want)
			<-s.over
		})
	}
}

// O-05: a relay whose host vanished inside a call keeps the locks of its rows for some seconds only.
// The relay that takes its shards over then settles the same rows.
func TestVanishedRelayLeavesNoLocks_O05(t *testing.T) {
	hold := func(ctx context.Context, box *mysql.Outbox, _ []outbox.Lease, _ []outbox.RowID) error {
		_, err := box.Hold(ctx, "gone", time.Second, true)
		return err
	}
	settle := func(
		ctx context.Context, box *mysql.Outbox, held []outbox.Lease, rows []outbox.RowID,
	) error {
		_, err := box.Settle(ctx, "gone", held, outbox.Settlement{Sent: rows})
		return err
	}
	for name, c := range map[string]struct {
		call func(context.Context, *mysql.Outbox, []outbox.Lease, []outbox.RowID) error
		at   string
	}{
		"Settle": {settle, "DELETE o FROM"}, "Hold": {hold, "UPDATE idem_outbox_shards"},
	} {
		t.Run(name, func(t *testing.T) {
			db := newDB(t)
			box, tx := mysql.New(db), begin(t, db)
			require.NoError(t, box.Add(t.Context(), tx, entry("A", "1"), entry("", "2")))
			require.NoError(t, tx.Commit())
			s, pool := newStalling(t, db, false)
			gone := mysql.New(pool)
			held, err := gone.Hold(t.Context(), "gone", time.Second, true)
			require.NoError(t, err)
			rows := fetch(t, gone, held)
			require.Len(t, rows, 2)

			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			s.at.Store(&c.at)
			go func() { ended <- c.call(ctx, gone, held, rows) }()
			<-s.over
			defer func() { cancel(); require.Error(t, <-ended) }()
			require.Eventually(t, func() bool {
				held, err = box.Hold(t.Context(), "next", time.Minute, true)
				return err == nil && len(held) == outbox.Shards
			}, 15*time.Second, 100*time.Millisecond, "a shard stays locked")
			require.Equal(t, rows, fetch(t, box, held))
			require.Eventually(t, func() bool {
				lost, err := box.Settle(t.Context(), "next", held, outbox.Settlement{Sent: rows})
				return err == nil && len(lost) == 0
			}, 15*time.Second, 100*time.Millisecond, "a row stays locked")
			require.Empty(t, fetch(t, box, held))
		})
	}
}

// fetch returns the waiting rows of shards.
func fetch(t *testing.T, box *mysql.Outbox, held []outbox.Lease) (found []outbox.RowID) {
	t.Helper()
	rows, err := box.Fetch(t.Context(), outbox.Fetch{Shards: held, Limit: 100, Bytes: 1 << 20})
	require.NoError(t, err)
	for i := range rows {
		found = append(found, rows[i].RowID())
	}
	return found
}
