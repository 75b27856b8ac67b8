package dynamostore

import (
	"context"
	"fmt"
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/internal/decision"
)

// Renew implements [dedup.Store]: one conditional write for each claim. A claim that cannot be
// renewed, as in a throttled partition, does not end the renewal of the others: the error is a
// [*dedup.PartError]. Renew gives up after 32 keys that all failed. Keys without an attempt count as
// failed.
func (s *Store) Renew(ctx context.Context, lease time.Duration, claims []dedup.Claim) error {
	if lease <= 0 {
		return errLease
	}
	lease = min(lease, maxRetention)
	var part dedup.PartError
	served, held := make([]bool, len(claims)), make([]bool, len(claims))
	err := s.eachUntil(len(claims), allFailed, func(i int) (err error) {
		held[i], err = s.renew(ctx, lease, &claims[i])
		served[i] = err == nil
		return keyError(claims[i].Key, err)
	})
	for i := range claims {
		switch {
		case !served[i]:
			part.Failed = append(part.Failed, i)
		case !held[i]:
			part.Lost = append(part.Lost, i)
		}
	}
	if err == nil {
		return dedup.Lost(part.Lost)
	}
	part.Err = s.unavailable(ctx, "renew", err)
	return &part
}

func (s *Store) renew(ctx context.Context, lease time.Duration, held *dedup.Claim) (bool, error) {
	key, now, c := keyOf(held.Key), s.now(), newChange()
	c.to(aLease, number(millis(lease)))
	c.to(aChanged, number(now.UnixMilli()))
	c.set = append(c.set, fmt.Sprintf("%s = %s + %s", c.name(aExpires), c.name(aRetention),
		c.value("expires", number(expiry(decision.Claimed, now.Add(lease), 0)))))
	updated, _, ok, err := s.speak(ctx, key, held.Token, c)
	if !ok || err != nil {
		return false, err
	}
	d := decoder{item: updated}
	s.watch.saw(key, claimOf(held.Token, d.unsigned(aRev, 64), lease), s.now())
	return true, nil
}

// Complete implements [dedup.Store] with one conditional write for each claim. A lost claim
// leaves the item as it is, with or without a result. If a result has more than
// [Store.MaxResult] bytes, the whole call is refused. The error does not match
// [dedup.ErrUnavailable], because a repeat would fail, too.
func (s *Store) Complete(ctx context.Context, completions []dedup.Completion) error {
	for i := range completions {
		c := &completions[i]
		if c.Retention <= 0 {
			return keyError(c.Key, errRetention)
		}
		if n := len(c.Result.Data); n > maxResult {
			return keyError(c.Key, fmt.Errorf("the result has %d bytes, the maximum is %d", n,
				maxResult))
		}
	}
	return s.end(ctx, "complete", len(completions), func(i int) (bool, error) {
		held, err := s.complete(ctx, &completions[i])
		return held, keyError(completions[i].Key, err)
	})
}

func (s *Store) complete(ctx context.Context, end *dedup.Completion) (bool, error) {
	c, state := newChange(), decision.Done
	switch {
	case end.Dead != "":
		state = decision.Dead
		c.to(aReason, text(decision.Reason(end.Dead)))
		for name, v := range originOf(end.First) { // the origin of the dead letter (rule 6)
			c.to(name, v)
		}
	case end.Retry != 0:
		state = decision.Open
		c.to(aRetry, unsigned(end.Retry))
	default:
		c.late = &end.Position
		if end.Result.Schema != 0 {
			c.to(aSchema, unsigned(end.Result.Schema))
		}
		if end.Result.Data != nil {
			c.to(aResult, binary(end.Result.Data))
		}
	}
	return s.settle(ctx, &end.Claim, c, state, end.Retention, func(r *record) bool {
		return r.State == state && (state != decision.Open || r.Position.Retry == end.Retry)
	})
}

// settle ends a claim in the given state. The function said reports whether a record with the same
// token is the result of this call. The SDK or the caller may have repeated the call after a lost
// answer.
func (s *Store) settle(ctx context.Context, held *dedup.Claim, c *change, state decision.State,
	retention time.Duration, said func(*record) bool,
) (bool, error) {
	key, now := keyOf(held.Key), s.now()
	retention = seconds(retention)
	c.to(aState, text(states[state]))
	c.to(aRetention, number(int64(retention/time.Second)))
	c.to(aExpires, number(expiry(state, now, retention)))
	c.to(aChanged, number(now.UnixMilli()))
	c.gone(aLease)
	_, current, ok, err := s.speak(ctx, key, held.Token, c)
	if err != nil {
		return false, err
	}
	if ok {
		s.watch.drop(key)
		return true, nil
	}
	return current != nil && current.Token == held.Token && said(current), nil
}

// Release implements [dedup.Store]: one conditional write for each claim.
func (s *Store) Release(ctx context.Context, claims []dedup.Release) error {
	for i := range claims {
		if claims[i].Retention <= 0 {
			return keyError(claims[i].Key, errRetention)
		}
	}
	return s.end(ctx, "release", len(claims), func(i int) (bool, error) {
		held, err := s.release(ctx, &claims[i])
		return held, keyError(claims[i].Key, err)
	})
}

func (s *Store) release(ctx context.Context, back *dedup.Release) (bool, error) {
	c := newChange()
	switch back.Outcome {
	case dedup.Failed:
		c.plusOne(aFailures)
	case dedup.Unknown:
		c.to(aDoubt, yes)
	case dedup.Undone:
		if held, err := s.undone(ctx, back); held || err != nil {
			return held, err
		} // an earlier run is uncertain: its fingerprint stays
	case dedup.Unstarted:
	}
	return s.settle(ctx, &back.Claim, c, decision.Open, back.Retention,
		func(r *record) bool { return r.State == decision.Open })
}

// undone releases a claim with the fingerprint, unless an earlier run is uncertain.
func (s *Store) undone(ctx context.Context, back *dedup.Release) (bool, error) {
	c := newChange()
	c.gone(aFingerprint)
	c.only = fmt.Sprintf("attribute_not_exists(%s)", c.name(aDoubt))
	return s.settle(ctx, &back.Claim, c, decision.Open, back.Retention,
		func(r *record) bool { return r.State == decision.Open })
}

// end serves the items of one call and collects those that are not held. After an error, no further
// item is served.
func (s *Store) end(ctx context.Context, verb string, n int,
	serve func(i int) (held bool, err error)) error {
	held := make([]bool, n)
	err := s.each(n, func(i int) (err error) {
		held[i], err = serve(i)
		return err
	})
	if err != nil {
		return s.unavailable(ctx, verb, err)
	}
	var lost []int
	for i, h := range held {
		if !h {
			lost = append(lost, i)
		}
	}
	return dedup.Lost(lost)
}

// Reopen implements [dedup.Operator] with a read and a write. The retention begins anew.
func (s *Store) Reopen(ctx context.Context, key dedup.Key) (dedup.Position, error) {
	if err := key.Validate(); err != nil {
		return dedup.Position{}, err
	}
	var p dedup.Position
	err := s.replace(ctx, "reopen", key, func(r *record, now time.Time) (*record, error) {
		if r == nil {
			return nil, dedup.ErrNotDead
		}
		p = r.Position
		if r.Reopened { // a repeated call
			return nil, nil
		}
		n := r.next()
		if !n.Reopen(now) {
			return nil, dedup.ErrNotDead
		}
		n.stamp()
		p = n.Position
		return n, nil
	})
	if err != nil {
		return dedup.Position{}, err
	}
	return p, nil
}

// replace reads an item and writes the result of change, again if the item has changed in
// between. A missing record is nil. If change returns nil, replace writes no item. Errors of
// change are returned unchanged, all others are the store's.
func (s *Store) replace(ctx context.Context, verb string, k dedup.Key,
	change func(*record, time.Time) (*record, error)) error {
	key := keyOf(k)
	r, err := s.read(ctx, key)
	for range maxTries {
		if err != nil {
			return s.unavailable(ctx, verb, keyError(k, err))
		}
		now := s.now()
		if r != nil && r.forgotten(now) {
			r = nil
		}
		next, refusal := change(r, now)
		if next == nil || refusal != nil {
			return keyError(k, refusal)
		}
		var ok bool
		if r, ok, err = s.put(ctx, key, r, next, now); ok {
			s.watch.drop(key)
			return nil
		}
	}
	return s.unavailable(ctx, verb, keyError(k, errContended))
}
