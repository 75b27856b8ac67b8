package pgstore

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/internal/testenv"
)

// P-18: a commit that takes too long is not cancelled, so that it does not count without the
// synchronous standby. Other statements are cancelled, and the pool replaces the connection.
func TestACommitIsNotCancelled_P18(t *testing.T) {
	for name, guarded := range map[string]bool{"commit": true, "another statement": false} {
		t.Run(name, func(t *testing.T) {
			cfg, err := pgxpool.ParseConfig(testenv.Postgres(t))
			require.NoError(t, err)
			Configure(cfg)
			pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
			require.NoError(t, err)
			t.Cleanup(pool.Close)
			_, err = pool.Exec(t.Context(), "CREATE TABLE ended (name text)")
			require.NoError(t, err)
			conn, err := pool.Acquire(t.Context())
			require.NoError(t, err)
			ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
			defer cancel()
			slow := func() error {
				_, err := conn.Exec(ctx, "SELECT pg_sleep(1); INSERT INTO ended VALUES ('e')")
				return err
			}
			if guarded {
				err = withoutCancel(conn.Conn(), slow)
			} else {
				err = slow()
			}
			require.ErrorIs(t, err, context.DeadlineExceeded)
			conn.Release()
			count := func() (n int) {
				require.NoError(t, pool.QueryRow(t.Context(), "SELECT count(*) FROM ended").Scan(&n))
				return n
			}
			if guarded {
				require.Eventually(t, func() bool { return count() == 1 }, 5*time.Second, 50*time.Millisecond)
				return
			}
			require.Never(t, func() bool { return count() > 0 }, 2*time.Second, 100*time.Millisecond)
		})
	}
}
