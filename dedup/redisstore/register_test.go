package redisstore

import (
	"context"
	"testing"
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/internal/testenv"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

func onServerAndCluster(t *testing.T, fn func(t *testing.T, client redis.UniversalClient, prefix string)) {
	t.Run("server", func(t *testing.T) {
		client, prefix := testenv.Redis(t)
		fn(t, client, prefix)
	})
	t.Run("cluster", func(t *testing.T) {
		client, prefix := testenv.RedisCluster(t)
		fn(t, client, prefix)
	})
}

// An operator without the type of an event tries the types that the scope has registered.
func TestTypes(t *testing.T) {
	onServerAndCluster(t, func(t *testing.T, client redis.UniversalClient, prefix string) {
		s := New(client, Prefix(prefix))
		none, err := s.Types(t.Context(), "mails")
		require.NoError(t, err)
		require.Empty(t, none)
		require.NoError(t, s.Register(t.Context(), registration()))
		types, err := s.Types(t.Context(), "mails")
		require.NoError(t, err)
		require.Equal(t, []string{"order.created", "order:paid", "user.created"}, types)
		none, err = s.Types(t.Context(), "others")
		require.NoError(t, err)
		require.Empty(t, none)
	})
	away := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", MaxRetries: -1})
	t.Cleanup(func() { _ = away.Close() })
	_, err := New(away).Types(t.Context(), "mails")
	require.ErrorIs(t, err, dedup.ErrUnavailable)
}

func registration() dedup.Registration {
	return dedup.Registration{
		Scope: "mails", Group: "mailer", Topics: []string{"orders", "users"},
		Descriptors: map[string]string{"order.created": "ce", "order:paid": "body.id", "user.created": "header"},
	}
}

// Rule 7: a descriptor that differs is refused, and no part of the refused registration is
// recorded.
func TestRegisterFindsAChangedIdentity(t *testing.T) {
	onServerAndCluster(t, func(t *testing.T, client redis.UniversalClient, prefix string) {
		s, ctx, r := New(client, Prefix(prefix)), t.Context(), registration()
		require.NoError(t, s.Register(ctx, r))
		require.NoError(t, s.Register(ctx, r))
		before := client.HGetAll(ctx, s.about("scope", r.Scope)).Val()
		require.Equal(t, map[string]string{
			"group": "mailer", "topic:orders": "1", "topic:users": "1",
			"descriptor:order.created": "ce", "descriptor:order:paid": "body.id", "descriptor:user.created": "header",
		}, before)

		changed := registration()
		changed.Group, changed.Topics = "other", []string{"more"}
		changed.Descriptors = map[string]string{"a.new.one": "x", "order:paid": "body.number"}
		err := s.Register(ctx, changed)
		require.ErrorIs(t, err, dedup.ErrIdentityChanged)
		var named *dedup.IdentityChangedError
		require.ErrorAs(t, err, &named)
		require.Equal(t, []string{"order:paid"}, named.Types)
		require.NotErrorIs(t, err, dedup.ErrUnavailable)
		require.ErrorContains(t, err, `"order:paid" was identified by "body.id" and is now by "body.number"`)
		require.Equal(t, before, client.HGetAll(ctx, s.about("scope", r.Scope)).Val())
		require.Zero(t, client.Exists(ctx, s.about("topic", "more")).Val())

		other := changed
		other.Scope = "another" // has descriptors of its own
		require.NoError(t, s.Register(ctx, other))
		changed.AcceptNewIdentity = true
		require.NoError(t, s.Register(ctx, changed))
		require.ErrorIs(t, s.Register(ctx, r), dedup.ErrIdentityChanged, "the old one is now the different one")
		changed.AcceptNewIdentity = false
		changed.Descriptors = map[string]string{"yet.another": "x"}
		require.NoError(t, s.Register(ctx, changed), "types that are new, or no longer named, are no difference")
		require.Equal(t, "header", client.HGet(ctx, s.about("scope", r.Scope), "descriptor:user.created").Val())
	})
}

// Rule 14: a group that was renamed by mistake would handle everything again.
func TestRegisterFindsARenamedGroup(t *testing.T) {
	onServerAndCluster(t, func(t *testing.T, client redis.UniversalClient, prefix string) {
		s, ctx, r := New(client, Prefix(prefix)), t.Context(), registration()
		r.NoOffsets = true
		require.NoError(t, s.Register(ctx, r), "nobody has ever consumed these topics")
		require.NoError(t, s.Register(ctx, r), "it is the scope itself")

		renamed := r
		renamed.Scope, renamed.Topics = "mails-2", []string{"nobody's", "users"}
		err := s.Register(ctx, renamed)
		require.ErrorIs(t, err, dedup.ErrOtherScope)
		require.NotErrorIs(t, err, dedup.ErrUnavailable)
		require.ErrorContains(t, err, `"users" is known under ["mails"]`)
		require.Zero(t, client.Exists(ctx, s.about("scope", "mails-2")).Val(), "nothing is recorded")
		require.Zero(t, client.Exists(ctx, s.about("topic", "nobody's")).Val())

		elsewhere := renamed
		elsewhere.Topics = []string{"nobody's"}
		require.NoError(t, s.Register(ctx, elsewhere))
		renamed.NoOffsets = false
		require.NoError(t, s.Register(ctx, renamed), "a group with offsets goes on where it was")
		renamed.Scope, renamed.NoOffsets, renamed.NewScope = "mails-3", true, true
		require.NoError(t, s.Register(ctx, renamed))
		renamed.NewScope = false
		require.NoError(t, s.Register(ctx, renamed), "it is known now")
	})
}

// no scope, topic or type can be taken for another one, nor for an event.
func TestNamesOfRegistrationsAreInjective(t *testing.T) {
	s := New(nil)
	seen := map[string]bool{}
	for _, name := range []string{
		s.about("scope", "a:b"), s.about("scope", "a%3Ab"), s.about("topic", "a:b"), s.about("born", "a:b"), s.about("born", ""),
		s.about("scope", "{x}"), s.key(dedup.Key{Tenant: "scope", ID: "a"}), s.key(dedup.Key{Tenant: "born", ID: "b"}),
	} {
		require.False(t, seen[name], name)
		require.NotContains(t, name, "{")
		seen[name] = true
	}
}

// Rule 8: registering is how a store learns of a scope before its first event.
func TestRegisterFixesTheBirth(t *testing.T) {
	b := newBench(t)
	require.NoError(t, b.Register(t.Context(), dedup.Registration{Scope: request("").Key.Scope}))
	before := b.rdb.Get(t.Context(), b.about("born", request("").Key.Scope)).Val()
	require.NotEmpty(t, before)
	b.another().meets(dedup.Fresh, ofAge("x", 10*retention))
	require.Equal(t, before, b.rdb.Get(t.Context(), b.about("born", request("").Key.Scope)).Val())
}

func TestRegisterReportsOutages(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	cancel()
	b := newBench(t)
	err := b.Register(ctx, registration())
	require.ErrorIs(t, err, dedup.ErrUnavailable)
	require.ErrorIs(t, err, context.Canceled)
	require.NoError(t, b.rdb.Set(t.Context(), b.about("scope", "mails"), "not a hash", 0).Err())
	require.ErrorIs(t, b.Register(t.Context(), registration()), dedup.ErrUnavailable)
}
