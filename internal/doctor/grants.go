package doctor

import (
	"strings"

	"github.com/idem-go/idem/internal/outboxview"
	"github.com/idem-go/idem/internal/pgschema"
)

// grant returns the statements for the rights that a worker and the doctor need. With an empty schema
// the tables are those of the search path.
func grant(role, schema string) string {
	return grantUsage(role, schema) + strings.Join([]string{
		grantOn("SELECT, INSERT, UPDATE", role, schema, "processed_events", "idempotency_keys",
			"idem_scopes", "idem_scope_topics", "idem_descriptors"),
		grantOn("SELECT, INSERT, UPDATE, DELETE", role, schema, "event_starts", "idem_progress"),
		grantOn("SELECT", role, schema, "idem_schema", "idem_horizons"),
	}, "; ")
}

// storeRemedy returns the remedy for a query of a store that failed with err. It is empty unless the
// database said that a right is missing.
func storeRemedy(err error, role, schema string) string {
	if pgschema.Code(err) != pgschema.NoRight {
		return ""
	}
	return grant(role, schema)
}

// outboxRemedy returns the remedy for a query of an outbox that failed with err. It is empty if the
// database did not answer: then no right is known to be missing.
func outboxRemedy(err error, role, schema string) string {
	if pgschema.Code(err) == pgschema.NoRight {
		return grantUsage(role, schema) + grantOn("SELECT", role, schema, "idem_outbox",
			"idem_outbox_shards", "idem_outbox_relays", "idem_outbox_schema")
	}
	return outboxview.Fix(err)
}

// grantUsage returns the statement for a named schema, to be followed by others. Without USAGE on its
// schema, a table is as if it did not exist.
func grantUsage(role, schema string) string {
	if schema == "" {
		return ""
	}
	return useSchema(role, schema) + "; "
}

// useSchema returns the statement for the right to see the tables in a schema. An empty schema is one
// of the search path, and the statement leaves its name to the reader.
func useSchema(role, schema string) string {
	name := "<schema>"
	if schema != "" {
		name = ident(schema)
	}
	return "GRANT USAGE ON SCHEMA " + name + " TO " + ident(role)
}

func grantOn(rights, role, schema string, tables ...string) string {
	names := make([]string, len(tables))
	for i, table := range tables {
		names[i] = pgschema.Table(schema, table)
	}
	return "GRANT " + rights + " ON " + strings.Join(names, ", ") + " TO " + ident(role)
}
