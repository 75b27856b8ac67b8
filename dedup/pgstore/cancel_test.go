package pgstore

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/dedup"
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
			pid := conn.Conn().PgConn().PID()
			lives := func() (found bool) {
				require.NoError(t, pool.QueryRow(t.Context(),
					"SELECT EXISTS (SELECT FROM pg_stat_activity WHERE pid = $1)", pid).Scan(&found))
				return found
			}
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
			require.Eventually(t, func() bool { return !lives() }, 5*time.Second, 20*time.Millisecond)
			require.Zero(t, count(), "the server has executed the statement to its end")
		})
	}
}

// P-18: a BeforeConnect that is set after Configure removes the guard of COMMIT. Check finds that out
// on a server with synchronous standbys.
func TestUnguardedPool_P18(t *testing.T) {
	for name, c := range map[string]struct {
		set     func(*pgxpool.Config)
		guarded bool
	}{
		"Configure": {set: Configure, guarded: true},
		"BeforeConnect, then Configure": {guarded: true, set: func(cfg *pgxpool.Config) {
			cfg.BeforeConnect = func(context.Context, *pgx.ConnConfig) error { return nil }
			Configure(cfg)
		}},
		"Configure, then BeforeConnect": {set: func(cfg *pgxpool.Config) {
			Configure(cfg)
			cfg.BeforeConnect = func(context.Context, *pgx.ConnConfig) error { return nil }
		}},
		"no Configure": {set: func(*pgxpool.Config) {}},
	} {
		t.Run(name, func(t *testing.T) {
			cfg, err := pgxpool.ParseConfig(testenv.Postgres(t))
			require.NoError(t, err)
			c.set(cfg)
			// The names of standbys belong to the server, which other tests use too: a function in the
			// schema of this test hides the one that Check reads them with.
			cfg.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
				_, err := conn.Exec(ctx, `CREATE OR REPLACE FUNCTION current_setting(name text) RETURNS text LANGUAGE sql AS $$
						SELECT CASE WHEN name = 'synchronous_standby_names' THEN 'heir' ELSE pg_catalog.current_setting(name) END $$;
					SELECT set_config('search_path', pg_catalog.current_setting('search_path') || ', pg_catalog', false)`)
				return err
			}
			pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
			require.NoError(t, err)
			t.Cleanup(pool.Close)
			require.NoError(t, Migrate(t.Context(), pool))
			warnings, err := New(pool).Check(t.Context())
			require.NoError(t, err)
			require.Equal(t, !c.guarded, slices.Contains(warnings, unguarded), warnings)
		})
	}
}

// P-18: no transaction of the store cancels its COMMIT. A deferred trigger makes each COMMIT wait here,
// as a standby that is away would.
func TestSlowCommits_P18(t *testing.T) {
	for name, c := range map[string]struct {
		table string
		ends  bool // the deadline of the call passes during the COMMIT; otherwise endTimeout does
		call  func(ctx context.Context, s *Store, r dedup.Request) error
	}{
		"claim": {
			table: "idempotency_keys", ends: true,
			call: func(ctx context.Context, s *Store, r dedup.Request) error {
				return s.Claim(ctx, dedup.NewToken(), time.Minute, []dedup.Request{r}, make([]dedup.Answer, 1))
			},
		},
		"transaction of a handler": {
			table: "processed_events",
			call: func(ctx context.Context, s *Store, r dedup.Request) error {
				return s.ClaimTx(ctx, time.Minute, []dedup.Request{r}, make([]dedup.Answer, 1),
					func(pgx.Tx) ([]dedup.Completion, error) { return nil, nil })
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg, err := pgxpool.ParseConfig(testenv.Postgres(t))
			require.NoError(t, err)
			Configure(cfg)
			// It would end a trigger, but not the wait for a standby.
			cfg.ConnConfig.RuntimeParams["client_connection_check_interval"] = "0"
			pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
			require.NoError(t, err)
			t.Cleanup(pool.Close)
			require.NoError(t, Migrate(t.Context(), pool))
			// The COMMIT takes one lock when it begins, and waits for the other one.
			began, standby := rand.Int32(), rand.Int32()
			_, err = pool.Exec(t.Context(), fmt.Sprintf(`
				CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
					PERFORM pg_advisory_xact_lock(%d);
					WHILE NOT pg_try_advisory_xact_lock(%d) LOOP PERFORM pg_sleep(0.01); END LOOP;
					RETURN NULL;
				END $$;
				CREATE CONSTRAINT TRIGGER slow AFTER INSERT ON %s DEFERRABLE INITIALLY DEFERRED
					FOR EACH ROW EXECUTE FUNCTION slow()`, began, standby, c.table))
			require.NoError(t, err)
			away, err := pool.Begin(t.Context())
			require.NoError(t, err)
			t.Cleanup(func() { _ = away.Rollback(context.WithoutCancel(t.Context())) })
			_, err = away.Exec(t.Context(), "SELECT pg_advisory_xact_lock($1)", standby)
			require.NoError(t, err)

			ctx := dueContext{t.Context(), make(chan struct{})}
			r := dedup.Request{Key: dedup.Key{Scope: "g", Type: "x", ID: "e"}, Retention: time.Hour}
			ended := make(chan error, 1)
			go func() { ended <- c.call(ctx, New(pool), r) }()
			require.Eventually(t, func() bool {
				var commits bool
				err := pool.QueryRow(t.Context(), "SELECT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND objid = $1::int8)", began).Scan(&commits)
				return err == nil && commits
			}, 30*time.Second, 5*time.Millisecond, "no COMMIT begins")
			if c.ends {
				close(ctx.due)
			}
			select {
			case err := <-ended:
				require.ErrorIs(t, err, dedup.ErrUnavailable)
			case <-time.After(3 * endTimeout):
				require.Fail(t, "the call waits for its COMMIT")
			}
			rows := func() (n int, err error) {
				err = pool.QueryRow(t.Context(), "SELECT count(*) FROM "+c.table).Scan(&n)
				return n, err
			}
			n, err := rows()
			require.NoError(t, err)
			require.Zero(t, n, "the COMMIT still waits")
			require.NoError(t, away.Rollback(t.Context()))
			require.Eventually(t, func() bool {
				n, err := rows()
				return err == nil && n == 1
			}, 30*time.Second, 50*time.Millisecond, "the COMMIT goes on")
		})
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
