package dynamostore_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/dedup/dynamostore"
	"github.com/stretchr/testify/require"
)

// renewAll renews n claims at a server that throttles the keys that contain bad, and returns the
// number of renewed claims and of requests.
func renewAll(t *testing.T, n int, bad string) (renewed, requests int64, err error) {
	t.Helper()
	var ok, all atomic.Int64
	wrap := func(next http.RoundTripper) http.RoundTripper {
		return &wire{next: next, before: func(_, body string) *http.Response {
			all.Add(1)
			if strings.Contains(body, bad) {
				return reply(400, `{"__type":"com.amazon.coral.availability#ThrottlingException","message":"test"}`)
			}
			ok.Add(1)
			return reply(200, `{"Attributes":{"rev":{"N":"2"}}}`)
		}}
	}
	s := dynamostore.New(connect(t, "http://127.0.0.1:1", wrap,
		func(o *dynamodb.Options) { o.Retryer = aws.NopRetryer{} }), "t", dynamostore.Parallel(4))
	claims := make([]dedup.Claim, n)
	for i := range claims {
		claims[i] = request(fmt.Sprintf("e%03d", i)).Held(dedup.NewToken(), dedup.Answer{Fence: 1})
	}
	err = s.Renew(t.Context(), time.Minute, claims)
	return ok.Load(), all.Load(), err
}

// a throttled key does not end the renewal of the keys after it.
func TestRenewServesAllKeysOfAPartlyThrottledTable(t *testing.T) {
	renewed, _, err := renewAll(t, 100, ":e000\"")
	require.ErrorIs(t, err, dedup.ErrUnavailable)
	require.ErrorContains(t, err, "e000")
	require.EqualValues(t, 99, renewed)

	renewed, _, err = renewAll(t, 100, ":e02")
	require.ErrorIs(t, err, dedup.ErrUnavailable)
	require.EqualValues(t, 90, renewed, "keys 20 to 29 are throttled")
}

// a table that is down gets few requests.
func TestRenewGivesUpAtATableThatIsDown(t *testing.T) {
	renewed, requests, err := renewAll(t, 500, ":e")
	require.ErrorIs(t, err, dedup.ErrUnavailable)
	require.Zero(t, renewed)
	require.LessOrEqual(t, requests, int64(32+4), "32, and those that were under way")
}
