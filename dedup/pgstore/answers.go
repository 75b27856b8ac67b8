package pgstore

import (
	"context"
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

// look answers what is over already, without writing. A row that is being written is not seen: who takes what is left
// meets it. It pays where most events are duplicates, which come in runs, and costs a round trip where none are: a group
// begins with it if most events of the group before were known.
func (s *Store) look(ctx context.Context, reqs []dedup.Request, answers []dedup.Answer,
	text func(*statements, *requestRows) (string, []any)) error {
	rows := newRequestRows(reqs)
	return s.ownTx(ctx, "claim", func(q *statements, b *pgx.Batch) {
		clear(answers)
		sql, args := text(q, rows)
		b.Queue(sql, args...)
	}, func(results pgx.BatchResults) error {
		found, err := results.Query()
		if err != nil {
			return err
		}
		_, err = readRows(found, reqs, answers)
		return err
	})
}

// mostlyKnown reports whether more than half of the answers are about events that were there before.
func mostlyKnown(answers []dedup.Answer) bool {
	fresh := 0
	for i := range answers {
		if answers[i].Verdict.Held() {
			fresh++
		}
	}
	return 2*fresh < len(answers)
}

func unanswered(reqs []dedup.Request, answers []dedup.Answer) (open []dedup.Request, places []int) {
	for i := range answers {
		if answers[i].Verdict == 0 {
			open, places = append(open, reqs[i]), append(places, i)
		}
	}
	return open, places
}

// readAnswers reads what the two statements of a claim say. The first inserts rows and the second leaves those out, so
// if their numbers add up then the keys without an answer are exactly the new ones. If they do not, some row came, went
// or changed in between and nothing is known of any key without an answer.
func readAnswers(results pgx.BatchResults, reqs []dedup.Request, answers []dedup.Answer) (complete bool, err error) {
	var inserted int64
	if err := results.QueryRow().Scan(&inserted, nil); err != nil {
		return false, err
	}
	rows, err := results.Query()
	if err != nil {
		return false, err
	}
	answered, err := readRows(rows, reqs, answers)
	if err != nil {
		return false, err
	}
	if inserted+answered != int64(len(reqs)) {
		return false, nil
	}
	for i := range answers {
		if answers[i].Verdict == 0 {
			answers[i] = dedup.Answer{Verdict: dedup.Fresh, Fence: 1, First: reqs[i].Origin}
		}
	}
	return true, nil
}

var verdicts = map[string]dedup.Verdict{
	"fresh": dedup.Fresh, "uncertain": dedup.Uncertain, "busy": dedup.Busy, "done": dedup.Done, "dead": dedup.Dead,
	"moved": dedup.Moved, "conflict": dedup.Conflict, "too-old": dedup.TooOld,
}

// readRows reads answers and counts them. Duplicates are many: what is read into is made once.
func readRows(rows pgx.Rows, reqs []dedup.Request, answers []dedup.Answer) (answered int64, err error) {
	defer rows.Close()
	var (
		n, fence, wait      int64
		failures, takeovers int32
		verdict             string
		topic, reason       pgtype.Text
		partition           pgtype.Int4
		offset, schema      pgtype.Int8
		at                  pgtype.Timestamptz
		data                []byte
	)
	into := []any{&n, &verdict, &fence, &failures, &takeovers, &wait, &topic, &partition, &offset, &at, &reason,
		&schema, &data}
	for ; rows.Next(); answered++ {
		if err := rows.Scan(into...); err != nil {
			return answered, err
		}
		v, ok := verdicts[verdict]
		if !ok || n < 1 || n > int64(len(answers)) {
			return answered, errUnknown
		}
		first := dedup.Origin{Topic: topic.String, Partition: partition.Int32, Offset: offset.Int64}
		if at.Valid {
			first.Time = at.Time.UTC()
		}
		if topic := reqs[n-1].Origin.Topic; topic == first.Topic {
			first.Topic = topic // not another copy of the text for as long as the answer lives
		}
		answers[n-1] = dedup.Answer{Verdict: v, Fence: uint64(fence), Failures: uint32(failures), First: first,
			Takeovers: uint32(takeovers), Wait: time.Duration(wait) * time.Microsecond, Reason: reason.String,
			Result: dedup.Result{Schema: uint32(schema.Int64), Data: data}}
	}
	return answered, rows.Err()
}

func value[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}
