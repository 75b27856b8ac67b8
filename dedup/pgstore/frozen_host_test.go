package pgstore_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/dedup/pgstore"
	"github.com/idem-go/idem/internal/netproxy"
)

// throughFreezer returns the setting that sends a pool through a proxy. After freeze, its
// connections stay open and carry no data. The function hangUp ends them.
func throughFreezer(t testing.TB, direct *pgxpool.Pool) (with configure, freeze, hangUp func()) {
	t.Helper()
	frozen, freeze := context.WithCancel(context.Background())
	ended, hangUp := context.WithCancel(context.Background())
	pipe := func(dst io.Writer, src io.Reader) {
		buffer := make([]byte, 32<<10)
		for {
			n, err := src.Read(buffer)
			if frozen.Err() != nil {
				<-ended.Done()
				return
			}
			if n > 0 {
				if _, failed := dst.Write(buffer[:n]); failed != nil {
					return
				}
			}
			if err != nil {
				return
			}
		}
	}
	cfg := direct.Config().ConnConfig
	proxy := netproxy.Start(t, fmt.Sprintf("%s:%d", cfg.Host, cfg.Port), func() netproxy.Link {
		return netproxy.Link{Up: pipe, Down: pipe}
	})
	t.Cleanup(hangUp) // before the proxy waits for its pipes
	t.Cleanup(freeze)
	return func(cfg *pgxpool.Config) {
		cfg.ConnConfig.TLSConfig, cfg.ConnConfig.Fallbacks = nil, nil
		cfg.ConnConfig.DialFunc = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "tcp", proxy.Addr())
		}
	}, freeze, hangUp
}

// Rule 10: a host is cut off in the middle of its transaction, and the server does not hear of it. The server ends the idle
// session when the handler's time and a few seconds are over. Then another host handles the event, once.
func TestFrozenHostLosesItsTransaction_Rule10(t *testing.T) {
	t.Parallel()
	there, direct := newStore(t)
	with, freeze, hangUp := throughFreezer(t, direct)
	cutOff := pgstore.New(newPool(t, direct.Config().ConnString(), with))

	held, gone := make(chan struct{}), make(chan error, 1)
	ctx, crash := context.WithCancel(t.Context())
	go func() {
		var a [1]dedup.Answer
		gone <- cutOff.ClaimTx(ctx, time.Second, []dedup.Request{request("e")}, a[:], func(tx pgx.Tx) ([]dedup.Completion, error) {
			if err := addEffect(ctx, tx, "cut off"); err != nil {
				return nil, err
			}
			freeze()
			close(held)
			return nil, nil // the COMMIT does not arrive
		})
	}()
	<-held
	began, busy := time.Now(), 0
	for {
		v, err := claimOne(t.Context(), there, request("e"), effect(t.Context(), "there"))
		require.NoError(t, err)
		if v == dedup.Fresh {
			break
		}
		require.Equal(t, dedup.Busy, v)
		require.Less(t, time.Since(began), time.Minute)
		busy++
	}
	require.NotZero(t, busy, "the first transaction was open")
	crash()
	require.Error(t, <-gone)
	hangUp()
	require.Zero(t, countEffects(t, direct, "cut off"))
	require.Equal(t, 1, countEffects(t, direct, "there"))
	healthy(t, direct)
}
