package pgstore

import (
	"embed"
	"fmt"
	"slices"
	"strings"
)

// layout is the form of a store's rows. The name is on record in idem_schema.
type layout string

const (
	readable layout = "readable" // the parts of the key as text
	compact  layout = "compact"  // numbers and 16 bytes (rule 28)
)

//go:embed sql/*.sql sql/compact/*.sql
var sqlFiles embed.FS

// file returns the text of sql/name.sql, or the replacement for the compact layout.
func (l layout) file(name string) string {
	if l == compact {
		if text, err := sqlFiles.ReadFile("sql/compact/" + name + ".sql"); err == nil {
			return string(text)
		}
	}
	text, err := sqlFiles.ReadFile("sql/" + name + ".sql")
	if err != nil { // the build lacks the file: every test shows it
		return "missing " + name
	}
	return string(text)
}

// pairs are the replacements for placeholders in the texts that differ by layout.
func (l layout) pairs(schema string) []string {
	key, types := []string{"tenant", "scope", "event_type", "event_id"},
		[]string{"text", "text", "text", "text"}
	tables := [4]string{"processed_events", "processed_events", "idempotency_keys",
		"idempotency_keys"}
	collated := []string{"processed_events", "idempotency_keys", "event_starts", "deferred_queues",
		"deferred_events"}
	ofScope, status, fence, shown := "scope = $1::text", "k.status", "k.fence", "k.event_id"
	waitAgain := "status = 'moved', updated_at = clock_timestamp()"
	if l == compact {
		key, types = []string{"kind", "id"}, []string{"integer", "uuid"}
		tables = [4]string{"processed_events_compact", "processed_events_read",
			"idempotency_keys_compact", "idempotency_keys_read"}
		collated = []string{"idem_kinds", "idem_origins", "event_starts", "deferred_queues",
			"deferred_events"}
		ofScope = "kind = ANY (ARRAY(SELECT i.kind FROM " + schema +
			".idem_kinds i WHERE i.scope = $1::text))"
		status, fence = "coalesce(k.rest ->> 'status', 'done')", "(k.rest ->> 'fence')::bigint"
		// different from every readable ID
		shown = "coalesce(k.event_id, 'sha256:' || replace(k.id::text, '-', ''))"
		waitAgain = "rest = coalesce(k.rest, '{}') || jsonb_build_object('status', 'moved', " +
			"'updated_at', clock_timestamp())"
	}
	order := slices.Clone(key) // that of the primary keys; arguments have the database's collation
	for i := range order {
		if types[i] == "text" {
			order[i] += ` COLLATE "C"`
		}
	}
	for i := range collated {
		collated[i] = "'" + schema + "." + collated[i] + "'::regclass"
	}
	pairs := []string{
		"{schema}", schema, "{tables}", strings.Join(collated, ", "),
		"{key}", strings.Join(key, ", "), "{id}", key[len(key)-1],
		"{events}", tables[0], "{events_read}", tables[1],
		"{keys}", tables[2], "{keys_read}", tables[3], "{of_scope}", ofScope,
		"{k.status}", status, "{k.fence}", fence, "{wait_again}", waitAgain, "{shown_id}", shown,
	}
	for _, alias := range []string{"k", "r", "s", "l", "h"} {
		pairs = append(pairs, "{"+alias+".key}", alias+"."+strings.Join(key, ", "+alias+"."))
	}
	pairs = append(pairs, "{order}", strings.Join(order, ", "))
	for first := 1; first <= 8; first++ { // the number of the key's first argument
		var arrays, one []string
		for i, t := range types {
			one = append(one, fmt.Sprintf("$%d::%s", first+i, t))
			arrays = append(arrays, one[i]+"[]")
		}
		pairs = append(pairs, fmt.Sprintf("{one@%d}", first), strings.Join(one, ", "),
			fmt.Sprintf("{arrays@%d}", first), strings.Join(arrays, ", "))
	}
	return pairs
}
