package dynamostore_test

import (
	"context"
	"crypto/rand"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/dedup/dynamostore"
	"github.com/stretchr/testify/require"
)

// endpoint returns DYNAMODB_URL. Without it the test is skipped, or fails if IDEM_REQUIRE_SERVICES is set: a skip must never
// look like a success in CI.
func endpoint(t testing.TB) string {
	t.Helper()
	url := os.Getenv("DYNAMODB_URL")
	switch {
	case url != "":
	case os.Getenv("IDEM_REQUIRE_SERVICES") != "":
		require.FailNow(t, "DYNAMODB_URL is not set")
	default:
		t.Skip("DYNAMODB_URL is not set (make up)")
	}
	return url
}

// connect returns a client of a server, with a transport of its own. wrap, if not nil, is put around that.
func connect(t testing.TB, url string, wrap func(http.RoundTripper) http.RoundTripper,
	change ...func(*dynamodb.Options),
) *dynamodb.Client {
	t.Helper()
	buildable := awshttp.NewBuildableClient().WithTransportOptions(func(tr *http.Transport) {
		tr.MaxIdleConnsPerHost = 256
	})
	transport := buildable.GetTransport()
	t.Cleanup(transport.CloseIdleConnections)
	var rt http.RoundTripper = transport
	if wrap != nil {
		rt = wrap(rt)
	}
	o := dynamodb.Options{
		Region: "eu-central-1", BaseEndpoint: &url, HTTPClient: &http.Client{Transport: rt, Timeout: 30 * time.Second},
		Credentials: credentials.NewStaticCredentialsProvider("test", "test", ""),
	}
	for _, c := range change {
		c(&o)
	}
	return dynamodb.New(o)
}

// newTable creates a table that no other test has, and deletes it in Cleanup.
func newTable(t testing.TB) (*dynamodb.Client, string) {
	t.Helper()
	client := connect(t, endpoint(t), nil)
	table := "test-" + strings.ToLower(rand.Text()[:16])
	require.NoError(t, dynamostore.Migrate(t.Context(), client, table))
	t.Cleanup(func() {
		_, _ = client.DeleteTable(context.WithoutCancel(t.Context()), &dynamodb.DeleteTableInput{TableName: &table})
	})
	return client, table
}

// freeAddr is an address without a listener.
func freeAddr(t testing.TB) string {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, l.Close())
	return l.Addr().String()
}

func down(t testing.TB) dedup.Store {
	client := connect(t, "http://"+freeAddr(t), nil, func(o *dynamodb.Options) { o.Retryer = aws.NopRetryer{} })
	return dynamostore.New(client, "nowhere")
}

func request(id string) dedup.Request {
	return dedup.Request{Key: dedup.Key{Scope: "orders", Type: "order.created", ID: id}, Retention: time.Hour,
		Origin: dedup.Origin{Topic: "orders", Partition: 1, Offset: 2, Time: time.Now()}}
}

// ask claims one key under a new token.
func ask(t testing.TB, s dedup.Store, lease time.Duration, r dedup.Request) (dedup.Answer, dedup.Claim) {
	t.Helper()
	token, answers := dedup.NewToken(), make([]dedup.Answer, 1)
	require.NoError(t, s.Claim(t.Context(), token, lease, []dedup.Request{r}, answers))
	return answers[0], r.Held(token, answers[0])
}
