package pgstore

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"

	"github.com/idem-go/idem/dedup"
	"github.com/jackc/pgx/v5"
)

// turnOf is the number of the advisory lock that a transaction takes for a key which it does not want to wait for. All
// processes that share a store must make the same: it may never change. It has no meaning but this one, so that locks of the
// application do not meet it but by chance.
func turnOf(schema string, k *dedup.Key) int64 {
	sum := sha256.Sum256([]byte(dedup.Join("github.com/idem-go/idem/dedup/pgstore", schema, k.String())))
	return int64(binary.BigEndian.Uint64(sum[:])) //nolint:gosec // all bits count, the sign is one of them
}

// outOfTurn answers for a key that another transaction is at: with what is committed, as for a copy that is looking at a result
// too, else Busy. The transaction ends in the same round trip.
func (r *txRun) outOfTurn(rows *requestRows) error {
	var b pgx.Batch
	r.queueSettings(&b, false)
	b.Queue(r.q.lookEvents[rows.form], rows.existing()...)
	b.Queue("rollback")
	ctx, cancel := context.WithTimeout(r.ctx, r.db.silence)
	defer cancel()
	results := r.conn.SendBatch(ctx, &b)
	_, err := results.Exec()
	if err == nil {
		_, err = readExisting(results, r.reqs, r.answers)
	}
	if err == nil {
		_, err = results.Exec()
	}
	if err == nil && r.answers[0].Verdict == 0 {
		r.answers[0] = dedup.Answer{Verdict: dedup.Busy}
	}
	return cmp.Or(err, results.Close()) // closing tells what has failed already once more
}
