package memstore_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/dedup/memstore"
)

// Rule 8: an expired record that no sweep has reached is noted as forgotten too, if a claim or a
// look-up finds it.
func TestTooOldBeforeTheSweep_Rule8(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New()
		last := dedup.Request{Key: dedup.Key{Scope: "s", ID: "last"}, Retention: time.Hour}
		answers := make([]dedup.Answer, 1)
		finish(t, s, 0, 100, time.Hour) // more than one call forgets, and of another scope
		time.Sleep(time.Second)
		last.Origin = dedup.Origin{Topic: "t", Time: time.Now()}
		token := dedup.NewToken()
		require.NoError(t, s.Claim(t.Context(), token, time.Minute, []dedup.Request{last}, answers))
		require.NoError(t, s.Complete(t.Context(), []dedup.Completion{
			{Claim: last.Held(token, answers[0]), Retention: time.Hour},
		}))
		time.Sleep(2 * time.Hour)
		require.NoError(t, s.Claim(t.Context(), token, time.Minute, []dedup.Request{last}, answers))
		require.Equal(t, dedup.TooOld, answers[0].Verdict)
		require.Greater(t, s.Len(), 50, "the sweep has not reached the record")
	})
}

// Rule 8: an event that is too old makes no record, so a full store answers it.
func TestTooOldNeedsNoRoom_Rule8(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New(memstore.Capacity(1))
		old := dedup.Request{Key: dedup.Key{ID: "old"}, Retention: time.Hour,
			Origin: dedup.Origin{Topic: "t", Time: time.Now()}}
		finish(t, s, 0, 1, time.Hour)
		time.Sleep(time.Hour)
		finish(t, s, 1, 1, time.Hour) // the first record has expired, and makes room
		answers := make([]dedup.Answer, 1)
		require.NoError(t, s.Claim(t.Context(), dedup.NewToken(), time.Minute,
			[]dedup.Request{old}, answers))
		require.Equal(t, dedup.TooOld, answers[0].Verdict)
		young := old
		young.Origin.Time = time.Now()
		require.ErrorIs(t, s.Claim(t.Context(), dedup.NewToken(), time.Minute,
			[]dedup.Request{young}, answers), dedup.ErrFull)
		require.Equal(t, 1, s.Len())
	})
}

// A renewed claim expires later. Records that expire before it make room all the same.
func TestRenewedClaimHidesNoExpiredRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New(memstore.Capacity(2))
		token, answers := dedup.NewToken(), make([]dedup.Answer, 1)
		reqs := requests(0, 1, time.Hour)
		require.NoError(t, s.Claim(t.Context(), token, time.Minute, reqs, answers))
		held := reqs[0].Held(token, answers[0])
		finish(t, s, 1, 1, 90*time.Minute)
		time.Sleep(50 * time.Minute)
		require.NoError(t, s.Renew(t.Context(), time.Minute, []dedup.Claim{held})) // to minute 111
		time.Sleep(45 * time.Minute)
		finish(t, s, 2, 1, time.Hour)
		require.Equal(t, 2, s.Len())
		require.NoError(t, s.Renew(t.Context(), time.Minute, []dedup.Claim{held}))
	})
}
