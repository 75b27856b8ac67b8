package sqlite_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/dedup"
)

// SQLite rolls the whole transaction back after some errors, and would commit each later statement
// alone. A handler that ignores such an error leaves no effect without a record. After another error
// the handler may go on (rule 12).
func TestRollbackThatIsIgnored_Rule12(t *testing.T) {
	exec := func(text string) func(*testing.T, *sql.Tx) error {
		return func(t *testing.T, tx *sql.Tx) error {
			_, err := tx.ExecContext(t.Context(), text)
			return err
		}
	}
	const numbers = "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n+1 FROM r WHERE n < 100000000) "
	cancelled := func(text string) func(*testing.T, *sql.Tx) error {
		return func(t *testing.T, tx *sql.Tx) error {
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			defer cancel()
			_, err := tx.ExecContext(ctx, text)
			require.ErrorIs(t, err, context.DeadlineExceeded)
			return err
		}
	}
	for name, c := range map[string]struct {
		run  func(*testing.T, *sql.Tx) error
		lost bool
	}{
		"a cancelled write": {cancelled("INSERT INTO effects " + numbers + "SELECT n FROM r"), true},
		"a cancelled query": {cancelled(numbers + "SELECT count(*) FROM r"), false},
		"OR ROLLBACK":       {exec("INSERT OR ROLLBACK INTO effects VALUES ('first')"), true},
		"OR ABORT":          {exec("INSERT INTO effects VALUES ('first')"), false},
		"RAISE ROLLBACK":    {exec("INSERT INTO refuses VALUES ('x')"), true},
		"RETURNING": {func(t *testing.T, tx *sql.Tx) error {
			var name string
			return tx.QueryRowContext(t.Context(), "INSERT OR ROLLBACK INTO effects VALUES ('first') RETURNING name").Scan(&name)
		}, true},
		"a prepared statement": {func(t *testing.T, tx *sql.Tx) error {
			stmt, err := tx.PrepareContext(t.Context(), "INSERT OR ROLLBACK INTO effects VALUES (?)")
			require.NoError(t, err)
			defer stmt.Close()
			_, err = stmt.ExecContext(t.Context(), "first")
			return err
		}, true},
		"a name that is missing": {exec("INSERT INTO nowhere VALUES (1)"), false},
	} {
		t.Run(name, func(t *testing.T) {
			s := newTxStore(t)
			_, err := openDB(t, pathOf(t, s)).ExecContext(t.Context(), "CREATE UNIQUE INDEX one_effect ON effects (name);"+
				"CREATE TABLE refuses (name text); CREATE TRIGGER refuses BEFORE INSERT ON refuses "+
				"BEGIN SELECT RAISE(ROLLBACK, 'on purpose'); END")
			require.NoError(t, err)
			reqs := []dedup.Request{{Key: dedup.Key{Scope: "s", Type: "t", ID: "a"}, Retention: time.Hour}}
			var late error
			err = s.ClaimTx(t.Context(), time.Minute, reqs, make([]dedup.Answer, 1),
				func(tx *sql.Tx) ([]dedup.Completion, error) {
					require.NoError(t, addEffect(t.Context(), tx, "first"))
					require.Error(t, c.run(t, tx))
					late = addEffect(t.Context(), tx, "late")
					return nil, nil
				})
			want := 1
			if c.lost {
				want = 0
			}
			require.Equal(t, want, countEffects(t, s, "late"))
			require.Equal(t, want, countEffects(t, s, "first"))
			require.Equal(t, c.lost, errors.Is(late, dedup.ErrTxAborted), late)
			require.Equal(t, c.lost, errors.Is(err, dedup.ErrTxAborted), err)
			require.Equal(t, c.lost, err != nil)
			answers := make([]dedup.Answer, 1)
			require.NoError(t, s.ClaimTx(t.Context(), time.Minute, reqs, answers,
				func(tx *sql.Tx) ([]dedup.Completion, error) { return nil, nil }))
			require.Equal(t, c.lost, answers[0].Verdict == dedup.Fresh, "the record and the effects stay together")
		})
	}
}
