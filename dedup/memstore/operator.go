package memstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/internal/decision"
)

// errRetention is the error for a retention of zero or less.
var errRetention = errors.New("retention must be positive")

// Inspect implements [dedup.Operator]. The records of one call are of one time.
func (s *Store) Inspect(ctx context.Context, keys ...dedup.Key) ([]dedup.Record, error) {
	for i := range keys {
		if err := keys[i].Validate(); err != nil {
			return nil, fmt.Errorf("memstore: inspect: %w", err)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now, err := begin(ctx, "inspect")
	if err != nil {
		return nil, err
	}
	var all []dedup.Record
	for i := range keys {
		if r := s.lookUp(keys[i], now); r != nil {
			all = append(all, r.View(now))
		}
	}
	return all, nil
}

// Forget implements [dedup.Operator]. The scope's horizon stays: an older event without a later
// position is TooOld as before.
func (s *Store) Forget(ctx context.Context, key dedup.Key) error {
	if err := key.Validate(); err != nil {
		return fmt.Errorf("memstore: forget: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now, err := begin(ctx, "forget")
	if err != nil {
		return err
	}
	r := s.lookUp(key, now)
	switch {
	case r == nil:
		return fmt.Errorf("memstore: forget %q: %w", key, dedup.ErrNotFound)
	case r.State == decision.Claimed && r.Lease.After(now):
		return fmt.Errorf("memstore: forget %q: %w", key, dedup.ErrHeld)
	}
	s.drop(r)
	return nil
}

// Discard implements [dedup.Operator]. The record is kept for retention, or for the rest of its own
// if that is longer. An unknown key needs room, else the error matches [dedup.ErrFull].
func (s *Store) Discard(ctx context.Context, key dedup.Key, retention time.Duration,
	reason string) error {
	if err := key.Validate(); err != nil {
		return fmt.Errorf("memstore: discard: %w", err)
	}
	if retention <= 0 {
		return fmt.Errorf("memstore: discard %q: %w", key, errRetention)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now, err := begin(ctx, "discard")
	if err != nil {
		return err
	}
	r := s.lookUp(key, now)
	switch {
	case r == nil:
		if err := s.makeRoom(now, "discard", 1, func() int { return 1 }); err != nil {
			return err
		}
		r = newRecord(&dedup.Request{Key: key}, now)
		r.Discard(reason, retention, now)
		s.add(r)
		return nil
	case r.State == decision.Done:
		return fmt.Errorf("memstore: discard %q: %w", key, dedup.ErrSettled)
	}
	r.Discard(reason, retention, now)
	s.expiry.fix(r)
	return nil
}

// Import implements [dedup.Operator]. [dedup.Imported.Tx] is ignored, since there are no
// transactions. After an error, such as [dedup.ErrFull], no event is imported.
func (s *Store) Import(ctx context.Context, events []dedup.Imported) (added int, err error) {
	for i := range events {
		if err := events[i].Key.Validate(); err != nil {
			return 0, fmt.Errorf("memstore: import: %w", err)
		}
		if events[i].Retention <= 0 {
			return 0, fmt.Errorf("memstore: import: key %q: %w", events[i].Key, errRetention)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now, err := begin(ctx, "import")
	if err != nil {
		return 0, err
	}
	if err := s.makeRoom(now, "import", len(events), func() int {
		return s.unknownOf(now, events)
	}); err != nil {
		return 0, err
	}
	for i := range events {
		e := &events[i]
		if s.lookUp(e.Key, now) != nil {
			continue
		}
		r := newRecord(&dedup.Request{Key: e.Key, Origin: e.Origin}, now)
		r.State = decision.Done
		r.Keep(e.Retention, now)
		s.add(r)
		added++
	}
	return added, nil
}

// unknownOf returns how many of events would make a record, each once.
func (s *Store) unknownOf(now time.Time, events []dedup.Imported) int {
	unknown := make(map[dedup.Key]struct{})
	for i := range events {
		if s.lookUp(events[i].Key, now) == nil {
			unknown[events[i].Key] = struct{}{}
		}
	}
	return len(unknown)
}

// List implements [dedup.Lister]. The records are of one time; yield may use the store. A renewal
// of a lease is a change. Records that changed at the same time are in the order of their keys.
func (s *Store) List(ctx context.Context, f dedup.Filter, limit int,
	yield func(dedup.Record) bool) error {
	all, err := s.choose(ctx, "list", func(r *record, now time.Time) bool {
		return r.chosen(&f, now)
	})
	if err != nil {
		return err
	}
	slices.SortFunc(all, func(a, b dedup.Record) int {
		return cmp.Or(a.Changed.Compare(b.Changed), a.Key.Compare(b.Key))
	})
	if limit > 0 && len(all) > limit {
		all = all[:limit]
	}
	for _, r := range all {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("memstore: list: %w", err)
		}
		if !yield(r) {
			return nil
		}
	}
	return nil
}

// Find implements [dedup.Lister], in the order of the keys. Find reads every record.
func (s *Store) Find(ctx context.Context, scope, id string) ([]dedup.Record, error) {
	all, err := s.choose(ctx, "find", func(r *record, _ time.Time) bool {
		return r.Key.ID == id && (scope == "" || r.Key.Scope == scope)
	})
	slices.SortFunc(all, func(a, b dedup.Record) int { return a.Key.Compare(b.Key) })
	return all, err
}

// choose collects records under the lock, so that the reader of the records does not hold the
// lock.
func (s *Store) choose(ctx context.Context, verb string,
	want func(*record, time.Time) bool) ([]dedup.Record, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now, err := begin(ctx, verb)
	if err != nil {
		return nil, err
	}
	var all []dedup.Record
	for _, r := range s.records {
		if r.Expires.After(now) && want(r, now) {
			all = append(all, r.View(now))
		}
	}
	return all, nil
}

func (r *record) chosen(f *dedup.Filter, now time.Time) bool {
	switch {
	case f.Scope != "" && f.Scope != r.Key.Scope, f.Type != "" && f.Type != r.Key.Type:
		return false
	case len(f.States) > 0 && !slices.Contains(f.States, r.Shown()):
		return false
	case f.Unchanged > 0 && now.Sub(r.Changed) < f.Unchanged:
		return false
	case f.Stuck && (r.State != decision.Claimed || r.Lease.After(now)):
		return false
	}
	return true
}

// maxDiffering is how many copies with another content an event keeps.
const maxDiffering = 100

// NoteConflict implements [dedup.ConflictNoter]. The first 100 are kept for as long as the event is
// known.
func (s *Store) NoteConflict(ctx context.Context, key dedup.Key, copyOf dedup.Origin) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	now, err := begin(ctx, "note conflict")
	if err != nil {
		return err
	}
	if err := key.Validate(); err != nil {
		return fmt.Errorf("memstore: note conflict: %w", err)
	}
	copyOf.Time = time.Time{}
	if r := s.lookUp(key, now); r != nil && len(r.differing) < maxDiffering &&
		!slices.ContainsFunc(r.differing, copyOf.Same) {
		r.differing = append(r.differing, copyOf)
	}
	return nil
}

// Conflicts implements [dedup.ConflictNoter].
func (s *Store) Conflicts(ctx context.Context, key dedup.Key, limit int) ([]dedup.Origin, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now, err := begin(ctx, "conflicts")
	if err != nil {
		return nil, err
	}
	if err := key.Validate(); err != nil {
		return nil, fmt.Errorf("memstore: conflicts: %w", err)
	}
	if r := s.lookUp(key, now); r != nil {
		return slices.Clone(r.differing[:min(max(limit, 0), len(r.differing))]), nil
	}
	return nil, nil
}
