package memstore_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/dedup/memstore"
	"github.com/stretchr/testify/require"
)

func imported(from, n int, retention time.Duration) []dedup.Imported {
	events := make([]dedup.Imported, n)
	for i, r := range requests(from, n, retention) {
		events[i] = dedup.Imported{Key: r.Key, Retention: r.Retention}
	}
	return events
}

// H-21, rule 31: events that a person adds need room like all others. Without room for all, no
// event is added.
func TestFullRefusesWhatAPersonAdds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New(memstore.Capacity(10))
		finish(t, s, 0, 8, time.Hour)
		added, err := s.Import(t.Context(), imported(7, 4, time.Hour))
		require.ErrorIs(t, err, dedup.ErrFull)
		require.ErrorIs(t, err, dedup.ErrUnavailable)
		require.Zero(t, added)
		require.Equal(t, 8, s.Len())
		twice := append(imported(7, 3, 3*time.Hour), imported(7, 3, 3*time.Hour)...)
		added, err = s.Import(t.Context(), twice) // the known and the repeated need no room
		require.NoError(t, err)
		require.Equal(t, 2, added)
		key := func(i int) dedup.Key { return requests(i, 1, 1)[0].Key }
		require.ErrorIs(t, s.Discard(t.Context(), key(100), time.Hour, "x"), dedup.ErrFull)
		require.Equal(t, 10, s.Len())

		time.Sleep(time.Hour) // eight are gone
		require.NoError(t, s.Discard(t.Context(), key(100), time.Hour, "x"))
		require.NoError(t, s.Discard(t.Context(), key(100), time.Hour, "x"), "known")
		require.Equal(t, 3, s.Len())
		require.NoError(t, s.Forget(t.Context(), key(8)))
		require.Equal(t, 2, s.Len())
	})
}

// An expired record is not shown, not found and not in the way.
func TestExpiredIsNotShown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New()
		finish(t, s, 0, 3, time.Hour)
		key := requests(0, 1, 1)[0].Key
		listed := func() (n int) {
			require.NoError(t, s.List(t.Context(), dedup.Filter{}, 0, func(dedup.Record) bool { n++; return true }))
			return n
		}
		time.Sleep(time.Hour - 1)
		require.Equal(t, 3, listed())
		time.Sleep(time.Nanosecond)
		require.Zero(t, listed())
		found, err := s.Find(t.Context(), "", key.ID)
		require.NoError(t, err)
		require.Empty(t, found)
		require.Equal(t, 3, s.Len(), "who looks at all sweeps nothing")
		records, err := s.Inspect(t.Context(), key)
		require.NoError(t, err)
		require.Empty(t, records)
		require.ErrorIs(t, s.Forget(t.Context(), requests(1, 1, 1)[0].Key), dedup.ErrNotFound)
		added, err := s.Import(t.Context(), imported(0, 3, time.Hour))
		require.NoError(t, err)
		require.Equal(t, 3, added)
		require.Equal(t, 3, listed())
	})
}

// Rule 8: after a person has forgotten an event, other old events are still Fresh. After the store
// has forgotten an imported event, older events are TooOld.
func TestForgottenByAPerson(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New()
		began := time.Now()
		verdict := func(id string) dedup.Verdict {
			a := make([]dedup.Answer, 1)
			require.NoError(t, s.Claim(t.Context(), dedup.NewToken(), time.Minute, []dedup.Request{{
				Key: dedup.Key{ID: id}, Retention: time.Hour, Origin: dedup.Origin{Time: began.Add(-time.Hour)},
			}}, a))
			return a[0].Verdict
		}
		finish(t, s, 0, 1, time.Hour)
		require.NoError(t, s.Forget(t.Context(), requests(0, 1, 1)[0].Key))
		require.Equal(t, dedup.Fresh, verdict("old"))
		_, err := s.Import(t.Context(), imported(5, 1, time.Hour))
		require.NoError(t, err)
		time.Sleep(time.Hour)
		require.Equal(t, dedup.TooOld, verdict(imported(5, 1, 1)[0].Key.ID))
		require.Equal(t, dedup.TooOld, verdict("old as well"))
	})
}

// The function that gets the records of a list may use the store, and may end the list.
func TestListHoldsNoLock(t *testing.T) {
	s := memstore.New()
	finish(t, s, 0, 5, time.Hour)
	n := 0
	require.NoError(t, s.List(t.Context(), dedup.Filter{}, 0, func(r dedup.Record) bool {
		require.NoError(t, s.Forget(t.Context(), r.Key))
		n++
		return true
	}))
	require.Equal(t, 5, n)
	require.Zero(t, s.Len())
}

// A renewal of a lease is a change, and the record has the time at which the lease began.
func TestRecordTimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New()
		tok, reqs, a := dedup.NewToken(), requests(0, 1, time.Hour), make([]dedup.Answer, 1)
		began := time.Now()
		require.NoError(t, s.Claim(t.Context(), tok, time.Minute, reqs, a))
		times := func(changed, expires time.Duration) {
			t.Helper()
			r, err := s.Inspect(t.Context(), reqs[0].Key)
			require.NoError(t, err)
			require.Equal(t, []time.Time{began, began.Add(changed), began.Add(expires)},
				[]time.Time{r[0].Created, r[0].Changed, r[0].Expires})
		}
		times(0, time.Minute+time.Hour)
		time.Sleep(time.Second)
		c := reqs[0].Held(tok, a[0])
		require.NoError(t, s.Renew(t.Context(), time.Minute, []dedup.Claim{c}))
		times(time.Second, time.Second+time.Minute+time.Hour)
		time.Sleep(time.Second)
		require.NoError(t, s.Discard(t.Context(), reqs[0].Key, time.Minute, "kept for as long as it was to be"))
		times(2*time.Second, time.Second+time.Minute+time.Hour)
		require.NoError(t, s.Discard(t.Context(), reqs[0].Key, 2*time.Hour, "and longer"))
		times(2*time.Second, 2*time.Second+2*time.Hour)
	})
}
