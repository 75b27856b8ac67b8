package redisstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/redis/go-redis/v9"
)

// Store keeps claims in Redis. Make one with [New]. It is safe for concurrent use, starts no goroutine and has nothing
// to close; the client stays its caller's.
type Store struct {
	client  redis.UniversalClient
	prefix  string
	evicts  bool
	clock   clock
	births  births
	results atomic.Bool // a result was seen: completions must look before they write
}

var (
	_ dedup.Store     = (*Store)(nil)
	_ dedup.Looker    = (*Store)(nil)
	_ dedup.Checker   = (*Store)(nil)
	_ dedup.Registrar = (*Store)(nil)
	_ dedup.Operator  = (*Store)(nil)
)

// Option changes how a [Store] works.
type Option func(*Store)

// Prefix is put before every key. Default "idem:". All processes of a store must use the same one. Braces in it would
// put the whole store into one slot of a Redis Cluster.
func Prefix(p string) Option { return func(s *Store) { s.prefix = p } }

// AllowEviction lets [Store.Check] accept a Redis that evicts keys when its memory is full, with a warning. Each evicted
// key is an event that will be handled again, in silence.
func AllowEviction() Option { return func(s *Store) { s.evicts = true } }

// New returns a store on client: a [*redis.Client], also of Sentinel, or a [*redis.ClusterClient], with Redis 7.0 or
// later. It does not connect; [Store.Check] tells whether the server is fit.
func New(client redis.UniversalClient, opts ...Option) *Store {
	s := &Store{client: client, prefix: "idem:"}
	for _, o := range opts {
		o(s)
	}
	return s
}

func (s *Store) key(k dedup.Key) string { return s.prefix + k.String() }

// Claim implements [dedup.Store]: one pipeline for keys that are new, done, dead, overtaken or too old, and a second one for
// the others. The first call for a scope also asks when it was born, and one call a minute what the server's time is, unless
// no request has an age.
func (s *Store) Claim(ctx context.Context, t dedup.Token, lease time.Duration, reqs []dedup.Request,
	answers []dedup.Answer,
) error {
	if err := dedup.CheckRequests(reqs, answers); err != nil {
		return err
	}
	if lease <= 0 {
		return errLease
	}
	if err := s.claim(ctx, t, lease, reqs, answers); err != nil {
		clear(answers)
		return s.unavailable(ctx, "claim", err)
	}
	return nil
}

var (
	errLease     = errors.New("lease must be positive")
	errRetention = errors.New("retention must be positive")
)

func (s *Store) claim(ctx context.Context, t dedup.Token, lease time.Duration, reqs []dedup.Request,
	answers []dedup.Answer,
) error {
	old, err := s.tooOld(ctx, reqs, true, s.birth)
	if err != nil {
		return err
	}
	sets := s.newCommands(len(reqs))
	for i := range reqs {
		what := setNew
		if len(old) > 0 && old[i] {
			what = look // what was never seen must not become a claim
		}
		rec := claimed(t, lease, &reqs[i])
		sets.add(what, reqs[i].Key, &rec, rec.total)
	}
	if err := sets.send(ctx, s.client); err != nil {
		return err
	}
	var calls []call
	var asked []int // calls[j] is for reqs[asked[j]]
	for i := range reqs {
		switch {
		case !sets.absent(i):
		case sets.kinds[i] == look:
			answers[i] = dedup.Answer{Verdict: dedup.TooOld}
			continue
		default:
			answers[i] = dedup.Answer{Verdict: dedup.Fresh, Fence: 1, First: reqs[i].Origin}
			continue
		}
		known, err := decode(sets.reply(i), sets.checks[i])
		if err != nil {
			return keyError(reqs[i].Key, err)
		}
		var settled bool
		if answers[i], settled = s.settled(&known, &reqs[i]); !settled {
			asked = append(asked, i)
			calls = append(calls, call{
				script: claimScript, key: sets.name(i), token: t, args: []any{sets.value(i), int(sets.kinds[i])},
			})
		}
	}
	if err := s.runScripts(ctx, calls); err != nil {
		return err
	}
	for j, i := range asked {
		var err error
		if answers[i], err = s.granted(calls[j].reply, t, &reqs[i]); err != nil {
			return keyError(reqs[i].Key, err)
		}
	}
	return nil
}

// claimed is the record of a key that nothing is known about. It outlives its lease by the retention: a holder that dies
// leaves a trace (rule 33).
func claimed(t dedup.Token, lease time.Duration, req *dedup.Request) record {
	l := millis(lease)
	return record{
		state: pending, token: t, fence: 1, position: req.Position,
		fingerprint: req.Fingerprint, first: req.Origin, lease: l, total: l + millis(req.Retention),
	}
}

// settled is the answer that r gives by itself, without a clock and without a change. claim.lua leaves the same cases to
// it: what it returns as look must be settled here.
func (s *Store) settled(r *record, req *dedup.Request) (a dedup.Answer, ok bool) {
	a.First = r.first
	conflict := r.conflicts(req)
	switch {
	case r.state == done:
		a.Verdict, a.Result = dedup.Done, r.result
		if !r.result.IsZero() {
			s.results.Store(true)
		}
	case r.state == dead:
		a.Verdict, a.Reason = dedup.Dead, r.reason
	case r.state == open && overtaken(r, req):
		a.Verdict = dedup.Rescheduled
	case r.state == open && conflict: // an equal copy would get the claim
	default:
		return dedup.Answer{}, false
	}
	if conflict {
		a = a.Conflicted()
	}
	return a, true
}

// underClaim is what is told of a pending record whose lease lasts for left milliseconds. There is no verdict where an equal
// copy would get the claim.
func (r *record) underClaim(req *dedup.Request, left int64) dedup.Answer {
	a := dedup.Answer{First: r.first}
	switch {
	case left > 0:
		a.Verdict, a.Wait = dedup.Busy, time.Duration(left)*time.Millisecond
	case overtaken(r, req):
		a.Verdict = dedup.Rescheduled
	}
	if r.conflicts(req) {
		a = a.Conflicted()
	}
	return a
}

// conflicts compares fingerprints if there are two. A copy that was redriven may differ: somebody repaired it.
func (r *record) conflicts(req *dedup.Request) bool {
	return req.Position.Generation == 0 && dedup.Differ(r.fingerprint, req.Fingerprint)
}

func overtaken(r *record, req *dedup.Request) bool {
	return req.Position.Generation != r.position.Generation || req.Position.Retry < r.position.Retry
}

// granted is the answer in a reply of claim.lua.
func (s *Store) granted(p reply, t dedup.Token, req *dedup.Request) (dedup.Answer, error) {
	if p.code == "old" {
		return dedup.Answer{Verdict: dedup.TooOld}, nil
	}
	r, err := decode(p.value, checkOf(req.Key))
	if err != nil {
		return dedup.Answer{}, err
	}
	switch {
	case p.code == "held" && r.state == pending && r.token == t:
		a := dedup.Answer{
			Verdict: dedup.Fresh, Fence: r.fence, Failures: r.failures, Takeovers: r.takeovers, First: r.first,
		}
		if r.uncertain {
			a.Verdict = dedup.Uncertain
		}
		return a, nil
	case p.code == "busy" && r.state == pending && p.left > 0 && !r.conflicts(req),
		p.code == "conflict" && r.state == pending && r.conflicts(req):
		return r.underClaim(req, p.left), nil
	case p.code == "look":
		if r.state == pending && overtaken(&r, req) { // its lease is over, and a later copy will come
			return dedup.Answer{Verdict: dedup.Rescheduled, First: r.first}, nil
		}
		if a, ok := s.settled(&r, req); ok {
			return a, nil
		}
	}
	return dedup.Answer{}, fmt.Errorf("reply %q does not fit the record", p.code)
}

// Ping implements [dedup.Checker]. On a cluster every master must answer.
func (s *Store) Ping(ctx context.Context) error {
	err := s.eachMaster(ctx, func(ctx context.Context, c *redis.Client) error { return c.Ping(ctx).Err() })
	if err != nil {
		return s.unavailable(ctx, "ping", err)
	}
	return nil
}

func (s *Store) eachMaster(ctx context.Context, fn func(context.Context, *redis.Client) error) error {
	switch c := s.client.(type) {
	case *redis.Client:
		return fn(ctx, c)
	case *redis.ClusterClient:
		return c.ForEachMaster(ctx, fn)
	}
	return fmt.Errorf("%w: %T", errClient, s.client)
}

var errClient = errors.New("unsupported client: use a redis.Client or a redis.ClusterClient")

// keyError names the key of a record that cannot be used.
func keyError(k dedup.Key, err error) error { return fmt.Errorf("key %q: %w", k, err) }

// unavailable marks an error of the server or of the way to it. All of them are the store's trouble, never the event's
// no reply of Redis speaks about an event, and a record that cannot be read is no answer (rule 35).
func (s *Store) unavailable(ctx context.Context, verb string, err error) error {
	if cause := ctx.Err(); cause != nil && !errors.Is(err, cause) {
		err = fmt.Errorf("%w (%w)", cause, err)
	}
	if setup := s.setupError(err); setup != nil {
		return fmt.Errorf("redis: %s: %w", verb, setup)
	}
	return fmt.Errorf("redis: %s: %w: %w", verb, dedup.ErrUnavailable, err)
}

// consumerRights are what a consumer's user needs, as the documentation of the package has it.
const consumerRights = "+get +set +pttl +pexpire +eval +evalsha +time +ping +info +hget +hset +sadd +smembers"

// setupError returns what is wrong with the set-up if err says so: waiting does not mend it. Nil for any other error.
func (s *Store) setupError(err error) error {
	user := "default"
	switch c := s.client.(type) {
	case *redis.Client:
		user = cmp.Or(c.Options().Username, user)
	case *redis.ClusterClient:
		user = cmp.Or(c.Options().Username, user)
	}
	switch {
	case redis.HasErrorPrefix(err, "NOPERM"):
		return &dedup.SetupError{
			Problem: fmt.Sprintf("user %q lacks a right", user), Fix: fmt.Sprintf("run `ACL SETUSER %s ~%s* %s`", user, s.prefix, consumerRights), Err: err,
		}
	case redis.HasErrorPrefix(err, "WRONGPASS"), redis.HasErrorPrefix(err, "NOAUTH"):
		return &dedup.SetupError{
			Problem: fmt.Sprintf("the server refuses to log in user %q", user), Fix: "give the client a user and password that the server takes", Err: err,
		}
	}
	return nil
}
