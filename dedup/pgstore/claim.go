package pgstore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/jackc/pgx/v5"
)

// Claim implements [dedup.Store]: begin, insert, look at what was there, commit, in one round trip. Waiting for a batch
// that overlaps takes at most some seconds; then the error matches [dedup.ErrUnavailable].
func (s *Store) Claim(ctx context.Context, t dedup.Token, lease time.Duration, reqs []dedup.Request,
	answers []dedup.Answer) error {
	if err := dedup.CheckRequests(reqs, answers); err != nil {
		return fmt.Errorf("pgstore: claim: %w", err)
	}
	if lease <= 0 {
		return fmt.Errorf("pgstore: claim: lease %v is not positive", lease)
	}
	if len(reqs) == 0 {
		return nil
	}
	err := s.claim(ctx, t, lease, reqs, answers)
	if err != nil {
		clear(answers)
	}
	return err
}

// claim asks for all keys, then again for those without an answer: they changed hands while they were asked for, or are
// in the same boat as one that did. A repeat with the same token changes nothing for a key that was granted.
func (s *Store) claim(ctx context.Context, t dedup.Token, lease time.Duration, reqs []dedup.Request,
	answers []dedup.Answer) error {
	open := reqs     // still to be answered
	var places []int // of open in reqs; nil: the same
	for try := 1; ; try++ {
		some := answers
		if places != nil {
			some = make([]dedup.Answer, len(open))
		}
		complete, err := s.claimOnce(ctx, t, lease, open, some)
		if err != nil {
			return err
		}
		for i, p := range places {
			answers[p] = some[i]
		}
		if complete {
			return nil
		}
		if try == attempts {
			return ledgerError(ctx, "claim", errNoAnswer)
		}
		open, places = unanswered(reqs, answers)
	}
}

func unanswered(reqs []dedup.Request, answers []dedup.Answer) (open []dedup.Request, places []int) {
	for i := range answers {
		if answers[i].Verdict == 0 {
			open, places = append(open, reqs[i]), append(places, i)
		}
	}
	return open, places
}

func (s *Store) claimOnce(ctx context.Context, t dedup.Token, lease time.Duration, reqs []dedup.Request,
	answers []dedup.Answer) (complete bool, err error) {
	rows := newRequestRows(reqs)
	err = s.ownTx(ctx, "claim", func(q *statements, b *pgx.Batch) {
		clear(answers)
		b.Queue(q.insertKeys, append(rows.insert(), t, microseconds(lease))...)
		b.Queue(q.existingKeys, append(rows.existing(), t, microseconds(lease))...)
	}, func(results pgx.BatchResults) (err error) {
		complete, err = readAnswers(results, reqs, answers)
		return err
	})
	return complete, err
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
	defer rows.Close()
	answered := int64(0)
	for ; rows.Next(); answered++ {
		if err := readAnswer(rows, answers); err != nil {
			return false, err
		}
	}
	if err := rows.Err(); err != nil {
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
	"moved": dedup.Moved, "conflict": dedup.Conflict,
}

func readAnswer(rows pgx.Rows, answers []dedup.Answer) error {
	var (
		n, fence, wait      int64
		failures, takeovers int32
		verdict             string
		topic, reason       *string
		partition           *int32
		offset, schema      *int64
		at                  *time.Time
		data                []byte
	)
	err := rows.Scan(&n, &verdict, &fence, &failures, &takeovers, &wait, &topic, &partition, &offset, &at, &reason,
		&schema, &data)
	if err != nil {
		return err
	}
	v, ok := verdicts[verdict]
	if !ok || n < 1 || n > int64(len(answers)) {
		return errUnknown
	}
	a := dedup.Answer{Verdict: v, Fence: uint64(fence), Failures: uint32(failures), Takeovers: uint32(takeovers),
		Wait: time.Duration(wait) * time.Microsecond, Reason: value(reason),
		Result: dedup.Result{Schema: uint32(value(schema)), Data: data},
		First:  dedup.Origin{Topic: value(topic), Partition: value(partition), Offset: value(offset)}}
	if at != nil {
		a.First.Time = at.UTC()
	}
	answers[n-1] = a
	return nil
}

func value[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}

// Renew implements [dedup.Store]. A claim whose lease ended is still held while nobody has taken it over.
func (s *Store) Renew(ctx context.Context, lease time.Duration, claims []dedup.Claim) error {
	if lease <= 0 {
		return fmt.Errorf("pgstore: renew: lease %v is not positive", lease)
	}
	rows := newClaimRows(len(claims))
	for i := range claims {
		if err := rows.add(&claims[i]); err != nil {
			return fmt.Errorf("pgstore: renew: %w", err)
		}
	}
	return s.held(ctx, "renew", len(claims), func(q *statements) (string, []any) {
		return q.renew, append(rows.args(), microseconds(lease))
	})
}

// Complete implements [dedup.Store]. A claim that was lost leaves its record as it is, whether there is a result or
// not.
func (s *Store) Complete(ctx context.Context, done []dedup.Completion) error {
	rows, ends := newClaimRows(len(done)), newEndRows(len(done))
	for i := range done {
		if err := errors.Join(rows.add(&done[i].Claim), ends.add(&done[i])); err != nil {
			return fmt.Errorf("pgstore: complete: %w", err)
		}
	}
	return s.held(ctx, "complete", len(done), func(q *statements) (string, []any) {
		return q.complete, append(rows.args(), ends.args()...)
	})
}

// Release implements [dedup.Store].
func (s *Store) Release(ctx context.Context, claims []dedup.Release) error {
	rows := newClaimRows(len(claims))
	retentions := make([]int64, len(claims))
	failed, uncertain := make([]bool, len(claims)), make([]bool, len(claims))
	for i := range claims {
		c := &claims[i]
		err := rows.add(&c.Claim)
		if err == nil && c.Retention <= 0 {
			err = fmt.Errorf("key %q: retention must be positive", c.Key)
		}
		if err != nil {
			return fmt.Errorf("pgstore: release: %w", err)
		}
		retentions[i] = microseconds(c.Retention)
		failed[i], uncertain[i] = c.Outcome == dedup.Failed, c.Outcome == dedup.Unknown
	}
	return s.held(ctx, "release", len(claims), func(q *statements) (string, []any) {
		return q.release, append(rows.args(), retentions, failed, uncertain)
	})
}

// held runs a verb on n claims that answers with the numbers of those that were held.
func (s *Store) held(ctx context.Context, verb string, n int, text func(*statements) (string, []any)) error {
	if n == 0 {
		return nil
	}
	served := make([]bool, n)
	err := s.ownTx(ctx, verb, func(q *statements, b *pgx.Batch) {
		clear(served)
		sql, args := text(q)
		b.Queue(sql, args...)
	}, func(results pgx.BatchResults) error {
		rows, err := results.Query()
		if err != nil {
			return err
		}
		var i int64
		_, err = pgx.ForEachRow(rows, []any{&i}, func() error {
			if i < 1 || i > int64(n) {
				return errUnknown
			}
			served[i-1] = true
			return nil
		})
		return err
	})
	if err != nil {
		return err
	}
	var lost []int
	for i, ok := range served {
		if !ok {
			lost = append(lost, i)
		}
	}
	return dedup.Lost(lost)
}
