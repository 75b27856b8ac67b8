package dynamostore_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/dedup/dynamostore"
)

// a holder renews between the read and the write of a take-over. The token is still the same,
// and the claim is not taken over.
func TestTakeoverMeetsARenewal_R18(t *testing.T) {
	client, table := newTable(t)
	now := newClock()
	holder := dynamostore.New(client, table, dynamostore.Clock(now.read))
	_, held := ask(t, holder, time.Minute, request("e"))
	takeovers := 0
	renewing := func(next http.RoundTripper) http.RoundTripper {
		return &wire{next: next, before: func(verb, body string) *http.Response {
			if verb == "PutItem" && strings.Contains(body, "#rev") && takeovers == 0 {
				takeovers++
				require.NoError(t, holder.Renew(t.Context(), time.Minute, []dedup.Claim{held}))
			}
			return nil
		}}
	}
	taker := dynamostore.New(connect(t, endpoint(t), renewing, quick), table,
		dynamostore.Clock(now.read))
	a, _ := ask(t, taker, time.Minute, request("e"))
	require.Equal(t, dedup.Busy, a.Verdict)
	now.pass(time.Minute) // the holder is late
	a, _ = ask(t, taker, time.Minute, request("e"))
	require.Equal(t, 1, takeovers, "one was tried")
	require.Equal(t, dedup.Busy, a.Verdict)
	require.NoError(t, holder.Complete(t.Context(), []dedup.Completion{
		{Claim: held, Retention: time.Hour},
	}))
}
