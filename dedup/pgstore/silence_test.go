package pgstore_test

import (
	"context"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/dedup/pgstore"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
)

// hole is a connection with writes that no longer arrive.
type hole struct {
	net.Conn
	open *atomic.Bool
}

func (h hole) Write(b []byte) (int, error) {
	if h.open.Load() {
		return len(b), nil
	}
	return h.Conn.Write(b)
}

// Rule 20: a server is gone, and its connections are still open. The store counts as unavailable
// within a bounded time. That holds also for callers with a context that never ends, as for a
// request that goes on after its client.
func TestSilentServer_Rule20(t *testing.T) {
	t.Parallel()
	url := newTables(t)
	for name, ask := range map[string]func(context.Context, *pgstore.Store) error{
		"ClaimTx": func(ctx context.Context, s *pgstore.Store) error {
			_, err := claimOne(ctx, s, noWait("a"), never(t))
			return err
		},
		"Claim": func(ctx context.Context, s *pgstore.Store) error {
			return s.Claim(ctx, dedup.NewToken(), time.Minute, []dedup.Request{request("b")}, make([]dedup.Answer, 1))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var open atomic.Bool
			conns := make(chan net.Conn, 100)
			pool := newPool(t, url, func(c *pgxpool.Config) {
				dial := c.ConnConfig.DialFunc
				c.ConnConfig.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
					conn, err := dial(ctx, network, addr)
					if err == nil {
						conns <- conn
					}
					return hole{conn, &open}, err
				}
			})
			s := pgstore.New(pool)
			s.SetSilence(time.Second)
			require.NoError(t, s.Look(t.Context(), []dedup.Request{noWait("warm")}, make([]dedup.Answer, 1)))
			open.Store(true)
			told := make(chan error, 1)
			go func() { told <- ask(context.WithoutCancel(t.Context()), s) }()
			defer func() { // the pool would wait for them
				open.Store(false)
				_ = (<-conns).Close()
			}()
			select {
			case err := <-told:
				require.ErrorIs(t, err, dedup.ErrUnavailable)
			case <-time.After(8 * time.Second):
				require.Fail(t, "waits for ever")
			}
		})
	}
}
