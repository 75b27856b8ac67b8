package redisstore

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"sync"
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/redis/go-redis/v9"
)

// tooOld says which of reqs are about events so old that the store may have forgotten them, had it known them: their time
// lies before the horizon, and their scope was there before it. It is nil if there is none, which costs nothing but a
// comparison for each. born tells when a scope was born; with all it is asked for scopes too of which nothing has an age.
func (s *Store) tooOld(ctx context.Context, reqs []dedup.Request, all bool,
	born func(ctx context.Context, scope string) (int64, error),
) (old []bool, err error) {
	var now, birth int64
	asked := -1 // the request that birth is about
	for i := range reqs {
		r, aged := &reqs[i], hasAge(&reqs[i])
		if asked < 0 || r.Key.Scope != reqs[asked].Key.Scope {
			if !aged && !all {
				continue
			}
			if birth, err = born(ctx, r.Key.Scope); err != nil {
				return nil, err
			}
			asked = i
		}
		if !aged {
			continue
		}
		if now == 0 {
			if now, err = s.now(ctx); err != nil {
				return nil, err
			}
		}
		if limit := horizon(now, r.Retention); r.Origin.Time.UnixMilli() < limit && birth < limit {
			if old == nil {
				old = make([]bool, len(reqs))
			}
			old[i] = true
		}
	}
	return old, nil
}

// hasAge reports whether the age of r counts. No time, or none that can be meant, is no age: Kafka has -1 for records
// without one.
func hasAge(r *dedup.Request) bool {
	return !r.AnyAge && r.Position == (dedup.Position{}) && r.Origin.Time.UnixMilli() > 0
}

// horizon is the time before which an event may have been handled and forgotten, in milliseconds since 1970. The margin is
// for clocks: events have the time of a producer or a broker, records expire by that of Redis.
func horizon(now int64, retention time.Duration) int64 {
	margin := min(max(retention/100, time.Minute), time.Hour, retention/2)
	return now - millis(retention-margin)
}

// clock tells the server's time without asking it each time.
type clock struct {
	mu     sync.Mutex
	asked  time.Time // by the monotonic clock; zero: never
	wall   time.Time // the same by the other clock
	server int64     // the server's, in milliseconds since 1970
}

func (s *Store) now(ctx context.Context) (int64, error) {
	now, err := s.clock.now(ctx, s.client)
	if err != nil {
		return 0, fmt.Errorf("time of the server: %w", err)
	}
	return now, nil
}

const (
	clockAge  = time.Minute // after which the server is asked again
	clockSkew = time.Second // by which the two clocks of this host may part: more is a sleep of the machine, or a step
)

// now is the server's time in milliseconds since 1970: as it was when last asked, and what has passed since then by the
// monotonic clock of this host. The host's wall clock does not count. On a cluster any server is asked: the margin
// of the horizon is for what they differ.
func (c *clock) now(ctx context.Context, client redis.UniversalClient) (int64, error) {
	c.mu.Lock()
	asked, wall, server := c.asked, c.wall, c.server
	c.mu.Unlock()
	if !asked.IsZero() {
		now := time.Now()
		passed := now.Sub(asked)
		apart := now.Round(0).Sub(wall) - passed
		if passed < clockAge && apart.Abs() < clockSkew {
			return server + passed.Milliseconds(), nil
		}
	}
	t, err := client.Time(ctx).Result()
	if err != nil {
		return 0, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asked, c.server = time.Now(), t.UnixMilli()
	c.wall = c.asked.Round(0)
	return c.server, nil
}

// births remembers when scopes were born. What it remembers never changes while the store is not emptied.
type births struct {
	mu    sync.Mutex
	known map[string]int64
}

// maxBirths bounds the memory of a program that makes scopes out of data. It begins anew then.
const maxBirths = 1000

// birth is when this store first heard of scope, in milliseconds since 1970: before that nothing can have been forgotten.
// Who asks first decides. The record has no expiry, as it is what tells whether others have expired.
func (s *Store) birth(ctx context.Context, scope string) (int64, error) {
	if born, ok := s.births.of(scope); ok {
		return born, nil
	}
	now, err := s.now(ctx)
	if err != nil {
		return 0, err
	}
	return s.heard(scope, now, s.client.Do(ctx, "set", s.about("born", scope), now, "nx", "get"))
}

// knownBirth is birth for those who write nothing. A scope that the store has not heard of has forgotten nothing.
func (s *Store) knownBirth(ctx context.Context, scope string) (int64, error) {
	if born, ok := s.births.of(scope); ok {
		return born, nil
	}
	return s.heard(scope, math.MaxInt64, s.client.Do(ctx, "get", s.about("born", scope)))
}

// heard remembers the birth that is in a reply, and returns it or, if there was none, born.
func (s *Store) heard(scope string, born int64, reply *redis.Cmd) (int64, error) {
	text, err := reply.Text()
	switch {
	case errors.Is(err, redis.Nil):
		if born == math.MaxInt64 {
			return born, nil
		}
	case err != nil:
		return 0, fmt.Errorf("birth of scope %q: %w", scope, err)
	default:
		if born, err = strconv.ParseInt(text, 10, 64); err != nil {
			return 0, fmt.Errorf("birth of scope %q: %w", scope, err)
		}
	}
	s.births.remember(scope, born)
	return born, nil
}

func (b *births) of(scope string) (born int64, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	born, ok = b.known[scope]
	return born, ok
}

func (b *births) remember(scope string, born int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.known == nil || len(b.known) >= maxBirths {
		b.known = make(map[string]int64)
	}
	b.known[scope] = born
}

// about is the name of what is kept about a scope or a topic. An event's key has three colons, this has one.
func (s *Store) about(what, name string) string { return s.prefix + dedup.Join(what, name) }
