package mysql

import (
	"context"
	"crypto/sha256"
	"database/sql"
	bytesof "encoding/binary"
	"slices"
	"strings"

	"github.com/idem-go/idem/internal/outboxrow"
	"github.com/idem-go/idem/outbox"
)

const (
	// slots is the number of rows of idem_outbox_locks. It must be the same in every release.
	slots = 4096
	// maxSlots is how many slots a transaction locks one by one. A transaction with more locks all.
	maxSlots = 256
	// maxRows bounds a statement that inserts, so that few texts of statements exist.
	maxRows = 100
)

// Add adds entries to the outbox, at once. The events are published if tx commits, and never
// otherwise. The order within each topic and key is the order of commits. Each entry gets its ID,
// see [outbox.Entry.Identify], and the trace of ctx in its headers, see [Propagator]. The entries
// of the caller are not changed. Payloads and headers may be reused after Add has returned.
//
// Add locks the topics and keys until the transaction ends. Call Add once, with all entries, as the
// last step. Transactions that call Add twice can deadlock with each other (error 1213), and the
// server has then rolled one of them back. Two events with one ID are found in one call only.
//
// The wait for other writers is bounded by innodb_lock_wait_timeout of the session, 50 s by
// default. Add then fails with error 1205, and tx must be rolled back. Stores of package sqlstore
// run a single event again after both errors.
//
// Errors that match [outbox.ErrEntry], [outbox.ErrNoParent] or [outbox.ErrSameID] add no entry, and
// tx can go on. Any other error is the database's: roll back. In a handler such an error matches
// [dedup.ErrUnavailable] if the event is not to blame.
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
		return addError(ctx, o.rows.Write(ctx, ready,
			func(ctx context.Context, entries []outbox.Entry) error {
				return insert(ctx, tx, entries)
			}))
	})
}

// insert writes entries, sorted. Their numbers ascend in the order of commits within each topic and
// key (rule 22). The reason is that a transaction draws numbers after it has got the locks of all
// its slots, and holds the locks until its end. That holds in every innodb_autoinc_lock_mode,
// because the counter only grows.
func insert(ctx context.Context, tx *sql.Tx, entries []outbox.Entry) error {
	outbox.Sort(entries)
	if text := lockText(entries); text != "" {
		if _, err := list(ctx, tx, text); err != nil {
			return err
		}
	}
	for len(entries) > 0 {
		n := outboxrow.Chunk(entries, maxRows)
		args, err := outboxrow.Columns(entries[:n])
		if err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, insertText(n), args...); err != nil {
			return err
		}
		entries = entries[n:]
	}
	return nil
}

// lockText returns the statement that locks the slots of entries, or "" for entries without keys. A
// locking read returns rows in their order, and locks them in this order. Without FORCE INDEX the
// server could read, and lock, the whole table.
func lockText(entries []outbox.Entry) string {
	var locks []int
	for i := range entries {
		if e := &entries[i]; e.Key != "" {
			locks = append(locks, slotOf(e))
		}
	}
	if len(locks) == 0 {
		return ""
	}
	slices.Sort(locks)
	where := ""
	if locks = slices.Compact(locks); len(locks) <= maxSlots {
		where = " WHERE slot IN " + numbers(locks)
	}
	return "SELECT slot FROM idem_outbox_locks FORCE INDEX (PRIMARY)" + where +
		" ORDER BY slot FOR UPDATE"
}

// slotOf returns the slot of the topic and key of an entry. The slot must be the same in every
// release, because releases run side by side.
func slotOf(e *outbox.Entry) int {
	sum := sha256.Sum256([]byte("idem.outbox\x00" + e.Topic + "\x00" + e.Key))
	return int(bytesof.BigEndian.Uint64(sum[:8]) % slots)
}

// insertText returns the statement for n rows. Their numbers ascend in this order.
func insertText(n int) string {
	const row = "(?, ?, ?, ?, ?, ?, ?)"
	return "INSERT INTO idem_outbox (shard, topic, `key`, event_id, event_type, payload, headers) " +
		"VALUES " + row + strings.Repeat(", "+row, n-1)
}
