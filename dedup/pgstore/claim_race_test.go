package pgstore_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/dedup/pgstore"
)

// two claims find the same open row and wait for its lock. Only the first one is granted,
// because the second one finds another version of the row.
func TestClaimOfAChangedRow_R09(t *testing.T) {
	inLayouts(t, 8, func(t *testing.T, s *pgstore.Store, pool *pgxpool.Pool) {
		done := claimsOf(t, s, 1)
		key := done[0].Key
		require.NoError(t, s.Release(t.Context(), []dedup.Release{
			{Claim: done[0].Claim, Outcome: dedup.Failed, Retention: time.Hour},
		}))
		tx, err := pool.Begin(t.Context())
		require.NoError(t, err)
		defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }() // also after a failure
		_, err = tx.Exec(t.Context(),
			"SELECT FROM "+keysTable(t, pool)+" WHERE "+oneOf(t, pool, key)+" FOR UPDATE")
		require.NoError(t, err)
		type result struct {
			verdict dedup.Verdict
			err     error
		}
		results := make(chan result, 2)
		for range 2 {
			go func() {
				answers := make([]dedup.Answer, 1)
				err := s.Claim(t.Context(), dedup.NewToken(), time.Minute,
					[]dedup.Request{{Key: key, Retention: time.Hour}}, answers)
				results <- result{answers[0].Verdict, err}
			}()
		}
		waitForWaiting(t, pool, keysTable(t, pool), 2)
		require.NoError(t, tx.Rollback(t.Context()))
		got := map[dedup.Verdict]int{}
		for range 2 {
			r := <-results
			require.NoError(t, r.err)
			got[r.verdict]++
		}
		require.Equal(t, map[dedup.Verdict]int{dedup.Fresh: 1, dedup.Busy: 1}, got)
	})
}
