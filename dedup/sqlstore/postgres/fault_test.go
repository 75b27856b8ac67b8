package postgres_test

import (
	"database/sql"
	"net/url"
	"testing"
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/dedup/sqlstore"
	"github.com/idem-go/idem/dedup/sqlstore/internal/cuttest"
	"github.com/idem-go/idem/dedup/sqlstore/internal/endtest"
	"github.com/stretchr/testify/require"
)

func requests(ids ...string) (reqs []dedup.Request) {
	for _, id := range ids {
		reqs = append(reqs, dedup.Request{Key: dedup.Key{Scope: "s", Type: "t", ID: id}, Retention: time.Hour})
	}
	return reqs
}

// Commit and Rollback of the lent transaction reach no database: the event has neither effect nor record, and runs again.
func TestHandlerThatEndsTheTransaction(t *testing.T) {
	for name, driver := range drivers {
		for verb, end := range map[string]func(*sql.Tx) error{"commit": (*sql.Tx).Commit, "rollback": (*sql.Tx).Rollback} {
			t.Run(name+"/"+verb, func(t *testing.T) {
				s := open(t, driver, newTables(t))
				answers := make([]dedup.Answer, 1)
				err := s.ClaimTx(t.Context(), time.Minute, requests("a"), answers, func(tx *sql.Tx) ([]dedup.Completion, error) {
					require.NoError(t, addEffect(t.Context(), tx, "a"))
					require.ErrorIs(t, end(tx), sqlstore.ErrTxOwned)
					require.ErrorIs(t, addEffect(t.Context(), tx, "a"), sql.ErrTxDone)
					return nil, nil
				})
				require.ErrorIs(t, err, dedup.ErrTxEnded)
				require.NotErrorIs(t, err, dedup.ErrUnavailable)
				require.Zero(t, countEffects(t, s, "a"))
				require.NoError(t, s.ClaimTx(t.Context(), time.Minute, requests("a"), answers,
					func(tx *sql.Tx) ([]dedup.Completion, error) { return nil, addEffect(t.Context(), tx, "a") }))
				require.Equal(t, dedup.Fresh, answers[0].Verdict)
				require.Equal(t, 1, countEffects(t, s, "a"))
			})
		}
	}
}

// A worker that was suspended during its handler finds its session ended. That is no failure of the
// event.
func TestSessionEndedWhileSuspended(t *testing.T) {
	for name, driver := range drivers {
		t.Run(name, func(t *testing.T) {
			s := open(t, driver, newTables(t))
			answers := make([]dedup.Answer, 1)
			err := s.ClaimTx(t.Context(), time.Minute, requests("a"), answers, func(tx *sql.Tx) ([]dedup.Completion, error) {
				require.NoError(t, addEffect(t.Context(), tx, "a"))
				var pid int
				require.NoError(t, tx.QueryRowContext(t.Context(), "SELECT pg_backend_pid()").Scan(&pid))
				_, err := tx.ExecContext(t.Context(), "SET LOCAL idle_in_transaction_session_timeout = '50ms'")
				require.NoError(t, err)
				require.Eventually(t, func() bool {
					var n int
					err := siteOf(s).db.QueryRowContext(t.Context(),
						"SELECT count(*) FROM pg_stat_activity WHERE pid = $1", pid).Scan(&n)
					return err == nil && n == 0
				}, 30*time.Second, 10*time.Millisecond, "the server ends the session")
				return nil, nil
			})
			require.ErrorIs(t, err, dedup.ErrUnavailable)
			require.NotErrorIs(t, err, dedup.ErrUnknownCommit)
			require.Zero(t, countEffects(t, s, "a"))
		})
	}
}

// P-11: the outcome of a COMMIT on a connection that was cut.
func TestConnectionCutAtCommit_P11(t *testing.T) {
	for name, driver := range drivers {
		t.Run(name, func(t *testing.T) {
			cuttest.AtCommit(t, func(t testing.TB) cuttest.Site {
				u, err := url.Parse(newTables(t))
				require.NoError(t, err)
				return cuttest.Site{
					Addr: u.Host, Insert: addEffect,
					Open: func(t testing.TB, addr string) *sqlstore.Store {
						at := *u
						at.Host = addr
						return open(t, driver, at.String())
					},
					Count: func(t testing.TB, s *sqlstore.Store, id string) int {
						return countEffects(t, s, id)
					},
				}
			})
		})
	}
}

// A statement of the store that the server stops is an outage, not an answer: a time-out of the role,
// or an order of a person. That of a handler is its own error.
func TestStoppedStatement(t *testing.T) {
	for name, driver := range drivers {
		t.Run(name, func(t *testing.T) {
			at, err := url.Parse(newTables(t))
			require.NoError(t, err)
			q := at.Query()
			q.Set("statement_timeout", "100")
			at.RawQuery = q.Encode()
			s := open(t, driver, at.String())
			lock, err := siteOf(s).db.Begin()
			require.NoError(t, err)
			defer func() { _ = lock.Rollback() }()
			_, err = lock.Exec("LOCK TABLE deferred_queues")
			require.NoError(t, err)
			_, err = s.Queues(t.Context(), dedup.DeferredPartition{Scope: "s", Topic: "t"}, "", 10)
			require.ErrorIs(t, err, dedup.ErrUnavailable)
			err = s.ClaimTx(t.Context(), time.Minute, requests("a"), make([]dedup.Answer, 1),
				func(tx *sql.Tx) ([]dedup.Completion, error) {
					_, err := tx.Exec("SELECT pg_sleep(10)")
					return nil, err
				})
			require.ErrorContains(t, err, "statement timeout")
			require.NotErrorIs(t, err, dedup.ErrUnavailable)
		})
	}
}

// A failure in a transaction that the handler has begun, or a method, does not hide the COMMIT of
// the first one (rule 12).
func TestHiddenCommit_Rule12(t *testing.T) {
	for name, driver := range drivers {
		for end, c := range map[string]struct {
			run       func(*testing.T, *sql.Tx) error
			committed bool
		}{
			"a second transaction": {func(t *testing.T, tx *sql.Tx) error {
				return endtest.All(t, tx, "COMMIT", "BEGIN", "SELECT 1/0")
			}, true},
			"the failure alone": {func(t *testing.T, tx *sql.Tx) error {
				return endtest.All(t, tx, "SELECT 1/0")
			}, false},
			"the end of the session": {func(t *testing.T, tx *sql.Tx) error {
				return endtest.All(t, tx, "COMMIT", "SELECT pg_terminate_backend(pg_backend_pid())")
			}, true},
			"the end of the session alone": {func(t *testing.T, tx *sql.Tx) error {
				return endtest.All(t, tx, "SELECT pg_terminate_backend(pg_backend_pid())")
			}, false},
			"the end of the session, and a method": {func(t *testing.T, tx *sql.Tx) error {
				err := endtest.All(t, tx, "COMMIT", "SELECT pg_terminate_backend(pg_backend_pid())")
				_ = tx.Rollback()
				return err
			}, true},
			"the end of the session alone, and a method": {func(t *testing.T, tx *sql.Tx) error {
				err := endtest.All(t, tx, "SELECT pg_terminate_backend(pg_backend_pid())")
				_ = tx.Rollback()
				return err
			}, false},
			"a method": {func(t *testing.T, tx *sql.Tx) error {
				require.NoError(t, endtest.All(t, tx, "COMMIT"))
				return tx.Rollback()
			}, true},
			"the method alone": {func(_ *testing.T, tx *sql.Tx) error { return tx.Rollback() }, false},
		} {
			t.Run(name+"/"+end, func(t *testing.T) {
				s := open(t, driver, newTables(t))
				_ = endtest.Group(t, s, c.committed, func(tx *sql.Tx) error { return c.run(t, tx) })
			})
		}
	}
}

// unserializable is a statement that fails as after a conflict with another transaction.
const unserializable = "DO $$ BEGIN RAISE SQLSTATE '40001'; END $$"

func TestSerializationFailureIsRepeated(t *testing.T) {
	for name, driver := range drivers {
		t.Run(name, func(t *testing.T) {
			endtest.Repeats(t, open(t, driver, newTables(t)), unserializable)
		})
	}
}

// P-13: a handler that has sent COMMIT as SQL does not run again after a serialization failure, and
// the error tells of the COMMIT.
func TestFailureBehindACommit_P13(t *testing.T) {
	for name, driver := range drivers {
		for end, statements := range map[string][]string{
			"COMMIT":               {"COMMIT", unserializable},
			"a second transaction": {"COMMIT", "BEGIN", unserializable},
			"another failure":      {"COMMIT", "SELECT 1/0"},
		} {
			t.Run(name+"/"+end, func(t *testing.T) {
				endtest.Single(t, open(t, driver, newTables(t)), statements...)
			})
		}
	}
}

func TestOpenRowsAreAnError(t *testing.T) {
	for name, driver := range drivers {
		t.Run(name, func(t *testing.T) {
			endtest.OpenRows(t, open(t, driver, newTables(t)), "SELECT generate_series(1, 100000)", false)
		})
	}
}

// The loss of the connection during a COMMIT as SQL does not hide it: the COMMIT goes on. The same is
// true of a handler that is abandoned (rule 12).
func TestSlowCommitAsSQL_Rule12(t *testing.T) {
	slow := endtest.Slow{
		Commit: "COMMIT", Self: "SELECT pg_backend_pid()",
		Asleep: "SELECT count(*) FROM pg_stat_activity WHERE pid = $1 AND wait_event = 'PgSleep'",
	}
	for name, driver := range drivers {
		for end, run := range map[string]func(*testing.T, dedup.TxStore[*sql.Tx], *sql.DB){
			"lost": slow.Lost, "abandoned": slow.Abandoned,
			"lost and rolled back": slow.LostAndRolledBack,
		} {
			t.Run(name+"/"+end, func(t *testing.T) {
				s := open(t, driver, newTables(t))
				db := siteOf(s).db
				_, err := db.ExecContext(t.Context(), `
					CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
						FOR i IN 1..2 LOOP -- the driver's request to cancel ends the first turn
							BEGIN
								PERFORM pg_sleep(1);
							EXCEPTION WHEN query_canceled THEN
							END;
						END LOOP;
						RETURN NULL;
					END $$;
					CREATE CONSTRAINT TRIGGER slow AFTER INSERT ON effects DEFERRABLE INITIALLY DEFERRED
						FOR EACH ROW EXECUTE FUNCTION slow()`)
				require.NoError(t, err)
				run(t, s, db)
			})
		}
	}
}

// A lock of another worker on a row of the group does not hide a COMMIT as SQL (rule 12).
func TestCommitBehindALockedRow_Rule12(t *testing.T) {
	for name, driver := range drivers {
		t.Run(name, func(t *testing.T) {
			s := open(t, driver, newTables(t))
			endtest.HeldRow(t, s, siteOf(s).db, "SELECT pg_terminate_backend(pg_backend_pid())")
		})
	}
}
