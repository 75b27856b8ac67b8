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

// renewAll renews n claims at a server that throttles the requests that contain bad, and does not
// have the claim of key e099. The results are the numbers of renewed claims and of requests.
func renewAll(t *testing.T, n int, bad string) (renewed, requests int64, err error) {
	t.Helper()
	var ok, all atomic.Int64
	wrap := func(next http.RoundTripper) http.RoundTripper {
		return &wire{next: next, before: func(_, body string) *http.Response {
			all.Add(1)
			if strings.Contains(body, bad) {
				return reply(400, `{"__type":"com.amazon.coral.availability#ThrottlingException","message":"test"}`)
			}
			if strings.Contains(body, ":e099\"") {
				return reply(400, `{"__type":"com.amazonaws.dynamodb.v20120810#ConditionalCheckFailedException","message":"test"}`)
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

func isPart(t *testing.T, err error, failed, lost []int) {
	t.Helper()
	var part *dedup.PartError
	require.ErrorAs(t, err, &part)
	require.Equal(t, failed, part.Failed)
	require.Equal(t, lost, part.Lost)
}

// a throttled key does not end the renewal of the keys after it.
func TestRenewServesAllKeysOfAPartlyThrottledTable(t *testing.T) {
	renewed, _, err := renewAll(t, 100, ":e000\"")
	require.ErrorIs(t, err, dedup.ErrUnavailable)
	require.ErrorContains(t, err, "e000")
	require.EqualValues(t, 98, renewed)
	isPart(t, err, []int{0}, []int{99})

	renewed, _, err = renewAll(t, 100, ":e02")
	require.ErrorIs(t, err, dedup.ErrUnavailable)
	require.EqualValues(t, 89, renewed, "keys 20 to 29 are throttled")
	isPart(t, err, []int{20, 21, 22, 23, 24, 25, 26, 27, 28, 29}, []int{99})

	_, _, err = renewAll(t, 100, "no key")
	require.ErrorIs(t, err, dedup.ErrClaimLost)
	var lost *dedup.LostError
	require.ErrorAs(t, err, &lost)
	require.Equal(t, []int{99}, lost.Claims)
}

// a table that is down gets few requests.
func TestRenewGivesUpAtATableThatIsDown(t *testing.T) {
	renewed, requests, err := renewAll(t, 500, ":e")
	require.ErrorIs(t, err, dedup.ErrUnavailable)
	require.Zero(t, renewed)
	require.LessOrEqual(t, requests, int64(32+4), "32, and those that were under way")
	var part *dedup.PartError
	require.ErrorAs(t, err, &part)
	require.Len(t, part.Failed, 500, "also those that were not asked for")
}
