package pgoutbox_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/outbox/pgoutbox"
)

// O-12: a relay that listens is woken by a commit that notifies, and learns that its connection is
// lost. Its connection is not one of the pool's. The channel is that of a whole database, and other
// tests notify and end sessions too.
func TestWake(t *testing.T) {
	pool := newPool(t, newDatabase(t), maxConns(2))
	require.NoError(t, pgoutbox.Migrate(t.Context(), pool))
	quiet := pgoutbox.New(pool)
	loud := pgoutbox.New(pool, pgoutbox.Notify())
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	woken, ended := make(chan struct{}, 100), make(chan error, 1)
	listen := func() {
		go func() { ended <- quiet.Wake(ctx, func() { woken <- struct{}{} }) }()
		<-woken // it listens
	}
	listen()
	require.Zero(t, pool.Stat().TotalConns()-pool.Stat().IdleConns(), "it took a connection of the pool")
	add(t, pool, quiet, entry("A", "1"))
	tx := begin(t, pool)
	require.NoError(t, loud.Add(t.Context(), tx, entry("A", "2")))
	require.Empty(t, woken)
	require.NoError(t, tx.Commit(t.Context()))
	for range 5 { // also for transactions nearby that did not notify
		select {
		case <-woken:
		case <-time.After(time.Minute):
			require.Fail(t, "it was not woken again")
		}
	}
	require.Len(t, fetch(t, quiet), 2)

	_, err := pool.Exec(t.Context(), `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
		WHERE query = 'LISTEN idem_outbox' AND pid <> pg_backend_pid() AND datname = current_database()`)
	require.NoError(t, err)
	require.ErrorContains(t, <-ended, "57P01")
	listen()
	cancel()
	require.NoError(t, <-ended)
}

// O-12: commits that notify hold a lock of the whole server, so few of many transactions notify.
func TestNotifyIsRare(t *testing.T) {
	_, pool := newBox(t)
	loud := pgoutbox.New(pool, pgoutbox.Notify())
	listener, err := pool.Acquire(t.Context())
	require.NoError(t, err)
	defer listener.Release()
	_, err = listener.Exec(t.Context(), "LISTEN idem_outbox")
	require.NoError(t, err)
	began, ours := time.Now(), map[uint32]bool{} // other tests share the database
	for i := range 100 {
		tx := begin(t, pool)
		ours[tx.Conn().PgConn().PID()] = true
		require.NoError(t, loud.Add(t.Context(), tx, entry("A", fmt.Sprint(i))))
		require.NoError(t, tx.Commit(t.Context()))
	}
	most := int(time.Since(began)/(10*time.Millisecond)) + 1
	_, err = pool.Exec(t.Context(), "SELECT pg_notify('idem_outbox', $1)", t.Name())
	require.NoError(t, err)
	heard := 0
	for {
		n, err := listener.Conn().WaitForNotification(t.Context())
		require.NoError(t, err)
		if n.Payload == t.Name() {
			break
		}
		if ours[n.PID] {
			heard++
		}
	}
	require.Positive(t, heard)
	require.LessOrEqual(t, heard, most)
}
