package doctor

import (
	"context"
	"fmt"
	"io"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/dedup"
)

// The remedy is that of the cause. A database that did not answer lacks no right.
func TestOutboxRemedy(t *testing.T) {
	denied := &pgconn.PgError{Code: "42501"}
	const all = "GRANT SELECT ON idem_outbox, idem_outbox_shards, idem_outbox_relays, idem_outbox_schema TO \"w\""
	const inEvents = `GRANT USAGE ON SCHEMA "events" TO "w"; GRANT SELECT ON "events"."idem_outbox", ` +
		`"events"."idem_outbox_shards", "events"."idem_outbox_relays", "events"."idem_outbox_schema" TO "w"`
	for name, c := range map[string]struct {
		err    error
		schema string
		want   string
	}{
		"no right":                    {err: denied, want: all},
		"no right, in a schema":       {err: fmt.Errorf("look: %w", denied), schema: "events", want: inEvents},
		"no right, of a check":        {err: &dedup.SetupError{Fix: "grant more", Err: denied}, want: all},
		"another fault of the tables": {err: fmt.Errorf("look: %w", &dedup.SetupError{Fix: "migrate"}), want: "migrate"},
		"a lock":                      {err: &pgconn.PgError{Code: "55P03"}},
		"no answer":                   {err: context.DeadlineExceeded, schema: "events"},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, c.want, outboxRemedy(c.err, "w", c.schema))
		})
	}
}

// A person who changes rights during an outage mends nothing.
func TestStoreRemedy(t *testing.T) {
	denied := &pgconn.PgError{Code: "42501"}
	for name, c := range map[string]struct {
		err    error
		schema string
		want   string
	}{
		"no right":              {err: denied, want: grant("w", "")},
		"no right, in a schema": {err: fmt.Errorf("read: %w", denied), schema: "events", want: grant("w", "events")},
		"a lock":                {err: &pgconn.PgError{Code: "55P03"}},
		"a canceled statement":  {err: fmt.Errorf("read: %w", &pgconn.PgError{Code: "57014"}), schema: "events"},
		"a stopped server":      {err: &pgconn.PgError{Code: "57P01"}},
		"no answer":             {err: context.DeadlineExceeded, schema: "events"},
		"a lost connection":     {err: fmt.Errorf("read: %w", io.ErrUnexpectedEOF)},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, c.want, storeRemedy(c.err, "w", c.schema))
		})
	}
}

// A right on a table is of no use without USAGE on its schema.
func TestGrant(t *testing.T) {
	require.Equal(t, "GRANT SELECT, INSERT, UPDATE ON processed_events, idempotency_keys, idem_scopes, idem_scope_topics, "+
		`idem_descriptors TO "w"; GRANT SELECT, INSERT, UPDATE, DELETE ON event_starts, idem_progress TO "w"; `+
		`GRANT SELECT ON idem_schema, idem_horizons TO "w"`, grant("w", ""))
	require.Regexp(t, `^GRANT USAGE ON SCHEMA "events" TO "w"; GRANT SELECT, INSERT, UPDATE ON "events"\."processed_events", `,
		grant("w", "events"))
	require.Equal(t, `GRANT USAGE ON SCHEMA <schema> TO "w"`, useSchema("w", ""))
}
