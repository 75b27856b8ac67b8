package pgstore

import (
	"fmt"
	"sync"
	"testing"

	"github.com/idem-go/idem/internal/testenv"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
)

// Rule 28: processes that meet a kind at once get one number for it, and different kinds different numbers.
func TestKindsAreTheSameForAll_Rule28(t *testing.T) {
	t.Parallel()
	url := testenv.Postgres(t)
	pool, err := pgxpool.New(t.Context(), url)
	require.NoError(t, err)
	defer pool.Close()
	require.NoError(t, Migrate(t.Context(), pool, Compact()))
	var all []kindText
	for i := range 30 {
		all = append(all, kindText{"acme", "orders", fmt.Sprint(i / 3), idForm(1 + i%3)})
	}
	all = append(all, all[0], all[7])
	const processes = 8
	got := make([][]int32, processes)
	caches := make([]dictionary[kindText], processes)
	var wg sync.WaitGroup
	for p := range processes {
		got[p] = make([]int32, len(all))
		wg.Go(func() {
			if err := caches[p].resolve(t.Context(), New(pool, Compact()).db, all, got[p]); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	seen := make(map[int32]kindText)
	for i, n := range got[0] {
		require.NotZero(t, n)
		if k, ok := seen[n]; ok {
			require.Equal(t, k, all[i])
		}
		seen[n] = all[i]
	}
	require.Len(t, seen, 30)
	for _, other := range got {
		require.Equal(t, got[0], other)
	}
	pool.Close() // remembered numbers need no server
	again := make([]int32, len(all))
	require.NoError(t, caches[0].resolve(t.Context(), New(pool, Compact()).db, all, again))
	require.Equal(t, got[0], again)
}

// Rule 28: a number that was not committed is not remembered.
func TestKindsThatFailAreNotRemembered_Rule28(t *testing.T) {
	t.Parallel()
	pool, err := pgxpool.New(t.Context(), testenv.Postgres(t))
	require.NoError(t, err)
	defer pool.Close()
	require.NoError(t, Migrate(t.Context(), pool, Compact()))
	_, err = pool.Exec(t.Context(), `CREATE FUNCTION no() RETURNS trigger LANGUAGE plpgsql AS
		$$ BEGIN RAISE EXCEPTION 'at commit'; END $$;
		CREATE CONSTRAINT TRIGGER no AFTER INSERT ON idem_kinds DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION no()`)
	require.NoError(t, err)
	var c dictionary[kindText]
	numbers := make([]int32, 1)
	all := []kindText{{"acme", "orders", "paid", formHash}}
	require.Error(t, c.resolve(t.Context(), New(pool, Compact()).db, all, numbers))
	require.Zero(t, numbers[0])
	require.Empty(t, c.number)
	_, err = pool.Exec(t.Context(), "DROP TRIGGER no ON idem_kinds")
	require.NoError(t, err)
	require.NoError(t, c.resolve(t.Context(), New(pool, Compact()).db, all, numbers))
	require.NotZero(t, numbers[0])
}
