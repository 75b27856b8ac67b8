package consumer

import (
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/dedup/pgstore"
	"github.com/idem-go/idem/internal/testenv"
)

// TestRegister_AtStart: the store is asked before anything is consumed, waited for while it is
// down, and told whether the group is new.
func TestRegister_AtStart(t *testing.T) {
	brokers := fakeBrokers(t, 3, "orders")
	store := newTold()
	store.refusals = []error{fmt.Errorf("test: %w", dedup.ErrUnavailable)}
	cfg := Config{Brokers: brokers, Group: "g", Topics: []string{"orders"}, Scope: "s", Store: store, CreateDeadLetterTopics: &TopicSpec{}}
	produceEvents(t, brokers, "orders", 0, 10)
	var got tally
	m := start(t, cfg, routed(got.handle))
	require.Eventually(t, func() bool { return got.events() == 10 }, soon, poll)
	require.NoError(t, m.end())
	all := store.registrations()
	require.Len(t, all, 2)
	require.True(t, all[1].NoOffsets)
	require.Equal(t, []any{"s", "g", []string{"orders"}}, []any{all[1].Scope, all[1].Group, all[1].Topics})
	require.Len(t, all[1].Descriptors, 1)
	require.Equal(t, 1, m.count("store unavailable at start"))

	cfg.NewScope, cfg.AcceptNewIdentity = true, true
	m = start(t, cfg, routed(got.handle))
	require.Eventually(t, func() bool { return len(store.registrations()) == 3 }, soon, poll)
	require.NoError(t, m.end())
	last := store.registrations()[2]
	require.False(t, last.NoOffsets, "the group has committed")
	require.True(t, last.NewScope)
	require.True(t, last.AcceptNewIdentity)
}

// TestKafka_Register runs the steps of operators, on the real broker and the real store.
func TestKafka_Register(t *testing.T) {
	t.Parallel()
	pool, err := pgxpool.New(t.Context(), testenv.Postgres(t))
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	require.NoError(t, pgstore.Migrate(t.Context(), pool))
	brokers, topic, cfg := onKafka(t, 2)
	cfg.Store = pgstore.New(pool)
	produceEvents(t, brokers, topic, 0, 20)

	var got tally
	with := func(change func(*Config)) Config {
		c := cfg
		if change != nil {
			change(&c)
		}
		return c
	}
	// handles consumes all there is; n events were handled by then, by all members so far.
	handles := func(c Config, n int, opts ...idem.Option) {
		t.Helper()
		m := start(t, c, routed(got.handle, opts...))
		require.Eventually(t, func() bool {
			offsets := committed(t, brokers, c.Group, topic, 0, 1)
			return max(offsets[0], 0)+max(offsets[1], 0) == 20 && m.Ready() == nil
		}, soon, poll)
		require.NoError(t, m.end())
		require.Equal(t, n, got.total())
	}
	refuses := func(c Config, target error, advice string, opts ...idem.Option) {
		t.Helper()
		err := start(t, c, routed(got.handle, opts...)).wait(t, soon)
		require.ErrorIs(t, err, target)
		require.ErrorContains(t, err, advice)
		require.Equal(t, 20, got.total(), "nothing was handled")
	}
	handles(with(nil), 20)

	t.Run("descriptor, rule 7", func(t *testing.T) {
		other := idem.ID(idem.FirstOf(idem.FromHeader("event-id"), idem.FromKey()))
		refuses(with(nil), dedup.ErrIdentityChanged, "Config.AcceptNewIdentity", other)
		refuses(with(nil), dedup.ErrIdentityChanged, `id=header("event-id")`, other)
		handles(with(func(c *Config) { c.AcceptNewIdentity = true }), 20, other)
		handles(with(nil), 20, other)
		refuses(with(nil), dedup.ErrIdentityChanged, "Config.AcceptNewIdentity")
		handles(with(func(c *Config) { c.AcceptNewIdentity = true }), 20)
	})
	t.Run("group, rule 14", func(t *testing.T) {
		renamed := func(c *Config) { c.Group += "-v2" }
		refuses(with(renamed), dedup.ErrOtherScope, "Config.Scope")
		refuses(with(renamed), dedup.ErrOtherScope, fmt.Sprintf("%q", cfg.Group))
		handles(with(func(c *Config) { c.Group += "-v3"; c.Scope = cfg.Group }), 20) // inherits: all are duplicates
		handles(with(func(c *Config) { renamed(c); c.NewScope = true }), 40)         // another consumer
		handles(with(renamed), 40)
	})
}
