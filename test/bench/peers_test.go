package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Each runner and each store is compared with code written by hand on the same client and the same
// server.
func TestEachRunnerAndStoreIsComparedWithNaiveCode(t *testing.T) {
	for ours, naive := range map[string]string{
		"idem-ontx":              "naive-postgres",
		"franz-ontx":             "franz-naive-postgres",
		"kafkago-ontx":           "kafkago-naive-postgres",
		"watermill-ontx":         "watermill-naive-postgres",
		"idem-redis-on":          "naive-redis",
		"franz-redis-on":         "franz-naive-redis",
		"idem-ontx-mariadb":      "naive-mariadb",
		"idem-ontx-sql-postgres": "naive-sql-postgres",
		"idem-dynamo-on":         "naive-dynamo",
	} {
		found := false
		for _, w := range wanted {
			found = found || w.row == ours && w.base == naive
		}
		require.True(t, found, "%s against %s", ours, naive)
	}
}

// The rows on database/sql pay each order of a batch once.
func TestOrdersOfABatchHaveAPlaceholderEach(t *testing.T) {
	for _, tt := range []struct {
		orders []int64
		in     string
	}{{[]int64{7}, "(?)"}, {[]int64{7, 8, 9}, "(?, ?, ?)"}} {
		text, args := payIn(tt.orders)
		require.Contains(t, text, "WHERE id IN "+tt.in)
		require.Len(t, args, len(tt.orders))
		for i, id := range tt.orders {
			require.Equal(t, id, args[i])
		}
	}
}

// A row without its server fails with the name of the missing variable, and is not skipped.
func TestRowNamesTheMissingServer(t *testing.T) {
	t.Setenv("DYNAMODB_URL", "")
	_, err := dynamoURL()
	require.ErrorContains(t, err, "DYNAMODB_URL is not set")
	for _, r := range dynamoRows(quickSizes) {
		require.ErrorContains(t, r.consume(t.Context(), &run{}), "DYNAMODB_URL is not set", r.name)
	}
	t.Setenv("DYNAMODB_URL", "127.0.0.1")
	_, err = dynamoURL()
	require.ErrorContains(t, err, "cannot be parsed")
	t.Setenv("DYNAMODB_URL", "http://127.0.0.1:8000")
	u, err := dynamoURL()
	require.NoError(t, err)
	require.Equal(t, "127.0.0.1:8000", u.Host)
}
