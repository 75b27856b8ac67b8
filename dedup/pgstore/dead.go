package pgstore

import (
	"github.com/idem-go/idem/dedup"
	"github.com/jackc/pgx/v5/pgtype"
)

// deadOrigins are the origins for the records of dead letters: those of the deliveries that were
// sent to the dead-letter topic. These need not be the first deliveries (rule 6). Few
// completions have such an origin, so a separate statement writes the origins.
type deadOrigins struct {
	claims []int // indices of the completions that have an origin
	topic  []string
	part   []int32
	offset []int64
	at     []pgtype.Timestamptz
	token  []pgtype.UUID
}

// add adds the origin of completion i, if the completion has one.
func (d *deadOrigins) add(i int, c *dedup.Completion) {
	if c.Dead == "" || c.First == (dedup.Origin{}) {
		return
	}
	d.claims = append(d.claims, i)
	d.topic, d.part = append(d.topic, storable(c.First.Topic)), append(d.part, c.First.Partition)
	d.offset, d.at = append(d.offset, c.First.Offset), append(d.at, timeOf(&c.First))
	d.token = append(d.token, pgtype.UUID{Bytes: c.Token, Valid: true})
}

func (d *deadOrigins) none() bool { return len(d.claims) == 0 }

func (d *deadOrigins) args(keys []any) []any {
	return append([]any{d.topic, d.part, d.offset, d.at, d.token}, keys...)
}
