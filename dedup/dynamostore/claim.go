package dynamostore

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/internal/decision"
)

// Claim implements [dedup.Store] with one conditional write for each key. A second write follows
// if the key was released, if the lease has ended, or if the key was claimed with the same
// token. One call in ten minutes also asks for the birth of the scope.
func (s *Store) Claim(ctx context.Context, t dedup.Token, lease time.Duration, reqs []dedup.Request,
	answers []dedup.Answer,
) error {
	if err := dedup.CheckRequests(reqs, answers); err != nil {
		return err
	}
	if lease <= 0 {
		return errLease
	}
	lease = min(lease, maxRetention)
	old, err := s.tooOld(ctx, reqs, true, s.birth)
	if err == nil {
		err = s.each(len(reqs), func(i int) error {
			a, err := s.claim(ctx, ask{key: keyOf(reqs[i].Key), token: reqs[i].TokenOr(t), lease: lease,
				req: &reqs[i], old: old[i]})
			answers[i] = a
			return keyError(reqs[i].Key, err)
		})
	}
	if err != nil {
		clear(answers)
		return s.unavailable(ctx, "claim", err)
	}
	return nil
}

// ask is one request of a claim.
type ask struct {
	key   string
	token dedup.Token
	lease time.Duration
	req   *dedup.Request
	old   bool // too old to be claimed without a record
}

func (s *Store) claim(ctx context.Context, q ask) (dedup.Answer, error) {
	var r *record
	if q.old { // otherwise it is written at once, and a refusal returns the item
		var err error
		if r, err = s.read(ctx, q.key); err != nil {
			return dedup.Answer{}, err
		}
	}
	for range maxTries {
		now := s.now()
		if r != nil && r.forgotten(now) {
			r = nil
		}
		a, next := s.decide(q, r, now)
		if next == nil {
			return a, nil
		}
		current, ok, err := s.put(ctx, q.key, r, next, now)
		if err != nil {
			return dedup.Answer{}, err
		}
		if ok {
			s.watch.saw(q.key, next, s.now())
			return a, nil
		}
		r = current
	}
	return dedup.Answer{}, errContended
}

// decide is the answer to a request that finds r. A non-nil next must replace r before the answer
// is given.
func (s *Store) decide(q ask, r *record, now time.Time) (a dedup.Answer, next *record) {
	switch {
	case r != nil:
		s.measure(q.key, r, now)
		next = r.next()
	case q.old:
		return dedup.Answer{Verdict: dedup.TooOld}, nil
	default:
		next = &record{Record: *decision.New(q.req, now), rev: rand.Uint64N(1 << 32)}
	}
	a = next.Claim(q.token, q.lease, q.req, now)
	if a.Verdict != dedup.Fresh && a.Verdict != dedup.Uncertain {
		return a, nil
	}
	next.lease = q.lease
	next.stamp()
	return a, next
}

// measure sets the end of the lease of a claim, as far as this store has watched the claim.
func (s *Store) measure(key string, r *record, now time.Time) {
	if r.State != decision.Claimed {
		s.watch.drop(key)
		return
	}
	r.Lease = now.Add(s.watch.left(key, r, now))
}
