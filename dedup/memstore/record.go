package memstore

import (
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/internal/decision"
)

// record is the state of one key.
type record struct {
	decision.Record

	differing []dedup.Origin // copies with another content
	index     int            // in the heap
}

func newRecord(q *dedup.Request, now time.Time) *record {
	return &record{Record: *decision.New(q, now)}
}
