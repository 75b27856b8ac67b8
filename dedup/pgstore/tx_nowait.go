package pgstore

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"

	"github.com/idem-go/idem/dedup"
	"github.com/jackc/pgx/v5"
)

// turnOf is the number of the advisory lock for a request with NoWait. All processes that share
// a store must compute the same number: never change it. The input begins with a name of this
// package, so that locks of the application have other numbers.
func turnOf(schema string, k *dedup.Key) int64 {
	sum := sha256.Sum256([]byte(dedup.Join("github.com/idem-go/idem/dedup/pgstore", schema,
		k.String())))
	return int64(binary.BigEndian.Uint64(sum[:])) //nolint:gosec // the sign is one of the bits
}

// outOfTurn answers if another transaction has the advisory lock of the key: by the committed row
// if there is one, otherwise Busy. The transaction ends in the same round trip.
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
	return cmp.Or(err, results.Close()) // Close repeats an error that a statement has returned
}
