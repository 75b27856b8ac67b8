package postgres_test

import (
	"context"
	"database/sql"
	"fmt"
	"testing"
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/dedup/sqlstore"
	"github.com/idem-go/idem/dedup/sqlstore/postgres"
	"github.com/stretchr/testify/require"
)

// P-18: no transaction of the store cancels its COMMIT, as it would count without the synchronous
// standbys. A deferred trigger makes each COMMIT slow here, as a standby that is away would.
func TestSlowCommits_P18(t *testing.T) {
	for name, c := range map[string]struct {
		table string
		sleep time.Duration
		limit time.Duration // of the call
		call  func(ctx context.Context, s *sqlstore.Store) error
		err   error
	}{
		"claim": {
			table: "idempotency_keys", sleep: 2 * time.Second, limit: 500 * time.Millisecond, err: dedup.ErrUnavailable,
			call: func(ctx context.Context, s *sqlstore.Store) error {
				return s.Claim(ctx, dedup.NewToken(), time.Minute, requests("e"), make([]dedup.Answer, 1))
			},
		},
		"transaction of a handler": {
			table: "processed_events", sleep: 12 * time.Second, limit: time.Minute, err: dedup.ErrUnknownCommit, // after 10 s
			call: func(ctx context.Context, s *sqlstore.Store) error {
				return s.ClaimTx(ctx, time.Minute, requests("e"), make([]dedup.Answer, 1),
					func(*sql.Tx) ([]dedup.Completion, error) { return nil, nil })
			},
		},
	} {
		for driver, registered := range drivers {
			t.Run(name+"/"+driver, func(t *testing.T) {
				t.Parallel()
				// The interval would end a trigger, but not the wait for a standby.
				db, err := sql.Open(registered, newTables(t)+"&client_connection_check_interval=0")
				require.NoError(t, err)
				db.SetMaxOpenConns(2)
				t.Cleanup(func() { _ = db.Close() })
				_, err = db.ExecContext(t.Context(), fmt.Sprintf(`
					CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(%f); RETURN NULL; END $$;
					CREATE CONSTRAINT TRIGGER slow AFTER INSERT ON %s DEFERRABLE INITIALLY DEFERRED
						FOR EACH ROW EXECUTE FUNCTION slow()`, c.sleep.Seconds(), c.table))
				require.NoError(t, err)
				ctx, cancel := context.WithTimeout(t.Context(), c.limit)
				defer cancel()
				began := time.Now()
				s := postgres.New(db)
				require.ErrorIs(t, c.call(ctx, s), c.err)
				require.Less(t, time.Since(began), c.sleep, "the caller does not wait")
				require.Equal(t, 1, db.Stats().InUse, "the COMMIT has its connection")
				require.NoError(t, s.Close()) // waits for it
				require.Zero(t, db.Stats().InUse)
				var n int
				require.NoError(t, db.QueryRowContext(t.Context(), "SELECT count(*) FROM "+c.table).Scan(&n))
				require.Equal(t, 1, n, "the commit went on")
			})
		}
	}
}
