package redisstore

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/redis/go-redis/v9"
)

// tooOld marks the requests about events that the store may have handled and forgotten. Their
// time lies before the horizon, and so does the birth of their scope. The result is nil without
// such a request; the cost is then one comparison for each. born returns the birth of a scope.
// With all, born is called for every scope, also for one without an event of an age.
func (s *Store) tooOld(ctx context.Context, reqs []dedup.Request, all bool,
	born func(ctx context.Context, scope string) (int64, error),
) (old []bool, err error) {
	var now, birth int64
	asked := -1 // the request of birth
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

// hasAge reports whether the age of r counts. An event without a time, or before 1970, has no age:
// Kafka has -1 for records without a time.
func hasAge(r *dedup.Request) bool {
	return !r.AnyAge && r.Position == (dedup.Position{}) && r.Origin.Time.UnixMilli() > 0
}

// horizon is the time before which the store may have forgotten an event, in milliseconds since
// 1970. The margin is for clocks: events have the time of a producer or a broker, records expire by
// that of Redis.
func horizon(now int64, retention time.Duration) int64 {
	margin := min(max(retention/100, time.Minute), time.Hour, retention/2)
	return now - millis(retention-margin)
}

func (s *Store) now(ctx context.Context) (int64, error) {
	now, err := s.clock.now(ctx, s.client)
	if err != nil {
		return 0, fmt.Errorf("time of the server: %w", err)
	}
	return now, nil
}

// birth is the first use of scope in this store, in milliseconds since 1970. The store has
// forgotten no event from before. The first caller sets it. The key has no expiry, because its
// presence shows whether other keys may have expired.
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

// knownBirth is birth without a write. The store has forgotten no event of an unknown scope.
func (s *Store) knownBirth(ctx context.Context, scope string) (int64, error) {
	if born, ok := s.births.of(scope); ok {
		return born, nil
	}
	return s.heard(scope, math.MaxInt64, s.client.Do(ctx, "get", s.about("born", scope)))
}

// heard remembers and returns the birth in a reply, or born if the reply has no birth.
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

// about is the name of a key about a scope or a topic. The name has one colon; the key of an
// event has three.
func (s *Store) about(what, name string) string { return s.prefix + dedup.Join(what, name) }
