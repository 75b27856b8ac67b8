package dynamostore

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/idem-go/idem/dedup"
)

// Claim implements [dedup.Store] with one conditional write for each key. A second write follows
// if the key was released, if the lease has ended, or if the key was claimed with the same
// token. The first call for a scope also asks for the birth of the scope.
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
	old, err := s.tooOld(ctx, reqs)
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
			return next.granted(), nil
		}
		r = current
	}
	return dedup.Answer{}, errContended
}

// decide is the answer to a request that finds r, in the order of the contract's table. A non-nil
// next must replace r before the answer is given.
func (s *Store) decide(q ask, r *record, now time.Time) (a dedup.Answer, next *record) {
	if r == nil {
		if q.old {
			return dedup.Answer{Verdict: dedup.TooOld}, nil
		}
		next = &record{state: claimed, token: q.token, rev: rand.Uint64N(1 << 32), lease: q.lease,
			fence: 1, created: now,
			fingerprint: q.req.Fingerprint, first: q.req.Origin, position: q.req.Position}
		next.keep(q.req.Retention, now)
		return a, next
	}
	// the reply was lost: the same answer, with a new lease
	if r.heldBy(q.token) && !r.conflicts(q.req) {
		next = r.next(claimed, now)
		next.lease = q.lease
		next.keep(r.retention, now)
		return a, next
	}
	if a, settled := s.settled(q.key, r, q.req, now); settled {
		return a, nil
	}
	next = r.next(claimed, now)
	if r.state == claimed { // its holder neither completed nor released it
		next.doubt = true
		next.takeovers++
	}
	next.token, next.lease, next.position, next.reopened = q.token, q.lease, q.req.Position, false
	next.fence++
	// a replayed copy may have been repaired
	if next.fingerprint == (dedup.Fingerprint{}) && next.position.Generation == 0 {
		next.fingerprint = q.req.Fingerprint
	}
	next.keep(max(r.retention, q.req.Retention), now)
	return a, next
}

// settled is the answer to a request that is not granted.
func (s *Store) settled(key string, r *record, q *dedup.Request,
	now time.Time) (a dedup.Answer, ok bool) {
	var left time.Duration
	if r.state == claimed {
		left = s.watch.left(key, r, now)
	} else {
		s.watch.drop(key)
	}
	a.First = r.first
	if r.conflicts(q) {
		equal := *q
		equal.Fingerprint = r.fingerprint
		a, ok = s.settled(key, r, &equal, now)
		if !ok {
			a.First = r.first
		}
		return a.Conflicted(), true
	}
	switch {
	case r.state == done:
		a.Verdict, a.Result = dedup.Done, r.result
	case r.state == dead:
		a.Verdict, a.Reason = dedup.Dead, r.reason
	case left > 0:
		a.Verdict, a.Wait = dedup.Busy, left
	case r.overtaken(q.Position):
		a.Verdict = dedup.Rescheduled
	default:
		return dedup.Answer{}, false
	}
	return a, true
}

func (r *record) granted() dedup.Answer {
	a := dedup.Answer{Verdict: dedup.Fresh, Fence: r.fence, Failures: r.failures,
		Takeovers: r.takeovers, First: r.first}
	if r.doubt {
		a.Verdict = dedup.Uncertain
	}
	return a
}
