package pgstore_test

import (
	"testing"
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/dedup/pgstore"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
)

// Rule 21: a look at claims gives the answer that a claim would get, and changes no row. Where a
// claim would be granted there is no verdict.
func TestLookAtClaims_Rule21(t *testing.T) {
	onEachLayout(t, func(t *testing.T, s *pgstore.Store, pool *pgxpool.Pool) {
		const lease = time.Millisecond // over at the next call
		claim := func(lease time.Duration, r dedup.Request, want dedup.Verdict) dedup.Claim {
			var a [1]dedup.Answer
			token := dedup.NewToken()
			require.NoError(t, s.Claim(t.Context(), token, lease, []dedup.Request{r}, a[:]))
			require.Equal(t, want, a[0].Verdict, r.Key.ID)
			return r.Held(token, a[0])
		}
		marked := request("f conflict")
		marked.Fingerprint = dedup.Fingerprint{1}
		over := claim(lease, request("c over"), dedup.Fresh)
		done, dead := claim(time.Minute, request("a done"), dedup.Fresh), claim(time.Minute, request("b dead"), dedup.Fresh)
		moved, free := claim(time.Minute, request("d moved"), dedup.Fresh), claim(time.Minute, request("e free"), dedup.Fresh)
		claim(time.Minute, marked, dedup.Fresh)
		claim(time.Minute, request("g busy"), dedup.Fresh)
		result := dedup.Result{Schema: 2, Data: []byte("kept")}
		require.NoError(t, s.Complete(t.Context(), []dedup.Completion{
			{Claim: done, Retention: retention, Result: result}, {Claim: dead, Retention: retention, Dead: "poison"},
			{Claim: moved, Retention: retention, Retry: 1}}))
		require.NoError(t, s.Release(t.Context(), []dedup.Release{{Claim: free, Outcome: dedup.Failed, Retention: retention}}))

		reqs, want := []dedup.Request{request("a done"), request("b dead"), request("c over"), request("d moved"),
			request("e free"), request("f conflict"), request("g busy"), request("h new"), request("i old")},
			[]dedup.Verdict{dedup.Done, dedup.Dead, 0, dedup.Rescheduled, 0, dedup.Conflict, dedup.Busy, 0, dedup.TooOld}
		for i := range reqs[:8] {
			reqs[i].AnyAge = true
		}
		reqs[5].Fingerprint = dedup.Fingerprint{2}
		setHorizon(t, pool, "orders", time.Now())
		before := rowVersions(t, pool)
		answers := make([]dedup.Answer, len(reqs))
		require.NoError(t, s.Look(t.Context(), reqs, answers))
		for i, a := range answers {
			require.Equal(t, want[i].String(), a.Verdict.String(), reqs[i].Key.ID)
			one := make([]dedup.Answer, 1)
			require.NoError(t, s.Look(t.Context(), reqs[i:i+1], one))
			require.Zero(t, one[0].Fence)
			require.InDelta(t, a.Wait, one[0].Wait, float64(10*time.Second))
			one[0].Wait = a.Wait
			require.Equal(t, a, one[0])
		}
		require.Equal(t, result, answers[0].Result)
		require.Equal(t, "poison", answers[1].Reason)
		require.Equal(t, dedup.Answer{}, answers[2])
		require.InDelta(t, time.Minute, answers[6].Wait, float64(30*time.Second))
		require.True(t, request("a done").Origin.Same(answers[0].First))
		require.Equal(t, before, rowVersions(t, pool), "a look writes nothing")
		require.NoError(t, s.Complete(t.Context(), []dedup.Completion{{Claim: over, Retention: retention}}), "it took nothing over")
		require.Zero(t, answers[0].Fence)

		before = rowVersions(t, pool)
		unknown := request("x") // a look makes no numbers
		unknown.Key.Tenant = "nobody"
		require.NoError(t, s.Look(t.Context(), []dedup.Request{unknown}, answers[:1]))
		require.NoError(t, s.LookTx(t.Context(), []dedup.Request{unknown}, answers[:1]))
		require.Equal(t, before, rowVersions(t, pool))
		require.ErrorIs(t, s.Look(t.Context(), []dedup.Request{reqs[1], reqs[0]}, answers[:2]), dedup.ErrOrder)
		require.NoError(t, s.Look(t.Context(), nil, nil))
	})
}

// rowVersions are those of all claims and of the numbers of the compact layout.
func rowVersions(t testing.TB, pool *pgxpool.Pool) (all string) {
	t.Helper()
	var is bool
	require.NoError(t, pool.QueryRow(t.Context(), "SELECT to_regclass('idem_kinds') IS NOT NULL").Scan(&is))
	sql := "SELECT string_agg(xmin::text || ctid::text, ' ' ORDER BY ctid) FROM idempotency_keys"
	if is {
		sql = `SELECT (SELECT string_agg(xmin::text || ctid::text, ' ' ORDER BY ctid) FROM idempotency_keys_compact) ||
			(SELECT string_agg(xmin::text || ctid::text, ' ' ORDER BY ctid) FROM idem_kinds)`
	}
	require.NoError(t, pool.QueryRow(t.Context(), sql).Scan(&all))
	return all
}

func TestLookFailsClosed_R19(t *testing.T) {
	t.Parallel()
	s := downStore(t).(*pgstore.Store)
	var a [1]dedup.Answer
	require.ErrorIs(t, s.Look(t.Context(), []dedup.Request{request("e")}, a[:]), dedup.ErrUnavailable)
	require.ErrorIs(t, s.LookTx(t.Context(), []dedup.Request{request("e")}, a[:]), dedup.ErrUnavailable)
}
