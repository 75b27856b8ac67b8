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
// presence shows whether other keys may have expired. An emptied store gets the remembered birth
// back, since the store has then forgotten events from after it.
func (s *Store) birth(ctx context.Context, scope string) (int64, error) {
	known, ask := s.births.of(scope)
	if !ask {
		return known, nil
	}
	born := known
	if born == 0 {
		now, err := s.now(ctx)
		if err != nil {
			return 0, err
		}
		born = now
	}
	there, err := s.askBirth(ctx, scope, known, "set", s.about("born", scope), born, "nx", "get")
	if err != nil {
		return 0, err
	}
	if there != 0 {
		born = there
	}
	s.births.remember(scope, born)
	return born, nil
}

// knownBirth is birth without a write. The store has forgotten no event of an unknown scope.
func (s *Store) knownBirth(ctx context.Context, scope string) (int64, error) {
	known, ask := s.births.of(scope)
	if !ask {
		return known, nil
	}
	there, err := s.askBirth(ctx, scope, known, "get", s.about("born", scope))
	switch {
	case err != nil:
		return 0, err
	case there != 0:
		s.births.remember(scope, there)
		return there, nil
	case known != 0: // an emptied store: the next claim gives the birth back
		s.births.askAgain(scope)
		return known, nil
	}
	return math.MaxInt64, nil
}

// askBirth returns the birth in the reply to a command, or zero if the reply has no birth. A known
// birth stands in for a reply with an error: births never change while the store is not emptied.
func (s *Store) askBirth(ctx context.Context, scope string, known int64, command ...any,
) (int64, error) {
	if known == 0 {
		return s.heard(ctx, scope, command)
	}
	bounded, cancel := context.WithTimeout(ctx, birthWait(ctx))
	defer cancel()
	if there, err := s.heard(bounded, scope, command); err == nil {
		return there, nil
	}
	return known, nil
}

// birthWait bounds the wait for a birth that the process remembers. At least half of the caller's
// time is left for the keys, which may be on other servers.
func birthWait(ctx context.Context) time.Duration {
	const most = 500 * time.Millisecond
	if end, ok := ctx.Deadline(); ok {
		return min(most, time.Until(end)/2)
	}
	return most
}

// heard sends a command for a birth. The result is zero if the reply has no birth.
func (s *Store) heard(ctx context.Context, scope string, command []any) (born int64, err error) {
	reply := s.client.Do(ctx, command...)
	if unanswered(reply) {
		reload(ctx, s.client)
	}
	text, err := reply.Text()
	if errors.Is(err, redis.Nil) {
		return 0, nil
	}
	if err == nil {
		born, err = strconv.ParseInt(text, 10, 64)
	}
	if err != nil {
		return 0, fmt.Errorf("birth of scope %q: %w", scope, err)
	}
	return born, nil
}

// about is the name of a key about a scope or a topic. The name has one colon; the key of an
// event has three.
func (s *Store) about(what, name string) string { return s.prefix + dedup.Join(what, name) }
