package pgstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

// Claim implements [dedup.Store] in one round trip: begin, insert, read existing rows, commit. A
// claim waits some seconds at most for an overlapping batch. Then the error matches
// [dedup.ErrUnavailable].
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

// claimAttempts bounds how often a claim repeats the question for keys that changed meanwhile.
// Each repeat asks for fewer keys. Three repeats are too few if many workers claim and release
// the same keys (P-04, rule 24).
const claimAttempts = 12

// claim asks for all keys, then again for those without an answer. Such a key, or another key of
// the batch, changed hands in the meantime. A repeat with the same token has no effect on a
// granted key.
func (s *Store) claim(ctx context.Context, t dedup.Token, lease time.Duration, reqs []dedup.Request,
	answers []dedup.Answer) error {
	numbers, err := s.dict.placesOf(ctx, reqs)
	if err != nil {
		return err
	}
	open := reqs     // not answered yet
	var places []int // indices of open in reqs; nil: the same
	if len(reqs) > 1 && s.keys.most() {
		err := lookFor(ctx, s.db, reqs, answers, numbers,
			func(q *statements, rows *requestRows) (string, []any) {
				return q.lookKeys[rows.form], rows.existing(rows.tokens(t))
			})
		if err != nil {
			return err
		}
		open, places = unanswered(reqs, answers)
	}
	for try := 1; len(open) > 0; try++ {
		some := answers
		if places != nil {
			some = make([]dedup.Answer, len(open))
		}
		complete, err := s.claimOnce(ctx, t, lease, open, some, placesAt(numbers, places))
		if err != nil {
			return err
		}
		for i, p := range places {
			answers[p] = some[i]
		}
		if complete {
			break
		}
		if try == claimAttempts {
			return s.db.failed(ctx, "claim", errNoAnswer)
		}
		open, places = unanswered(reqs, answers)
	}
	s.keys.learn(answers)
	return nil
}

func (s *Store) claimOnce(ctx context.Context, t dedup.Token, lease time.Duration,
	reqs []dedup.Request, answers []dedup.Answer, numbers []place) (complete bool, err error) {
	rows := newRequestRows(reqs, numbers)
	tokens := rows.tokens(t)
	err = s.db.ownTx(ctx, "claim", func(q *statements, b *pgx.Batch) {
		clear(answers)
		b.Queue(q.insertKeys[rows.form], rows.insert(tokens, microseconds(lease))...)
		b.Queue(q.existingKeys[rows.form], rows.existing(tokens, microseconds(lease))...)
	}, func(results pgx.BatchResults) error {
		var inserted, answered int64
		err := results.QueryRow().Scan(&inserted, nil)
		if err == nil {
			answered, err = readExisting(results, reqs, answers)
		}
		complete = err == nil && readFresh(reqs, answers, inserted, answered)
		return err
	})
	return complete, err
}

// Renew implements [dedup.Store]. After the end of the lease a worker still holds a claim until
// another worker takes the claim over.
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
	lost, err := s.held(ctx, "renew", rows, func(q *statements) string { return q.renew }, nil,
		microseconds(lease))
	return cmp.Or(err, dedup.Lost(lost))
}

// Complete implements [dedup.Store]. The record of a lost claim stays as it is, with or without a
// result.
func (s *Store) Complete(ctx context.Context, done []dedup.Completion) error {
	rows, ends := newClaimRows(len(done)), newEndRows(len(done))
	var dead deadOrigins
	for i := range done {
		if err := errors.Join(rows.add(&done[i].Claim), ends.add(&done[i])); err != nil {
			return fmt.Errorf("pgstore: complete: %w", err)
		}
		dead.add(i, &done[i])
	}
	if dead.none() {
		return s.complete(ctx, rows, nil, ends)
	}
	if err := s.dict.numberOrigins(ctx, dead.topic, dead.part); err != nil {
		return err
	}
	keys := newKeyRows(len(dead.claims))
	for _, i := range dead.claims {
		keys.add(&done[i].Key)
	}
	args, err := s.dict.keyArgs(ctx, &keys)
	if err != nil {
		return err
	}
	return s.complete(ctx, rows,
		func(q *statements, b *pgx.Batch) { b.Queue(q.originKeys, dead.args(args)...) }, ends)
}

// complete ends claims. Claims that were not held may be those of an earlier call that has lost its
// answer. These are looked up in a statement of their own.
func (s *Store) complete(ctx context.Context, claims *claimRows,
	then func(*statements, *pgx.Batch), ends *endRows) error {
	lost, err := s.held(ctx, "complete", claims,
		func(q *statements) string { return q.complete }, then, ends.args()...)
	if err != nil || len(lost) == 0 {
		return err
	}
	unknown, err := s.held(ctx, "complete", claims.at(lost),
		func(q *statements) string { return q.completed }, nil)
	for i, n := range unknown {
		unknown[i] = lost[n]
	}
	return cmp.Or(err, dedup.Lost(unknown))
}

// Release implements [dedup.Store].
func (s *Store) Release(ctx context.Context, claims []dedup.Release) error {
	rows := newClaimRows(len(claims))
	retentions := make([]int64, len(claims))
	failed, uncertain, undone := make([]bool, len(claims)), make([]bool, len(claims)),
		make([]bool, len(claims))
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
		failed[i], uncertain[i], undone[i] = c.Outcome == dedup.Failed, c.Outcome == dedup.Unknown,
			c.Outcome == dedup.Undone
	}
	lost, err := s.held(ctx, "release", rows, func(q *statements) string { return q.release }, nil,
		retentions, failed, uncertain, undone)
	return cmp.Or(err, dedup.Lost(lost))
}

// held runs a verb on claims, and returns the indices of those that were not held. The statement
// answers with the indices of the others. The arguments are the tokens, more, and the keys. A
// non-nil then queues a statement without rows.
func (s *Store) held(ctx context.Context, verb string, claims *claimRows,
	text func(*statements) string, then func(*statements, *pgx.Batch),
	more ...any) (lost []int, err error) {
	n := len(claims.token)
	if n == 0 {
		return nil, nil
	}
	keys, err := s.dict.keyArgs(ctx, &claims.keyRows)
	if err != nil {
		return nil, err
	}
	args := slices.Concat([]any{claims.token}, more, keys)
	served := make([]bool, n)
	err = s.db.ownTx(ctx, verb, func(q *statements, b *pgx.Batch) {
		clear(served)
		b.Queue(text(q), args...)
		if then != nil {
			then(q, b)
		}
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
		if err == nil && then != nil {
			_, err = results.Exec()
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	for i, ok := range served {
		if !ok {
			lost = append(lost, i)
		}
	}
	return lost, nil
}

// claimRows are the columns of claims that are held.
type claimRows struct {
	keyRows
	token []pgtype.UUID
}

func newClaimRows(n int) *claimRows {
	return &claimRows{keyRows: newKeyRows(n), token: make([]pgtype.UUID, 0, n)}
}

// at returns the rows with the given indices.
func (r *claimRows) at(some []int) *claimRows {
	part := newClaimRows(len(some))
	for _, i := range some {
		part.keyRows.add(&dedup.Key{Tenant: r.tenant[i], Scope: r.scope[i], Type: r.typ[i], ID: r.id[i]})
		part.token = append(part.token, r.token[i])
	}
	return part
}

func (r *claimRows) add(c *dedup.Claim) error {
	r.keyRows.add(&c.Key)
	r.token = append(r.token, pgtype.UUID{Bytes: c.Token, Valid: true})
	return c.Key.Validate()
}
