package memstore

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/idem-go/idem/dedup"
)

// DefaultCapacity is the capacity of a store without the option [Capacity], in keys.
const DefaultCapacity = 1_000_000

// Option changes the store that [New] makes.
type Option func(*Store)

// Volatile declares that the loss of all events at a restart is wanted. Without this option a
// consumer of a real broker refuses the store.
func Volatile() Option { return func(s *Store) { s.volatile = true } }

// Capacity sets how many keys the store holds, in any state, and also how many deferred events. The
// default is [DefaultCapacity]; less than 1 means the default. A full store refuses new keys
// ([dedup.ErrFull]) and never evicts.
func Capacity(n int) Option {
	return func(s *Store) {
		if n > 0 {
			s.capacity = n
		}
	}
}

// Store keeps events in memory. Make one with [New]. A Store is safe for concurrent use.
type Store struct {
	capacity int
	volatile bool

	mu        sync.Mutex
	records   map[dedup.Key]*record
	expiry    expiryHeap
	forgotten map[string]time.Time // by scope: the last change of a record that expired
	queues    map[topic]*queues    // of deferred events
	deferred  int                  // number of deferred events
	turns     uint64               // see deferred.turn
}

var (
	_ dedup.Store     = (*Store)(nil)
	_ dedup.Looker    = (*Store)(nil)
	_ dedup.Volatiler = (*Store)(nil)
	_ dedup.Operator  = (*Store)(nil)
	_ dedup.Lister    = (*Store)(nil)
	_ dedup.Deferrer  = (*Store)(nil)

	_ dedup.ConflictNoter = (*Store)(nil)
)

// New returns an empty store.
func New(opts ...Option) *Store {
	s := &Store{
		capacity: DefaultCapacity, records: make(map[dedup.Key]*record),
		forgotten: make(map[string]time.Time),
		queues:    make(map[topic]*queues),
	}
	for _, o := range opts {
		o(s)
	}
	return s
}

// Len returns how many keys the store holds, with those that have expired and were not swept yet.
func (s *Store) Len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.records)
}

// Volatile returns nil if the option [Volatile] was given, else an error that names the choices.
func (s *Store) Volatile() error {
	if s.volatile {
		return nil
	}
	return errors.New("memstore forgets every event at a restart while the offsets stay " +
		"committed: use a durable store, such as dedup/sqlstore/sqlite, or declare with memstore.Volatile() that handling " +
		"events again is acceptable")
}

// Claim implements [dedup.Store]. After an error no key is claimed.
func (s *Store) Claim(ctx context.Context, t dedup.Token, lease time.Duration, reqs []dedup.Request,
	answers []dedup.Answer) error {
	if err := dedup.CheckRequests(reqs, answers); err != nil {
		return fmt.Errorf("memstore: claim: %w", err)
	}
	if lease <= 0 {
		return fmt.Errorf("memstore: claim: lease %v is not positive", lease)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now, err := begin(ctx, "claim")
	if err != nil {
		return err
	}
	if err := s.makeRoom(now, "claim", len(reqs), func() int {
		return s.unknown(now, reqs)
	}); err != nil {
		return err
	}
	for i := range reqs {
		r := s.lookUp(reqs[i].Key, now)
		if r == nil && s.tooOld(&reqs[i]) {
			answers[i] = dedup.Answer{Verdict: dedup.TooOld}
			continue
		}
		if r == nil {
			r = newRecord(&reqs[i], now)
			answers[i] = r.Claim(reqs[i].TokenOr(t), lease, &reqs[i], now)
			s.add(r) // after claim, which sets the expiry
			continue
		}
		answers[i] = r.Claim(reqs[i].TokenOr(t), lease, &reqs[i], now)
		s.expiry.fix(r)
	}
	return nil
}

// Renew implements [dedup.Store]. A claim with an ended lease is held until another claim takes
// over.
func (s *Store) Renew(ctx context.Context, lease time.Duration, claims []dedup.Claim) error {
	if lease <= 0 {
		return fmt.Errorf("memstore: renew: lease %v is not positive", lease)
	}
	return each(ctx, s, "renew", claims, func(c *dedup.Claim, now time.Time) bool {
		r := s.lookUp(c.Key, now)
		if r == nil || !r.HeldBy(c.Token) {
			return false
		}
		r.Renew(lease, now)
		s.expiry.fix(r)
		return true
	})
}

// Complete implements [dedup.Store]. The record of a lost claim stays as it is, with or without a
// result.
func (s *Store) Complete(ctx context.Context, done []dedup.Completion) error {
	for i := range done {
		if done[i].Retention <= 0 {
			return fmt.Errorf("memstore: complete: key %q: retention must be positive", done[i].Key)
		}
	}
	return each(ctx, s, "complete", done, func(c *dedup.Completion, now time.Time) bool {
		r := s.lookUp(c.Key, now)
		if r == nil {
			return false
		}
		ok, _ := r.Complete(c, now)
		s.expiry.fix(r)
		return ok
	})
}

// Release implements [dedup.Store].
func (s *Store) Release(ctx context.Context, claims []dedup.Release) error {
	for i := range claims {
		if claims[i].Retention <= 0 {
			return fmt.Errorf("memstore: release: key %q: retention must be positive",
				claims[i].Key)
		}
	}
	return each(ctx, s, "release", claims, func(c *dedup.Release, now time.Time) bool {
		r := s.lookUp(c.Key, now)
		if r == nil {
			return false
		}
		ok, _ := r.Release(c, now)
		s.expiry.fix(r)
		return ok
	})
}

// Reopen implements [dedup.Operator]. Failures and take-overs of the dead generation are forgotten:
// else an event that was given up for them could never run again.
func (s *Store) Reopen(ctx context.Context, key dedup.Key) (dedup.Position, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now, err := begin(ctx, "reopen")
	if err != nil {
		return dedup.Position{}, err
	}
	r := s.lookUp(key, now)
	if r == nil || !r.Reopen(now) {
		return dedup.Position{}, fmt.Errorf("memstore: reopen %q: %w", key, dedup.ErrNotDead)
	}
	s.expiry.fix(r)
	return r.Position, nil
}

// begin reads the clock under the lock, so that the order of the calls is the order of their times.
func begin(ctx context.Context, verb string) (time.Time, error) {
	if err := ctx.Err(); err != nil {
		return time.Time{}, fmt.Errorf("memstore: %s: %w", verb, err)
	}
	return time.Now(), nil
}

// each calls serve for the items of one call, under the lock, and collects the lost ones.
func each[T any](ctx context.Context, s *Store, verb string, items []T,
	serve func(*T, time.Time) bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	now, err := begin(ctx, verb)
	if err != nil {
		return err
	}
	var lost []int
	for i := range items {
		if !serve(&items[i], now) {
			lost = append(lost, i)
		}
	}
	return dedup.Lost(lost)
}

// lookUp returns the record of key, or nil. An expired record is removed, and nil is returned.
func (s *Store) lookUp(key dedup.Key, now time.Time) *record {
	r := s.records[key]
	if r != nil && !r.Expires.After(now) {
		s.remove(r)
		return nil
	}
	return r
}

// remove forgets an expired record and notes its last change: an older event may be this one.
func (s *Store) remove(r *record) {
	s.drop(r)
	if spoken := r.Expires.Add(-r.Retention); spoken.After(s.forgotten[r.Key.Scope]) {
		s.forgotten[r.Key.Scope] = spoken
	}
}

// drop removes a record without a note.
func (s *Store) drop(r *record) {
	delete(s.records, r.Key)
	s.expiry.remove(r)
}

// add inserts a record with a set expiry.
func (s *Store) add(r *record) {
	s.records[r.Key] = r
	s.expiry.push(r)
}

// tooOld reports whether an event without a record may be a forgotten one (rule 8). A later copy is
// never too old, and a Kafka record without a time has no age.
func (s *Store) tooOld(q *dedup.Request) bool {
	if q.AnyAge || q.Position != (dedup.Position{}) || q.Origin.Time.UnixMilli() <= 0 {
		return false
	}
	forgotten, some := s.forgotten[q.Key.Scope]
	return some && !q.Origin.Time.After(forgotten)
}

// makeRoom removes expired records and returns an error if the new keys of a call do not fit. The
// argument most is the maximum number of new keys, and count returns the exact number. makeRoom
// removes more than most records if so many have expired. So if the keys do not fit afterwards, no
// other record has expired.
func (s *Store) makeRoom(now time.Time, verb string, most int, count func() int) error {
	s.sweep(now, sweeps(most))
	if len(s.records)+most <= s.capacity {
		return nil
	}
	if n := count(); len(s.records)+n > s.capacity {
		return fmt.Errorf("memstore: %s: %d new keys, %d of %d held: %w (%w)",
			verb, n, len(s.records), s.capacity, dedup.ErrFull, dedup.ErrUnavailable)
	}
	return nil
}

// unknown returns how many of reqs would make a record. Expired records of reqs are removed first,
// since an event's age is compared with their times.
func (s *Store) unknown(now time.Time, reqs []dedup.Request) (n int) {
	for i := range reqs {
		s.lookUp(reqs[i].Key, now)
	}
	for i := range reqs {
		if s.lookUp(reqs[i].Key, now) == nil && !s.tooOld(&reqs[i]) {
			n++
		}
	}
	return n
}

// sweeps returns how many expired records a call with this number of keys may forget.
func sweeps(keys int) int { return 2*keys + 16 }

func (s *Store) sweep(now time.Time, most int) {
	for range most {
		if len(s.expiry) == 0 || s.expiry[0].Expires.After(now) {
			return
		}
		s.remove(s.expiry[0])
	}
}
