package postgres

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/idem-go/idem/internal/outboxrow"
	"github.com/idem-go/idem/internal/pgschema"
	"github.com/idem-go/idem/outbox"
)

// maxRows bounds a statement, so that few texts of statements exist.
const maxRows = 100

var (
	errNoTx     = fmt.Errorf("postgres: %w", outboxrow.ErrNoTx)
	errNoTables = errors.New("no schema of the search path has the tables")
)

// Add adds entries to the outbox, at once. The events are published if tx commits, and never
// otherwise. The order within each topic and key is the order of commits. Each entry gets its ID,
// see [outbox.Entry.Identify], and the trace of ctx in its headers, see [Propagator]. The entries
// of the caller are not changed. Payloads and headers may be reused after Add has returned.
//
// Add locks the topics and keys until the transaction ends. Call Add once, with all entries, as the
// last step. Transactions that call Add twice can deadlock with each other (SQLSTATE 40P01). Two
// events with one ID are found in one call only. The wait for other writers is bounded by the
// session's lock_timeout, which is off by default; Add then fails with SQLSTATE 55P03.
//
// Errors that match [outbox.ErrEntry], [outbox.ErrNoParent] or [outbox.ErrSameID] add no entry, and
// tx can go on. Any other error is the database's, and tx is aborted. In a handler such an error
// matches [dedup.ErrUnavailable] if the event is not to blame.
//
// Safe for concurrent use with different transactions.
func (o *Outbox) Add(ctx context.Context, tx *sql.Tx, entries ...outbox.Entry) error {
	switch {
	case o.wrong != nil:
		return o.wrong
	case tx == nil:
		return errNoTx
	case len(entries) == 0:
		return nil
	}
	return o.rows.Add(ctx, entries, func(ready []outbox.Entry) error {
		if err := make(outboxrow.Identities, len(ready)).Add(ready); err != nil {
			return err
		}
		err := o.rows.Write(ctx, ready, func(ctx context.Context, entries []outbox.Entry) error {
			return o.insert(ctx, tx, entries)
		})
		return addError(ctx, o.known(), err)
	})
}

// insert writes entries, sorted. Their numbers ascend in the order of commits within each aggregate
// (rule 22). The reason is that a transaction draws numbers after it has got the locks of all its
// aggregates, and holds the locks until its end.
func (o *Outbox) insert(ctx context.Context, tx *sql.Tx, entries []outbox.Entry) error {
	schema, err := o.schemaOf(ctx, tx)
	if err != nil {
		return err
	}
	outbox.Sort(entries)
	if err := lock(ctx, tx, outboxrow.LocksOf(schema, entries)); err != nil {
		return err
	}
	table := `"` + schema + `".idem_outbox`
	for len(entries) > 0 {
		n := outboxrow.Chunk(entries, maxRows)
		args, err := outboxrow.Columns(entries[:n])
		if err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, insertText(table, n), args...); err != nil {
			return err
		}
		entries = entries[n:]
	}
	return nil
}

// schemaOf returns the schema that has the tables. The schema is looked up once.
func (o *Outbox) schemaOf(ctx context.Context, tx *sql.Tx) (string, error) {
	if known := o.known(); known != "" {
		return known, nil
	}
	var schema string
	err := tx.QueryRowContext(ctx, pgschema.FindSQL("idem_outbox")).Scan(&schema)
	if errors.Is(err, sql.ErrNoRows) {
		return "", errNoTables
	}
	if err != nil {
		return "", err
	}
	o.found.Store(&schema)
	return schema, nil
}

// known returns the schema of the option, or the one that was looked up. Empty: not looked up.
func (o *Outbox) known() string {
	if s := o.found.Load(); s != nil {
		return *s
	}
	return o.schema
}

// lock takes the locks in their order. The scan of a function keeps the order of its rows. Drivers
// have no array in common, so the numbers are one text.
func lock(ctx context.Context, tx *sql.Tx, locks outboxrow.Locks) error {
	if locks.None {
		return nil
	}
	if len(locks.Each) == 0 {
		_, err := tx.ExecContext(ctx, "SELECT pg_advisory_xact_lock($1::bigint)", locks.Whole)
		return err
	}
	_, err := tx.ExecContext(ctx, "SELECT pg_advisory_xact_lock_shared($1::bigint)", locks.Whole)
	if err != nil {
		return err
	}
	list := make([]string, len(locks.Each))
	for i, n := range locks.Each {
		list[i] = strconv.FormatInt(n, 10)
	}
	_, err = tx.ExecContext(ctx, "SELECT pg_advisory_xact_lock(n) "+
		"FROM unnest(string_to_array($1::text, ',')::bigint[]) AS n", strings.Join(list, ","))
	return err
}

// insertText returns the statement for n rows. The server draws the numbers in their order.
func insertText(table string, n int) string {
	types := []string{"smallint", "text", "bytea", "text", "text", "bytea", "jsonb"}
	var b strings.Builder
	b.WriteString("INSERT INTO " + table +
		" (shard, topic, key, event_id, event_type, payload, headers) VALUES ")
	for i := range n {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteByte('(')
		for j, t := range types {
			if j > 0 {
				b.WriteString(", ")
			}
			b.WriteString("$" + strconv.Itoa(i*len(types)+j+1) + "::" + t)
		}
		b.WriteByte(')')
	}
	return b.String()
}
