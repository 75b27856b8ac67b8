package sqlstore

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/internal/decision"
)

// Renew implements [dedup.Store]. After the end of the lease a worker still holds a claim until
// another worker takes the claim over.
func (s *Store) Renew(ctx context.Context, lease time.Duration, claims []dedup.Claim) error {
	if lease <= 0 {
		return s.wrong("renew", errLease)
	}
	return held(ctx, s, "renew", claims, func(c *dedup.Claim) dedup.Key { return c.Key },
		func(r *decision.Record, c *dedup.Claim, now time.Time) (served, changed bool) {
			if !r.HeldBy(c.Token) {
				return false, false
			}
			r.Renew(lease, now)
			return true, true
		})
}

// Complete implements [dedup.Store]. The record of a lost claim stays as it is, with or without a
// result.
func (s *Store) Complete(ctx context.Context, done []dedup.Completion) error {
	for i := range done {
		if done[i].Retention <= 0 {
			return s.wrong("complete", fmt.Errorf("key %q: %w", done[i].Key, errRetention))
		}
	}
	return held(ctx, s, "complete", done, func(c *dedup.Completion) dedup.Key { return c.Key },
		func(r *decision.Record, c *dedup.Completion, now time.Time) (served, changed bool) {
			old := r.Expires
			served, changed = r.Complete(c, now)
			r.Expires = later(r.Expires, old)
			return served, changed
		})
}

// Release implements [dedup.Store].
func (s *Store) Release(ctx context.Context, claims []dedup.Release) error {
	for i := range claims {
		if claims[i].Retention <= 0 {
			return s.wrong("release", fmt.Errorf("key %q: %w", claims[i].Key, errRetention))
		}
	}
	return held(ctx, s, "release", claims, func(c *dedup.Release) dedup.Key { return c.Key },
		func(r *decision.Record, c *dedup.Release, now time.Time) (served, changed bool) {
			old := r.Expires
			served, changed = r.Release(c, now)
			r.Expires = later(r.Expires, old)
			return served, changed
		})
}

// held runs a verb on claims, in the order of their keys.
func held[T any](ctx context.Context, s *Store, verb string, claims []T, keyOf func(*T) dedup.Key,
	serve func(*decision.Record, *T, time.Time) (served, changed bool)) error {
	if len(claims) == 0 {
		return nil
	}
	keys := make([]dedup.Key, len(claims))
	for i := range claims {
		keys[i] = keyOf(&claims[i])
		if err := keys[i].Validate(); err != nil {
			return s.wrong(verb, err)
		}
	}
	slices.SortFunc(keys, dedup.Key.Compare)
	var lost []int
	err := s.ownTx(ctx, verb, nil, func(ctx context.Context, w *work) error {
		lost = nil
		found, err := w.read(ctx, keysTable, keys, w.d.Lock)
		if err != nil {
			return err
		}
		var changes []*decision.Record
		for i := range claims {
			r, there := found[keyOf(&claims[i])]
			if !there {
				lost = append(lost, i)
				continue
			}
			served, changed := serve(r, &claims[i], w.now)
			if !served {
				lost = append(lost, i)
			}
			if changed {
				changes = append(changes, r)
			}
		}
		return keysTable.replace(ctx, w.q, w.d, changes)
	})
	if err != nil {
		return err
	}
	return dedup.Lost(lost)
}
