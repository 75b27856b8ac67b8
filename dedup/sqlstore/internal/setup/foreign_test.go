package setup

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestForeignOf(t *testing.T) {
	const schema = `-- The tables.
CREATE TABLE IF NOT EXISTS idem_schema (version integer);
INSERT INTO idem_schema VALUES (1);
CREATE TABLE IF NOT EXISTS processed_events (
    id text
);
CREATE TABLE IF NOT EXISTS idempotency_keys (id text);`
	for _, c := range []struct {
		name               string
		existing, foreigns []string
	}{
		{"nothing", nil, nil},
		{"tables of the application", []string{"orders", "processed_events_old"}, nil},
		{"a table of its own with the same name", []string{"orders", "Processed_Events"}, []string{"processed_events"}},
		{"two", []string{"idempotency_keys", "processed_events"}, []string{"processed_events", "idempotency_keys"}},
		{"set up before", []string{"idempotency_keys", "idem_schema", "processed_events"}, nil},
		{"begun, and interrupted", []string{"idem_schema", "processed_events"}, nil},
	} {
		require.Equal(t, c.foreigns, foreignOf(c.existing, schema), c.name)
	}
}

func TestComplete(t *testing.T) {
	const schema = `CREATE TABLE IF NOT EXISTS a (x text);
CREATE INDEX IF NOT EXISTS b
    ON a (x);
CREATE UNIQUE INDEX IF NOT EXISTS c ON a (x);`
	require.True(t, Complete([]string{"z", "c", "b", "a"}, schema))
	for _, existing := range [][]string{nil, {"a"}, {"b", "c"}, {"a", "c"}, {"a", "b"}} {
		require.False(t, Complete(existing, schema), existing)
	}
}
