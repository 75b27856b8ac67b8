package outboxrow

import (
	"crypto/sha256"

	"github.com/idem-go/idem/outbox"
)

// maxRows and maxBytes bound a statement that inserts rows.
const (
	maxRows  = 1000
	maxBytes = 4 << 20
)

// hashed is the usual length of a text to hash, which then needs no allocation.
const hashed = 256

// ShardOf returns the shard of an entry. The shard must be the same in every release and every
// database.
func ShardOf(e *outbox.Entry) int16 {
	text := make([]byte, 0, hashed)
	if e.Key == "" {
		text = append(text, e.ID...)
	} else {
		text = append(append(append(text, e.Topic...), 0), e.Key...)
	}
	sum := sha256.Sum256(text)
	return int16(sum[0]) % outbox.Shards
}

// Chunk returns the number of entries of the next statement: at least one, and at most rows of
// them, with up to 4 MiB in all. Zero rows means 1,000.
func Chunk(entries []outbox.Entry, rows int) int {
	if rows == 0 {
		rows = maxRows
	}
	size := 0
	for i := range entries {
		if size += entries[i].Size(); i > 0 && (size > maxBytes || i == rows) {
			return i
		}
	}
	return len(entries)
}
