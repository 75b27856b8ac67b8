package dynamostore_test

import (
	"crypto/rand"
	"errors"
	"net/http"
	"sync"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/dedup/dynamostore"
	"github.com/stretchr/testify/require"
)

func TestCheck(t *testing.T) {
	client, table := newTable(t)
	warnings, err := dynamostore.New(client, table).Check(t.Context())
	require.NoError(t, err)
	require.Empty(t, warnings)

	late, name := lateTable(t)
	warnings, err = dynamostore.New(late, name).Check(t.Context())
	require.NoError(t, err)
	require.Len(t, warnings, 1)
	require.Contains(t, warnings[0], "expired items are never deleted")

	_, err = dynamostore.New(client, "there-is-no-such-table").Check(t.Context())
	require.ErrorIs(t, err, dedup.ErrUnavailable)
	for _, err := range []error{err, dynamostore.New(client, "there-is-no-such-table").Ping(t.Context())} {
		require.ErrorIs(t, err, dedup.ErrUnavailable)
		setup, ok := errors.AsType[*dedup.SetupError](err)
		require.True(t, ok, err)
		require.Equal(t, "table there-is-no-such-table is missing", setup.Problem)
		require.Contains(t, setup.Fix, "aws dynamodb create-table --table-name there-is-no-such-table --attribute-definitions AttributeName=key,")
	}
}

// A table with another key is refused for good, as an outage would be waited for.
func TestCheckOtherKeys(t *testing.T) {
	client := connect(t, endpoint(t), nil)
	hash := func(name string) types.KeySchemaElement {
		return types.KeySchemaElement{AttributeName: &name, KeyType: types.KeyTypeHash}
	}
	attribute := func(name string, kind types.ScalarAttributeType) types.AttributeDefinition {
		return types.AttributeDefinition{AttributeName: &name, AttributeType: kind}
	}
	for name, in := range map[string]dynamodb.CreateTableInput{
		"name": {KeySchema: []types.KeySchemaElement{hash("pk")}, AttributeDefinitions: []types.AttributeDefinition{attribute("pk", "S")}},
		"type": {KeySchema: []types.KeySchemaElement{hash("key")}, AttributeDefinitions: []types.AttributeDefinition{attribute("key", "B")}},
		"range": {
			KeySchema:            []types.KeySchemaElement{hash("key"), {AttributeName: aws.String("at"), KeyType: types.KeyTypeRange}},
			AttributeDefinitions: []types.AttributeDefinition{attribute("key", "S"), attribute("at", "N")},
		},
	} {
		t.Run(name, func(t *testing.T) {
			in.TableName, in.BillingMode = aws.String("test-"+rand.Text()[:16]), types.BillingModePayPerRequest
			_, err := client.CreateTable(t.Context(), &in)
			require.NoError(t, err)
			defer func() { _, _ = client.DeleteTable(t.Context(), &dynamodb.DeleteTableInput{TableName: in.TableName}) }()
			_, err = dynamostore.New(client, *in.TableName).Check(t.Context())
			require.ErrorContains(t, err, "another key")
			require.NotErrorIs(t, err, dedup.ErrUnavailable)
		})
	}
}

// With replicas where the last write wins, two regions may claim one event.
func TestCheckGlobalTables(t *testing.T) {
	describe := func(more string) *dynamodb.Client {
		return connect(t, "http://127.0.0.1:1", func(next http.RoundTripper) http.RoundTripper {
			return &wire{next: next, before: func(verb, _ string) *http.Response {
				switch verb {
				case "DescribeTable":
					return reply(200, `{"Table":{"TableStatus":"ACTIVE","KeySchema":[{"AttributeName":"key","KeyType":"HASH"}],`+
						`"AttributeDefinitions":[{"AttributeName":"key","AttributeType":"S"}]`+more+`}}`)
				case "DescribeTimeToLive":
					return reply(200, `{"TimeToLiveDescription":{"TimeToLiveStatus":"ENABLED","AttributeName":"expires"}}`)
				}
				return reply(200, `{}`)
			}}
		}, quick)
	}
	check := func(more string, opts ...dynamostore.Option) error {
		_, err := dynamostore.New(describe(more), "t", opts...).Check(t.Context())
		return err
	}
	const replicas = `,"Replicas":[{"RegionName":"eu-west-1"}]`
	require.NoError(t, check(""))
	for _, more := range []string{replicas, replicas + `,"MultiRegionConsistency":"EVENTUAL"`} {
		err := check(more)
		require.ErrorContains(t, err, "OneRegion")
		require.NotErrorIs(t, err, dedup.ErrUnavailable)
		require.NoError(t, check(more, dynamostore.OneRegion()))
	}
	require.NoError(t, check(replicas+`,"MultiRegionConsistency":"STRONG"`))
}

// Several processes may start at once, each of them with Migrate.
func TestMigrateTogether(t *testing.T) {
	client := connect(t, endpoint(t), nil)
	table := "test-" + rand.Text()[:16]
	defer func() { _, _ = client.DeleteTable(t.Context(), &dynamodb.DeleteTableInput{TableName: &table}) }()
	var errs [5]error
	var wg sync.WaitGroup
	for i := range errs {
		wg.Go(func() { errs[i] = dynamostore.Migrate(t.Context(), client, table) })
	}
	wg.Wait()
	for _, err := range errs {
		require.NoError(t, err)
	}
	require.NoError(t, dynamostore.Migrate(t.Context(), client, table))
	warnings, err := dynamostore.New(client, table).Check(t.Context())
	require.NoError(t, err)
	require.Empty(t, warnings)
	require.Error(t, dynamostore.Migrate(t.Context(), client, "no/table/name"))
}
