package redisstore

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/idem-go/idem/dedup"
	"github.com/redis/go-redis/v9"
)

var _ dedup.Registrar = (*Store)(nil)

// Register implements [dedup.Registrar]. One script on one key compares and records the scope.
// The index of topics is written afterwards. If the process crashes in between, the index lacks
// the scope until the next start. If two new scopes register for one topic at the same moment,
// both may be accepted.
//
// Register also sets the birth of the scope, see Expiry in the package documentation.
func (s *Store) Register(ctx context.Context, r dedup.Registration) error {
	err := s.register(ctx, r)
	if err == nil || errors.Is(err, dedup.ErrIdentityChanged) ||
		errors.Is(err, dedup.ErrOtherScope) {
		return err
	}
	return s.unavailable(ctx, "register", err)
}

// Types returns the event types that a scope has registered, sorted. These are the types of the
// scope's handlers, not of the records. The store has no search by event ID ([dedup.Lister]). If
// you do not know the type of an event, try these.
func (s *Store) Types(ctx context.Context, scope string) (types []string, err error) {
	fields, err := s.client.HKeys(ctx, s.about("scope", scope)).Result()
	if err != nil {
		return nil, s.unavailable(ctx, "types", err)
	}
	for _, field := range fields {
		if typ, ok := strings.CutPrefix(field, "descriptor:"); ok {
			types = append(types, typ)
		}
	}
	slices.Sort(types)
	return types, nil
}

func (s *Store) register(ctx context.Context, r dedup.Registration) error {
	if r.NoOffsets && !r.NewScope {
		if err := s.otherScope(ctx, r); err != nil {
			return err
		}
	}
	if err := s.note(ctx, r); err != nil {
		return err
	}
	_, err := s.client.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		for _, topic := range r.Topics {
			pipe.SAdd(ctx, s.about("topic", topic), r.Scope)
		}
		return nil
	})
	if err != nil {
		return err
	}
	_, err = s.birth(ctx, r.Scope)
	return err
}

// otherScope looks for a topic that is on record under other scopes only.
func (s *Store) otherScope(ctx context.Context, r dedup.Registration) error {
	known := make([]*redis.StringSliceCmd, len(r.Topics))
	_, err := s.client.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		for i, topic := range r.Topics {
			known[i] = pipe.SMembers(ctx, s.about("topic", topic))
		}
		return nil
	})
	if err != nil {
		return err
	}
	for i, topic := range r.Topics {
		scopes := known[i].Val()
		if len(scopes) == 0 || slices.Contains(scopes, r.Scope) {
			continue
		}
		slices.Sort(scopes)
		const named = 5
		return fmt.Errorf("redis: register scope %q: topic %q is known under %q: %w",
			r.Scope, topic, scopes[:min(named, len(scopes))], dedup.ErrOtherScope)
	}
	return nil
}

// note compares and records the registration of the scope.
func (s *Store) note(ctx context.Context, r dedup.Registration) error {
	accept := "0"
	if r.AcceptNewIdentity {
		accept = "1"
	}
	args := make([]any, 0, 3+len(r.Topics)+2*len(r.Descriptors))
	args = append(args, accept, r.Group, len(r.Topics))
	for _, topic := range r.Topics {
		args = append(args, topic)
	}
	types := slices.Sorted(maps.Keys(r.Descriptors))
	for _, typ := range types {
		args = append(args, typ, r.Descriptors[typ])
	}
	calls := []call{{script: registerScript, key: s.about("scope", r.Scope),
		token: dedup.NewToken(), args: args}}
	if err := s.runScripts(ctx, calls); err != nil {
		return err
	}
	switch p := calls[0].reply; {
	case p.code == "ok":
		return nil
	case p.code == "changed" && p.left >= 0 && p.left < int64(len(types)):
		typ := types[p.left]
		return &dedup.IdentityChangedError{Types: []string{typ}, Err: fmt.Errorf(
			"redis: register scope %q: type %q was identified by %q and is now by %q: %w",
			r.Scope, typ, p.value, r.Descriptors[typ], dedup.ErrIdentityChanged)}
	default:
		return fmt.Errorf("unexpected reply %q", p.code)
	}
}
