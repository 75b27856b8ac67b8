package dynamostore

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/internal/decision"
)

var _ dedup.Operator = (*Store)(nil)

// Inspect implements [dedup.Operator] with one consistent read for each key. [dedup.Record.Tx]
// is always false. Times are those of the hosts that wrote. Expires is without the margin for
// their clocks. Lease is the rest that this store has to watch, or the rest by the writer's time
// if that is less. Lease is for display only. A record that the copy of a later attempt has
// released is shown as [dedup.Waiting].
func (s *Store) Inspect(ctx context.Context, keys ...dedup.Key) ([]dedup.Record, error) {
	for i := range keys {
		if err := keys[i].Validate(); err != nil {
			return nil, err
		}
	}
	views := make([]*dedup.Record, len(keys))
	err := s.each(len(keys), func(i int) error {
		key := keyOf(keys[i])
		r, err := s.read(ctx, key)
		now := s.now()
		if r != nil && !r.forgotten(now) {
			views[i] = s.view(keys[i], key, r, now)
		}
		return keyError(keys[i], err)
	})
	if err != nil {
		return nil, s.unavailable(ctx, "inspect", err)
	}
	var records []dedup.Record
	for _, v := range views {
		if v != nil {
			records = append(records, *v)
		}
	}
	return records, nil
}

// view is the representation of r for an operator.
func (s *Store) view(k dedup.Key, key string, r *record, now time.Time) *dedup.Record {
	shown := r.Record
	shown.Key = k
	if r.State == decision.Claimed {
		shown.Lease = now.Add(min(s.watch.left(key, r, now), r.Changed.Add(r.lease).Sub(now)))
	}
	if r.State == decision.Open && !r.Reopened && r.Position == (dedup.Position{}) {
		shown.LastCall = decision.Released
	}
	v := shown.View(now)
	return &v
}

// Forget implements [dedup.Operator] with a read and a conditional deletion. If the holder of a
// claim has crashed, Forget works after this store has watched the claim for the length of its
// lease. Until then the error matches [dedup.ErrHeld] and has the remaining time.
// [Store.Discard] does not wait. Fences begin anew. The birth of the scope stays: an event older
// than the horizon is still [dedup.TooOld]. If the SDK repeats a deletion after a lost answer,
// the error matches [dedup.ErrNotFound].
func (s *Store) Forget(ctx context.Context, key dedup.Key) error {
	if err := key.Validate(); err != nil {
		return err
	}
	name := keyOf(key)
	r, err := s.read(ctx, name)
	for range maxTries {
		if err != nil {
			return s.unavailable(ctx, "forget", keyError(key, err))
		}
		now := s.now()
		if r == nil || r.forgotten(now) {
			return keyError(key, dedup.ErrNotFound)
		}
		if r.State == decision.Claimed {
			if left := s.watch.left(name, r, now); left > 0 {
				return keyError(key, fmt.Errorf("%w, %v are left of its lease", dedup.ErrHeld,
					left.Round(time.Millisecond)))
			}
		}
		var ok bool
		if r, ok, err = s.remove(ctx, name, r); ok {
			s.watch.drop(name)
			return nil
		}
	}
	return s.unavailable(ctx, "forget", keyError(key, errContended))
}

// Discard implements [dedup.Operator] with a read and a write. The record is kept for the longer
// one of retention and the record's own.
func (s *Store) Discard(ctx context.Context, key dedup.Key, retention time.Duration,
	why string) error {
	if err := key.Validate(); err != nil {
		return err
	}
	if retention <= 0 {
		return keyError(key, errRetention)
	}
	if _, err := s.birth(ctx, key.Scope, s.now()); err != nil {
		return s.unavailable(ctx, "discard", err)
	}
	t := dedup.NewToken()
	return s.replace(ctx, "discard", key, func(r *record, now time.Time) (*record, error) {
		switch {
		case r == nil:
			r = &record{Record: decision.Record{Created: now}, rev: rand.Uint64N(1 << 32)}
		case r.State == decision.Done:
			return nil, dedup.ErrSettled
		}
		n := r.next()
		n.Discard(why, retention, now)
		n.Token = t // identifies this write
		n.stamp()
		return n, nil
	})
}

// Import implements [dedup.Operator] with one conditional write for each key, and one in ten
// minutes for each scope. [dedup.Imported.Tx] has no effect: there are no transactions of handlers.
// After an error some events may be imported. Repeat the call. The second call counts only the
// events that the failed call did not add.
func (s *Store) Import(ctx context.Context, events []dedup.Imported) (added int, err error) {
	scopes, first := make(map[string]struct{}), make(map[dedup.Key]int, len(events))
	var once []int
	for i := range events {
		e := &events[i]
		if err := e.Key.Validate(); err != nil {
			return 0, err
		}
		if e.Retention <= 0 {
			return 0, keyError(e.Key, errRetention)
		}
		if _, twice := first[e.Key]; !twice {
			first[e.Key] = i
			once = append(once, i)
		}
		scopes[e.Key.Scope] = struct{}{}
	}
	for scope := range scopes {
		if _, err := s.birth(ctx, scope, s.now()); err != nil {
			return 0, s.unavailable(ctx, "import", err)
		}
	}
	t, isNew := dedup.NewToken(), make([]bool, len(once))
	err = s.each(len(once), func(i int) (err error) {
		e := &events[once[i]]
		isNew[i], err = s.add(ctx, t, e)
		return keyError(e.Key, err)
	})
	if err != nil {
		return 0, s.unavailable(ctx, "import", err)
	}
	for _, n := range isNew {
		if n {
			added++
		}
	}
	return added, nil
}

func (s *Store) add(ctx context.Context, t dedup.Token, e *dedup.Imported) (bool, error) {
	for range maxTries {
		now := s.now()
		r := &record{
			Record: decision.Record{
				State: decision.Done, Token: t, First: e.Origin, Created: now,
			},
			rev: rand.Uint64N(1 << 32),
		}
		r.Keep(e.Retention, now)
		r.stamp()
		current, ok, err := s.put(ctx, keyOf(e.Key), nil, r, now)
		switch {
		case err != nil:
			return false, err
		case ok:
			return true, nil
		case current != nil:
			return current.Token == t, nil // a repetition by the SDK after a lost answer
		}
	}
	return false, errContended
}
