package pgstore_test

import (
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/dedup/pgstore"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
)

// claimsOf claims n events and returns their completions.
func claimsOf(t *testing.T, s *pgstore.Store, n int) []dedup.Completion {
	t.Helper()
	reqs, answers, token := batch(n, 0), make([]dedup.Answer, n), dedup.NewToken()
	require.NoError(t, s.Claim(t.Context(), token, time.Minute, reqs, answers))
	done := make([]dedup.Completion, n)
	for i := range reqs {
		require.Equal(t, dedup.Fresh, answers[i].Verdict)
		done[i] = dedup.Completion{Claim: reqs[i].Held(token, answers[i]), Retention: retention}
	}
	return done
}

// keysTable is the table of claims of s.
func keysTable(t *testing.T, pool *pgxpool.Pool) (name string) {
	t.Helper()
	require.NoError(t, pool.QueryRow(t.Context(),
		"SELECT coalesce(to_regclass('idempotency_keys_compact'), to_regclass('idempotency_keys'))::text").Scan(&name))
	return name
}

// waitForWaiting waits until n sessions that use a table wait for a lock. The sessions of other tests
// use other tables of the database.
func waitForWaiting(t *testing.T, pool *pgxpool.Pool, table string, n int) {
	t.Helper()
	require.Eventually(t, func() bool {
		var waiting int
		err := pool.QueryRow(t.Context(), "SELECT count(DISTINCT l.pid) FROM pg_locks l JOIN pg_locks u USING (pid) "+
			"WHERE NOT l.granted AND u.relation = $1::text::regclass", table).Scan(&waiting)
		return err == nil && waiting == n
	}, 10*time.Second, 5*time.Millisecond, "%d sessions wait", n)
}

// A completion that waits for a change of its row is judged by the changed row.
func TestCompleteWaitsForAChange(t *testing.T) {
	inLayouts(t, 8, func(t *testing.T, s *pgstore.Store, pool *pgxpool.Pool) {
		for change, lost := range map[string]bool{
			"status = 'done', lease_until = NULL": false, // a repeat of the same completion
			"token = gen_random_uuid()":           true,
			"status = 'released'":                 true,
			"fence = fence":                       false,
		} {
			done := claimsOf(t, s, 3)
			tx, err := pool.Begin(t.Context())
			require.NoError(t, err)
			_, err = tx.Exec(t.Context(), "UPDATE "+keysTable(t, pool)+" SET "+change+" WHERE "+oneOf(t, pool, done[1].Key))
			require.NoError(t, err)
			ended := make(chan error, 1)
			go func() { ended <- s.Complete(t.Context(), done) }()
			waitForWaiting(t, pool, keysTable(t, pool), 1)
			require.NoError(t, tx.Commit(t.Context()))
			err = <-ended
			if !lost {
				require.NoError(t, err, change)
			} else {
				var report *dedup.LostError
				require.ErrorAs(t, err, &report, change)
				require.Equal(t, []int{1}, report.Claims, change)
			}
			_, err = pool.Exec(t.Context(), "DELETE FROM "+keysTable(t, pool))
			require.NoError(t, err)
		}
	})
}

// oneOf is the condition for the row of k.
func oneOf(t *testing.T, pool *pgxpool.Pool, k dedup.Key) string {
	t.Helper()
	if keysTable(t, pool) == "idempotency_keys" {
		return "event_id = '" + k.ID + "'"
	}
	return "id = left(encode(sha256(convert_to('" + k.ID + "', 'UTF8')), 'hex'), 32)::uuid"
}

// P-04: a repeat locks no row of the earlier call, so repeats that run at once cannot wait for each
// other.
func TestRepeatedCompletionLocksNothing_P04(t *testing.T) {
	inLayouts(t, 4, func(t *testing.T, s *pgstore.Store, pool *pgxpool.Pool) {
		done := withDead(claimsOf(t, s, 6))
		require.NoError(t, s.Complete(t.Context(), done))
		tx, err := pool.Begin(t.Context())
		require.NoError(t, err)
		defer func() { require.NoError(t, tx.Rollback(t.Context())) }()
		_, err = tx.Exec(t.Context(), "SELECT FROM "+keysTable(t, pool)+" FOR UPDATE")
		require.NoError(t, err)
		require.NoError(t, s.Complete(t.Context(), done))
	})
}

// withDead makes every third completion that of a dead letter.
func withDead(all []dedup.Completion) []dedup.Completion {
	for i := 0; i < len(all); i += 3 {
		all[i].Dead, all[i].First = "broken", dedup.Origin{Topic: "dead", Offset: int64(i)}
	}
	return all
}

// Repeats of one call may run at once, in any order. Each repeat succeeds, without a deadlock.
func TestCompleteRepeatsAtOnce_P04(t *testing.T) {
	t.Run("readable", func(t *testing.T) { completeAtOnce(t, newStore) })
	t.Run("compact", func(t *testing.T) { completeAtOnce(t, newCompactStore) })
}

func completeAtOnce(t *testing.T, open func(testing.TB, ...configure) (*pgstore.Store, *pgxpool.Pool)) {
	t.Parallel()
	deadlocks := &errorCounter{code: "40P01"}
	s, pool := open(t, func(c *pgxpool.Config) { c.ConnConfig.Tracer = deadlocks })
	all := withDead(claimsOf(t, s, 300))
	require.NoError(t, s.Complete(t.Context(), all[:50]))
	var wg sync.WaitGroup
	errs := make([]error, 8)
	for w := range errs {
		rng := rand.New(rand.NewPCG(4, uint64(w)))
		done := slices.Clone(all)
		rng.Shuffle(len(done), func(i, j int) { done[i], done[j] = done[j], done[i] })
		wg.Go(func() {
			for range 4 {
				errs[w] = errors.Join(errs[w], s.Complete(t.Context(), done))
			}
		})
	}
	wg.Wait()
	require.NoError(t, errors.Join(errs...))
	require.Zero(t, deadlocks.n.Load(), "deadlocks, hidden by repetition")
	var ended int
	require.NoError(t, pool.QueryRow(t.Context(),
		"SELECT count(*) FROM "+keysTable(t, pool)+" WHERE status IN ('done', 'dead')").Scan(&ended))
	require.Equal(t, len(all), ended)
}
