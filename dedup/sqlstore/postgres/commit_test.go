package postgres_test

import (
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
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
		ends  bool // the deadline of the call passes during the COMMIT; otherwise the store's limit of 10 s does
		call  func(ctx context.Context, s *sqlstore.Store) error
		err   error
	}{
		"claim": {
			table: "idempotency_keys", ends: true, err: dedup.ErrUnavailable,
			call: func(ctx context.Context, s *sqlstore.Store) error {
				return s.Claim(ctx, dedup.NewToken(), time.Minute, requests("e"), make([]dedup.Answer, 1))
			},
		},
		"transaction of a handler": {
			table: "processed_events", err: dedup.ErrUnknownCommit,
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
				dsn := newTables(t) + "&client_connection_check_interval=0"
				db, err := sql.Open(registered, dsn)
				require.NoError(t, err)
				db.SetMaxOpenConns(2)
				t.Cleanup(func() { _ = db.Close() })
				other, err := sql.Open(registered, dsn)
				require.NoError(t, err)
				t.Cleanup(func() { _ = other.Close() })
				// The COMMIT takes one lock when it begins, and waits for the other one.
				began, standby := rand.Int32(), rand.Int32()
				_, err = db.ExecContext(t.Context(), fmt.Sprintf(`
					CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
						PERFORM pg_advisory_xact_lock(%d);
						WHILE NOT pg_try_advisory_xact_lock(%d) LOOP PERFORM pg_sleep(0.01); END LOOP;
						RETURN NULL;
					END $$;
					CREATE CONSTRAINT TRIGGER slow AFTER INSERT ON %s DEFERRABLE INITIALLY DEFERRED
						FOR EACH ROW EXECUTE FUNCTION slow()`, began, standby, c.table))
				require.NoError(t, err)
				away, err := other.BeginTx(t.Context(), nil)
				require.NoError(t, err)
				t.Cleanup(func() { _ = away.Rollback() })
				_, err = away.ExecContext(t.Context(), fmt.Sprintf("SELECT pg_advisory_xact_lock(%d)", standby))
				require.NoError(t, err)

				ctx := dueContext{t.Context(), make(chan struct{})}
				s := postgres.New(db)
				ended := make(chan error, 1)
				go func() { ended <- c.call(ctx, s) }()
				require.Eventually(t, func() bool {
					var commits bool
					err := other.QueryRowContext(t.Context(), fmt.Sprintf(
						"SELECT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND objid = %d)", began)).Scan(&commits)
					return err == nil && commits
				}, 30*time.Second, 5*time.Millisecond, "no COMMIT begins")
				if c.ends {
					close(ctx.due)
				}
				select {
				case err := <-ended:
					require.ErrorIs(t, err, c.err)
				case <-time.After(30 * time.Second):
					require.Fail(t, "the call waits for its COMMIT")
				}
				require.Equal(t, 1, db.Stats().InUse, "the COMMIT has its connection")
				require.NoError(t, away.Rollback())
				require.NoError(t, s.Close()) // waits for the COMMIT
				require.Zero(t, db.Stats().InUse)
				var n int
				require.NoError(t, db.QueryRowContext(t.Context(), "SELECT count(*) FROM "+c.table).Scan(&n))
				require.Equal(t, 1, n, "the commit went on")
			})
		}
	}
}

// dueContext is a context whose deadline passes when the test closes due.
type dueContext struct {
	context.Context
	due chan struct{}
}

func (c dueContext) Done() <-chan struct{} { return c.due }

func (c dueContext) Err() error {
	select {
	case <-c.due:
		return context.DeadlineExceeded
	default:
		return nil
	}
}
