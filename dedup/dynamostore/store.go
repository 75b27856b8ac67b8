package dynamostore

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/idem-go/idem/dedup"
)

const (
	// DefaultParallel is the number of concurrent requests of one call without [Parallel].
	DefaultParallel = 16
	// DefaultWatched is the number of claims that a store watches without [Watched].
	DefaultWatched = 65_536

	// maxResult leaves 16 KB of the 400 KB of an item for the other attributes.
	maxResult = 384 << 10
	// maxTries bounds the tries of a write that other writes overtake. Each time another caller got
	// on.
	maxTries = 100
)

// Store keeps claims in a table of DynamoDB. Create it with [New]; the zero value cannot be used. A
// Store is safe for concurrent use. It starts no goroutine that outlives a call and needs no Close.
type Store struct {
	client   *dynamodb.Client
	table    string
	parallel int
	watched  int
	regional bool
	now      func() time.Time // wall clock and monotonic clock of this host
	watch    *watch
	births   births
}

var (
	_ dedup.Store         = (*Store)(nil)
	_ dedup.Looker        = (*Store)(nil)
	_ dedup.ResultLimiter = (*Store)(nil)
	_ dedup.Checker       = (*Store)(nil)
	_ dedup.Operator      = (*Store)(nil)
)

// Option is an option of [New].
type Option func(*Store)

// Parallel sets the maximum of concurrent requests of one call. Default [DefaultParallel]; less
// than 1 means the default. The HTTP client of the SDK keeps ten idle connections: let it keep this
// number for each concurrent call.
func Parallel(n int) Option {
	return func(s *Store) {
		if n > 0 {
			s.parallel = n
		}
	}
}

// Watched sets the number of claims that the store watches for the end of their lease, its own
// included, at about 300 bytes each. Default [DefaultWatched]; less than 1 means the default.
// Beyond that number, the claim of a crashed holder is taken over later, never earlier.
func Watched(n int) Option {
	return func(s *Store) {
		if n > 0 {
			s.watched = n
		}
	}
}

// OneRegion declares that all processes of the store use the table in one region. [Store.Check]
// then accepts a global table with eventually consistent replicas. With writers in two regions both
// may get Fresh, because the last write wins.
func OneRegion() Option { return func(s *Store) { s.regional = true } }

// New returns a store on a table made by [Migrate], or one like it. It does not connect:
// [Store.Check] reports whether the table can be used. Use one store for each table and process,
// because it watches the claims that its callers wait for.
func New(client *dynamodb.Client, table string, opts ...Option) *Store {
	s := &Store{client: client, table: table, parallel: DefaultParallel, watched: DefaultWatched,
		now: time.Now}
	for _, o := range opts {
		o(s)
	}
	s.watch = newWatch(s.watched)
	return s
}

// MaxResult implements [dedup.ResultLimiter]: 384 KiB, because an item has at most 400 KB.
func (s *Store) MaxResult() int { return maxResult }

var (
	errLease     = errors.New("lease must be positive")
	errRetention = errors.New("retention must be positive")
	errContended = errors.New("the item changed before each write")
)

// Claim implements [dedup.Store] with one conditional write for each key. A second write follows if
// the key was released, its lease has ended, or it was claimed with the same token. The first call
// for a scope also asks for its birth.
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
			a, err := s.claim(ctx, ask{key: keyOf(reqs[i].Key), token: t, lease: lease,
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

// next is a copy of r to be changed and written.
func (r *record) next(state string, now time.Time) *record {
	n := *r
	n.state, n.changed = state, now
	n.rev++
	return &n
}

func (r *record) granted() dedup.Answer {
	a := dedup.Answer{Verdict: dedup.Fresh, Fence: r.fence, Failures: r.failures,
		Takeovers: r.takeovers, First: r.first}
	if r.doubt {
		a.Verdict = dedup.Uncertain
	}
	return a
}

// Look implements [dedup.Looker] with one consistent read for each key, for half the price of a
// claim's write for 4 KB.
func (s *Store) Look(ctx context.Context, reqs []dedup.Request, answers []dedup.Answer) error {
	if err := dedup.CheckRequests(reqs, answers); err != nil {
		return err
	}
	old, err := s.tooOld(ctx, reqs)
	if err == nil {
		err = s.each(len(reqs), func(i int) error {
			a, err := s.look(ctx, &reqs[i], old[i])
			answers[i] = a
			return keyError(reqs[i].Key, err)
		})
	}
	if err != nil {
		clear(answers)
		return s.unavailable(ctx, "look", err)
	}
	return nil
}

func (s *Store) look(ctx context.Context, q *dedup.Request, old bool) (dedup.Answer, error) {
	key := keyOf(q.Key)
	r, err := s.read(ctx, key)
	if err != nil {
		return dedup.Answer{}, err
	}
	now := s.now()
	switch {
	case r != nil && !r.forgotten(now):
		a, _ := s.settled(key, r, q, now)
		return a, nil
	case old:
		return dedup.Answer{Verdict: dedup.TooOld}, nil
	}
	return dedup.Answer{}, nil
}

// keyError names the key of a request that failed.
func keyError(k dedup.Key, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("key %q: %w", k, err)
}
