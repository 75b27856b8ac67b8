package memstore_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/dedup/memstore"
	"github.com/stretchr/testify/require"
)

// Rule 8: a forgotten event is never Fresh. No event is too old before the store has forgotten one.
func TestTooOldIsWhatWasForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New()
		at := func(id string, when time.Time) dedup.Request {
			return dedup.Request{
				Key: dedup.Key{Scope: "s", ID: id}, Retention: time.Hour, Origin: dedup.Origin{Topic: "t", Time: when},
			}
		}
		meets := func(want dedup.Verdict, r dedup.Request) dedup.Claim {
			t.Helper()
			tok, a := dedup.NewToken(), make([]dedup.Answer, 1)
			require.NoError(t, s.Look(t.Context(), []dedup.Request{r}, a))
			if want.Held() {
				require.Zero(t, a[0])
			} else {
				require.Equal(t, want, a[0].Verdict, "who looks is told the same")
			}
			require.NoError(t, s.Claim(t.Context(), tok, time.Minute, []dedup.Request{r}, a))
			require.Equal(t, want, a[0].Verdict)
			return r.Held(tok, a[0])
		}
		complete := func(c dedup.Claim) {
			require.NoError(t, s.Complete(t.Context(), []dedup.Completion{{Claim: c, Retention: time.Hour}}))
		}
		began := time.Now()
		complete(meets(dedup.Fresh, at("ancient", began.Add(-1000*time.Hour)))) // no event was forgotten yet
		handled := at("handled", began)
		complete(meets(dedup.Fresh, handled))
		time.Sleep(time.Minute)
		lasting := meets(dedup.Fresh, at("lasting", began))
		time.Sleep(time.Hour - time.Minute - time.Nanosecond)
		meets(dedup.Done, handled)
		time.Sleep(time.Nanosecond) // the first two are forgotten
		held := s.Len()
		meets(dedup.TooOld, handled)
		meets(dedup.TooOld, at("a copy under another ID", began.Add(-time.Second)))
		require.Less(t, s.Len(), held, "no claim is left by the question")
		meets(dedup.Uncertain, at("lasting", began)) // known, at any age
		meets(dedup.Fresh, at("later", began.Add(1)))
		meets(dedup.Fresh, at("without time", time.Time{}))
		other := handled
		other.Key.Scope = "another"
		meets(dedup.Fresh, other)
		later := at("later copy", began)
		later.Position.Retry = 1
		meets(dedup.Fresh, later)
		anyAge := handled
		anyAge.AnyAge = true
		complete(meets(dedup.Fresh, anyAge))
		meets(dedup.Done, handled)
		require.ErrorIs(t, s.Renew(t.Context(), time.Minute, []dedup.Claim{lasting}), dedup.ErrClaimLost)
	})
}
