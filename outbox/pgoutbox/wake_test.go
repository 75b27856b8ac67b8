package pgoutbox_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/outbox/pgoutbox"
)

// O-12: a relay that listens is woken by a commit that notifies, and learns that its connection is
// lost. Its connection is not one of the pool's.
func TestWake(t *testing.T) {
	quiet, pool := newBox(t, maxConns(2))
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
	<-woken
	require.Len(t, fetch(t, quiet), 2)

	_, err := pool.Exec(t.Context(), `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
		WHERE query = 'LISTEN idem_outbox' AND pid <> pg_backend_pid() AND datname = current_database()`)
	require.NoError(t, err)
	require.ErrorContains(t, <-ended, "57P01")
	listen()
	cancel()
	require.NoError(t, <-ended)
}
