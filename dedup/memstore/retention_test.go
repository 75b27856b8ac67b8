package memstore_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/dedup/memstore"
)

// Rule 52: while two releases with different retentions share a store, each event keeps the retention
// of the release that handled it. A duplicate at the other release does not shorten it.
func TestRetentionOfTwoReleases_Rule52(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New()
		ask := func(retention time.Duration) (dedup.Claim, dedup.Answer) {
			r := dedup.Request{Key: dedup.Key{Scope: "g", Type: "paid", ID: "e1"}, Retention: retention}
			token, a := dedup.NewToken(), make([]dedup.Answer, 1)
			require.NoError(t, s.Claim(t.Context(), token, time.Minute, []dedup.Request{r}, a))
			return r.Held(token, a[0]), a[0]
		}
		c, a := ask(48 * time.Hour)
		require.Equal(t, dedup.Fresh, a.Verdict)
		require.NoError(t, s.Complete(t.Context(), []dedup.Completion{{Claim: c, Retention: 48 * time.Hour}}))
		for range 47 {
			_, a = ask(time.Hour)
			require.Equal(t, dedup.Done, a.Verdict)
			time.Sleep(time.Hour)
		}
		time.Sleep(time.Hour)
		_, a = ask(time.Hour)
		require.Equal(t, dedup.Fresh, a.Verdict)
	})
}
