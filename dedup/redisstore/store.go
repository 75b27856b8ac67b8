package redisstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/idem-go/idem/dedup"
	"github.com/redis/go-redis/v9"
)

// Store keeps claims in Redis. Create a Store with [New]; the zero value cannot be used. A Store
// is safe for concurrent use, starts no goroutine and needs no Close. The caller closes the
// client.
type Store struct {
	client  redis.UniversalClient
	prefix  string
	evicts  bool
	clock   clock
	births  births
	seen    seen
	results atomic.Bool // a result was seen: completions read before they write
}

var (
	_ dedup.Store    = (*Store)(nil)
	_ dedup.Looker   = (*Store)(nil)
	_ dedup.Checker  = (*Store)(nil)
	_ dedup.Watcher  = (*Store)(nil)
	_ dedup.Operator = (*Store)(nil)

	_ dedup.CallSharer = (*Store)(nil)
)

// Option is an option of [New].
type Option func(*Store)

// Prefix is the beginning of every key. Default "idem:". All processes that share a store need
// the same prefix. Braces in the prefix would put the whole store into one slot of a Redis
// Cluster.
func Prefix(p string) Option { return func(s *Store) { s.prefix = p } }

// AllowEviction makes [Store.Check] accept a Redis that evicts keys when the memory is full,
// with a warning. The event of an evicted key is handled again without an error.
func AllowEviction() Option { return func(s *Store) { s.evicts = true } }

// New returns a store on client: a [*redis.Client], also of Sentinel, or a
// [*redis.ClusterClient], with Redis 7.0 or later. New does not connect: [Store.Check] reports
// whether the server can be used.
func New(client redis.UniversalClient, opts ...Option) *Store {
	s := &Store{client: client, prefix: "idem:"}
	for _, o := range opts {
		o(s)
	}
	return s
}

func (s *Store) key(k dedup.Key) string { return s.prefix + k.String() }

var (
	errLease     = errors.New("lease must be positive")
	errRetention = errors.New("retention must be positive")
)

// SharedCalls implements [dedup.CallSharer]: one call at a time.
func (s *Store) SharedCalls() int { return 1 }

// Ping implements [dedup.Checker]. On a cluster every master must answer.
func (s *Store) Ping(ctx context.Context) error {
	err := s.eachMaster(ctx, func(ctx context.Context, c *redis.Client) error {
		return c.Ping(ctx).
			Err()
	})
	if err != nil {
		return s.unavailable(ctx, "ping", err)
	}
	return nil
}

func (s *Store) eachMaster(ctx context.Context,
	fn func(context.Context, *redis.Client) error) error {
	switch c := s.client.(type) {
	case *redis.Client:
		return fn(ctx, c)
	case *redis.ClusterClient:
		return c.ForEachMaster(ctx, fn)
	}
	return fmt.Errorf("%w: %T", errClient, s.client)
}

var errClient = errors.New("unsupported client: use a redis.Client or a redis.ClusterClient")

// keyError names the key of an unusable record.
func keyError(k dedup.Key, err error) error { return fmt.Errorf("key %q: %w", k, err) }

// unavailable marks an error of the server or the network. No such error is the event's fault
//
func (s *Store) unavailable(ctx context.Context, verb string, err error) error {
	if cause := ctx.Err(); cause != nil && !errors.Is(err, cause) {
		err = fmt.Errorf("%w (%w)", cause, err)
	}
	if setup := s.setupError(verb, err); setup != nil {
		return fmt.Errorf("redis: %s: %w", verb, setup)
	}
	return fmt.Errorf("redis: %s: %w: %w", verb, dedup.ErrUnavailable, err)
}

// consumerRights are the rights of a consumer's user, as in the package documentation.
const consumerRights = "+get +set +pttl +pexpire +eval +evalsha +time +ping +info +hget +hset " +
	"+sadd +smembers"

// rightsFor are the rights of a user who calls verb: those of a consumer, and the verb's own.
func rightsFor(verb string, cluster bool) string {
	rights := consumerRights
	if cluster {
		rights += " +cluster|slots"
	}
	switch verb {
	case "types":
		rights += " +hkeys"
	case "forget":
		rights += " +del"
	}
	return rights
}

// setupError returns a set-up error behind the error of verb, or nil. Such an error needs a person:
// waiting does not help.
func (s *Store) setupError(verb string, err error) error {
	user, cluster := "default", false
	switch c := s.client.(type) {
	case *redis.Client:
		user = cmp.Or(c.Options().Username, user)
	case *redis.ClusterClient:
		user, cluster = cmp.Or(c.Options().Username, user), true
	}
	switch {
	case lacksRight(err):
		return &dedup.SetupError{
			Problem: fmt.Sprintf("user %q lacks a right", user),
			Fix: fmt.Sprintf("run `ACL SETUSER %s ~%s* %s`", user, s.prefix,
				rightsFor(verb, cluster)), Err: err,
		}
	case redis.HasErrorPrefix(err, "WRONGPASS"), redis.HasErrorPrefix(err, "NOAUTH"):
		return &dedup.SetupError{
			Problem: fmt.Sprintf("the server refuses to log in user %q", user),
			Fix:     "give the client a user and password that the server accepts", Err: err,
		}
	}
	return nil
}

// refusals are the beginnings of the texts by which Redis refuses a command or a key to a user. A
// refusal inside a script has no code other than ERR.
var refusals = [...]string{
	"NOPERM",
	"The user executing the script can't", // Redis 7.0
	"ACL failure in script",               // later releases
}

// lacksRight reports whether the server refuses a command because the user lacks a right.
func lacksRight(err error) bool {
	return slices.ContainsFunc(refusals[:], func(beginning string) bool {
		return redis.HasErrorPrefix(err, beginning)
	})
}
