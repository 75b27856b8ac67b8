package sqlstore

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// slowConn is a connection with statements that end with their contexts.
type slowConn struct{ driver.Conn }

func (slowConn) ExecContext(
	ctx context.Context, _ string, _ []driver.NamedValue,
) (driver.Result, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// Rule 10: a statement of an abandoned run is cancelled after the server has read the statement,
// however soon after its begin the run is abandoned.
func TestLoan_Kill_Rule10(t *testing.T) {
	for name, c := range map[string]struct{ age, wait time.Duration }{
		"that has just begun": {0, settleTime},
		"a moment old":        {settleTime / 4, settleTime * 3 / 4},
		"that runs for long":  {time.Minute, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLoan(t.Context(), slowConn{}, &Dialect{})
				conn := &lentConn{l}
				ended := make(chan time.Time, 1)
				go func() {
					_, err := conn.ExecContext(context.Background(), "SELECT pg_sleep(60)", nil)
					if err == nil {
						t.Error("the statement succeeds")
					}
					ended <- time.Now()
				}()
				synctest.Wait()
				time.Sleep(c.age)
				killed := time.Now()
				l.kill()
				require.Equal(t, c.wait, (<-ended).Sub(killed))
				_, err := conn.ExecContext(context.Background(), "SELECT 1", nil)
				require.ErrorIs(t, err, sql.ErrTxDone)
			})
		})
	}
}
