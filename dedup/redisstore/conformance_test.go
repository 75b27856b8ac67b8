package redisstore_test

import (
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/dedup/redisstore"
	"github.com/idem-go/idem/dedup/storetest"
	"github.com/idem-go/idem/internal/testenv"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// stores makes stores of one kind and remembers the prefix of each, for its peer.
type stores struct {
	connect func() redis.UniversalClient
	prefix  func(t testing.TB) string

	mu       sync.Mutex
	prefixes map[dedup.Store]string
}

func (l *stores) harness() storetest.Harness {
	l.prefixes = make(map[dedup.Store]string)
	return storetest.Harness{New: l.new, Peer: l.peer, Down: down,
		Missing: []storetest.Ability{storetest.Progress}}
}

func (l *stores) new(t testing.TB) dedup.Store { return l.open(t, l.prefix(t)) }

func (l *stores) peer(t testing.TB, s dedup.Store) dedup.Store {
	l.mu.Lock()
	prefix := l.prefixes[s]
	l.mu.Unlock()
	return l.open(t, prefix)
}

func (l *stores) open(t testing.TB, prefix string) dedup.Store {
	client := l.connect()
	t.Cleanup(func() { _ = client.Close() })
	s := redisstore.New(client, redisstore.Prefix(prefix))
	l.mu.Lock()
	defer l.mu.Unlock()
	l.prefixes[s] = prefix
	return s
}

func down(t testing.TB) dedup.Store {
	client := redis.NewClient(&redis.Options{Addr: testenv.FreeAddr(t), MaxRetries: -1, DialerRetries: 1})
	t.Cleanup(func() { _ = client.Close() })
	return redisstore.New(client)
}

// shared are stores on the Redis that all tests share.
func shared(t testing.TB) *stores {
	opts := testenv.RedisOptions(t)
	return &stores{
		connect: func() redis.UniversalClient { return redis.NewClient(opts) },
		prefix: func(t testing.TB) string {
			_, prefix := testenv.Redis(t)
			return prefix
		},
	}
}

// ownPrefix is for servers that are thrown away. It begins with "idem:", since the user of a
// minimal ACL may touch only such keys.
func ownPrefix(t testing.TB) string {
	return "idem:" + strings.NewReplacer("/", ".", "{", "(", "}", ")").Replace(t.Name()) + ":"
}

func TestConformance(t *testing.T) {
	storetest.Run(t, shared(t).harness())
}

// operators is the harness of the operations of a person. There is no list by status in Redis (rule
// 34).
func (l *stores) operators() storetest.Harness {
	h := l.harness()
	h.Missing = append(h.Missing, storetest.Lists)
	return h
}

func TestOperator(t *testing.T) {
	storetest.RunOperator(t, shared(t).operators())
}

// onCluster are stores on the cluster that all tests share.
func onCluster(t testing.TB) *stores {
	opts := testenv.RedisClusterOptions(t)
	return &stores{
		connect: func() redis.UniversalClient {
			own := *opts // a client writes its defaults into them
			return redis.NewClusterClient(&own)
		},
		prefix: func(t testing.TB) string {
			_, prefix := testenv.RedisCluster(t)
			return prefix
		},
	}
}

// the whole kit on a cluster of three, where a command with two keys or an undeclared key fails, and each batch is for
// several servers.
func TestConformanceOnCluster(t *testing.T) {
	storetest.Run(t, onCluster(t).harness())
}

// a person's keys are spread over the servers as all others are.
func TestOperatorOnCluster(t *testing.T) {
	storetest.RunOperator(t, onCluster(t).operators())
}

// G-12: the whole kit, the check and the ping, as a user with only the rights of the package
// documentation.
func TestConformanceWithMinimalRights(t *testing.T) {
	addr := testenv.RedisServer(t, "--appendonly", "yes", "--appendfsync", "no")
	admin := redis.NewClient(&redis.Options{Addr: addr})
	defer admin.Close()
	rights := strings.Fields("on >secret ~idem:* -@all +get +set +pttl +pexpire +eval +evalsha +time +hget +hset +sadd +smembers +ping +info")
	require.NoError(t, admin.ACLSetUser(t.Context(), "idem", rights...).Err())
	l := stores{
		connect: func() redis.UniversalClient {
			return redis.NewClient(&redis.Options{Addr: addr, Username: "idem", Password: "secret"})
		},
		prefix: ownPrefix,
	}
	storetest.Run(t, l.harness())
	require.NoError(t, admin.ACLSetUser(t.Context(), "idem", "+del").Err())
	t.Run("operator", func(t *testing.T) { storetest.RunOperator(t, l.operators()) })
	require.NoError(t, admin.ACLSetUser(t.Context(), "idem", "-del").Err())
	t.Run("a consumer deletes nothing", func(t *testing.T) {
		s := l.new(t).(dedup.Operator)
		event := dedup.Imported{Key: dedup.Key{Scope: "rights", ID: "imported"}, Retention: time.Hour}
		_, err := s.Import(t.Context(), []dedup.Imported{event})
		require.NoError(t, err)
		err = s.Forget(t.Context(), event.Key)
		require.ErrorIs(t, err, dedup.ErrUnavailable)
		require.ErrorContains(t, err, "can't run this command")
		_, ok := errors.AsType[*dedup.SetupError](err)
		require.True(t, ok, err)
		records, err := s.Inspect(t.Context(), event.Key)
		require.NoError(t, err)
		require.Len(t, records, 1)
	})
	t.Run("a person's calls name their right", func(t *testing.T) {
		s := l.new(t).(*redisstore.Store)
		event := dedup.Imported{Key: dedup.Key{Scope: "rights", ID: "forgotten"}, Retention: time.Hour}
		_, err := s.Import(t.Context(), []dedup.Imported{event})
		require.NoError(t, err)
		for right, call := range map[string]func() error{
			"del":   func() error { return s.Forget(t.Context(), event.Key) },
			"hkeys": func() error { _, err := s.Types(t.Context(), "rights"); return err },
		} {
			err := call()
			require.Error(t, err, right)
			follow(t, admin, err)
			require.NoError(t, call(), right)
			require.NoError(t, admin.ACLSetUser(t.Context(), "idem", "-"+right).Err())
		}
	})
	t.Run("check", func(t *testing.T) {
		warnings, err := l.new(t).(dedup.Checker).Check(t.Context())
		require.NoError(t, err)
		require.Empty(t, warnings)
	})
	t.Run("no rights beyond them", func(t *testing.T) {
		outside := redisstore.New(l.connect(), redisstore.Prefix("other:"))
		_, err := outside.Reopen(t.Context(), dedup.Key{ID: "x"})
		require.ErrorIs(t, err, dedup.ErrUnavailable)
		require.ErrorContains(t, err, "NOPERM")
		setup, ok := errors.AsType[*dedup.SetupError](err)
		require.True(t, ok, err)
		require.Equal(t, "run `ACL SETUSER idem ~other:* +get +set +pttl +pexpire +eval +evalsha +time +ping +info +hget +hset +sadd +smembers`", setup.Fix)
	})
	t.Run("wrong password", func(t *testing.T) {
		wrong := redis.NewClient(&redis.Options{Addr: addr, Username: "idem", Password: "wrong"})
		defer wrong.Close()
		_, err := redisstore.New(wrong).Check(t.Context())
		require.ErrorIs(t, err, dedup.ErrUnavailable)
		setup, ok := errors.AsType[*dedup.SetupError](err)
		require.True(t, ok, err)
		require.Contains(t, setup.Problem, `refuses to log in user "idem"`)
	})
	t.Run("each is needed", func(t *testing.T) {
		for _, right := range []string{"-get", "-set", "-pttl", "-pexpire", "-evalsha", "-time", "-hget", "-hset", "-sadd",
			"-smembers"} {
			require.NoError(t, admin.ACLSetUser(t.Context(), "idem", right).Err())
			err := everyVerb(t, l.new(t), right)
			require.ErrorIs(t, err, dedup.ErrUnavailable, right)
			setup, ok := errors.AsType[*dedup.SetupError](err)
			require.True(t, ok, "%s: %v", right, err)
			require.Equal(t, `user "idem" lacks a right`, setup.Problem)
			require.NoError(t, admin.ACLSetUser(t.Context(), "idem", "+"+right[1:]).Err())
		}
		require.NoError(t, everyVerb(t, l.new(t), "all"))
	})
}

func BenchmarkStore(b *testing.B) {
	l := shared(b)
	l.harness()
	storetest.Bench(b, l.new)
}

// G-12: on a cluster the client also asks where the slots are.
func TestMinimalRightsOnCluster(t *testing.T) {
	addr := testenv.RedisClusterServers(t, 1)[0]
	admin := redis.NewClient(&redis.Options{Addr: addr})
	defer admin.Close()
	rights := strings.Fields("on >secret ~idem:* -@all +get +set +pttl +pexpire +eval +evalsha +time +hget +hset +sadd +smembers +ping +info +cluster|slots")
	require.NoError(t, admin.ACLSetUser(t.Context(), "idem", rights...).Err())
	open := func() *redisstore.Store {
		client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{addr}, Username: "idem", Password: "secret"})
		t.Cleanup(func() { _ = client.Close() })
		return redisstore.New(client)
	}
	require.NoError(t, admin.ACLSetUser(t.Context(), "idem", "-cluster|slots").Err())
	_, err := open().Check(t.Context())
	require.Error(t, err)
	follow(t, admin, err)
	s := open()
	_, err = s.Check(t.Context())
	require.NoError(t, err, "the fix works")
	require.NoError(t, s.Ping(t.Context()))
	require.NoError(t, everyVerb(t, s, "cluster"))
}

// follow runs the command that a set-up error names.
func follow(t testing.TB, admin *redis.Client, err error) {
	t.Helper()
	setup, ok := errors.AsType[*dedup.SetupError](err)
	require.True(t, ok, err)
	command, found := strings.CutPrefix(setup.Fix, "run `ACL SETUSER idem ")
	require.True(t, found, setup.Fix)
	rights := strings.Fields(strings.TrimSuffix(command, "`"))
	require.NoError(t, admin.ACLSetUser(t.Context(), "idem", rights...).Err())
}

// everyVerb goes once through all that a store does and returns the first error.
func everyVerb(t testing.TB, s dedup.Store, id string) error {
	const minute, hour = time.Minute, time.Hour
	ctx := t.Context()
	req := dedup.Request{Key: dedup.Key{Scope: "rights", ID: id}, Retention: hour}
	tok, answers := dedup.NewToken(), make([]dedup.Answer, 1)
	claim := func(tok dedup.Token) error { return s.Claim(ctx, tok, minute, []dedup.Request{req}, answers) }
	if err := claim(tok); err != nil {
		return err
	}
	c := req.Held(tok, answers[0])
	register := func() error {
		return s.(dedup.Registrar).Register(ctx, dedup.Registration{
			Scope: "rights", Topics: []string{"orders"}, Descriptors: map[string]string{"order.created": "id"}, NoOffsets: true,
		})
	}
	steps := []func() error{
		register,
		func() error { return claim(dedup.NewToken()) }, // Busy
		func() error { return s.Renew(ctx, minute, []dedup.Claim{c}) },
		func() error { return s.Release(ctx, []dedup.Release{{Claim: c, Retention: hour}}) },
		func() error { return claim(tok) },
		func() error { return s.Complete(ctx, []dedup.Completion{{Claim: c, Retention: hour, Dead: "x"}}) },
		func() error { _, err := s.(dedup.Operator).Reopen(ctx, req.Key); return err },
		func() error { req.Position.Generation = 1; return claim(tok) },
		func() error { return s.Complete(ctx, []dedup.Completion{{Claim: c, Retention: hour}}) },
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}
