package doctor

import (
	"context"
	"errors"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/idem-go/idem/dedup/pgstore"
	"github.com/idem-go/idem/internal/testenv"
	"github.com/idem-go/idem/outbox/pgoutbox"
)

// storePool is a worker's pool on a store of the test's own.
func storePool(t *testing.T) *pgxpool.Pool {
	t.Helper()
	cfg, err := pgxpool.ParseConfig(testenv.Postgres(t))
	require.NoError(t, err)
	pgstore.Configure(cfg)
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	require.NoError(t, pgstore.Migrate(t.Context(), pool))
	return pool
}

// kafkaOf is a client of brokers, which lives as long as the test.
func kafkaOf(t *testing.T, brokers []string) sarama.Client {
	t.Helper()
	client, err := sarama.NewClient(brokers, testenv.KafkaConfig())
	require.NoError(t, err)
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// A page passes the pool and the clients of its service, which stay open. A topic that was created
// later is found.
func TestExamine_ClientsOfAService(t *testing.T) {
	pool := storePool(t)
	require.NoError(t, pgoutbox.Migrate(t.Context(), pool))
	options := testenv.RedisOptions(t)
	rdb := redis.NewClient(options)
	t.Cleanup(func() { _ = rdb.Close() })
	brokers := testenv.Kafka(t)
	client := kafkaOf(t, brokers)
	topic := testenv.CreateTopic(t, brokers, 1)
	in := Input{
		Options: Options{Topics: []string{topic}, Lanes: 2}, Group: "billing", Kafka: func(context.Context) (sarama.Client, error) { return client, nil },
		Stores: []Store{{Pool: pool}, {Redis: rdb}},
	}
	for range 2 {
		r, err := Examine(t.Context(), in)
		require.NoError(t, err)
		for id, want := range map[string]Verdict{
			"kafka.connect": OK, "kafka.topic.missing": OK, "kafka.dlq.missing": Bad, "postgres.connect": OK, "postgres.session": OK, "postgres.store": OK,
			"settings.pool": OK, "settings.store.tls": OK, "outbox.tables": OK, "outbox.relay": Warn, "redis.connect": OK, "redis.version": OK,
			"store.scope": OK,
		} {
			require.Equal(t, want, worst(r, id).Verdict, "%s: %+v", id, worst(r, id))
		}
		require.Contains(t, worst(r, "kafka.dlq.missing").Remedy, "--bootstrap-server "+addresses(client.Brokers())[0])
		require.Contains(t, worst(r, "redis.connect").On, options.Addr)
		require.Equal(t, Bad, r.Verdict())
		for _, f := range r {
			require.NotEmpty(t, f.Title, f.ID)
		}
	}
	require.False(t, client.Closed())
	require.NoError(t, pool.Ping(t.Context()))
	require.NoError(t, rdb.Ping(t.Context()).Err())
}

// A pool without pgstore.Configure is reported (rule 10).
func TestExamine_PoolWithoutConfigure(t *testing.T) {
	pool, err := pgxpool.New(t.Context(), testenv.Postgres(t))
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	require.NoError(t, pgstore.Migrate(t.Context(), pool))
	r, err := Examine(t.Context(), Input{Group: "billing", Stores: []Store{{Pool: pool}}})
	require.NoError(t, err)
	require.Equal(t, Warn, worst(r, "postgres.session").Verdict)
	require.Contains(t, worst(r, "postgres.session").Detail, "pgstore.Configure and pgstore.Open would set")
}

// A client without brokers is reported, and so is a closed client.
func TestExamine_KafkaGone(t *testing.T) {
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1))
	require.NoError(t, err)
	cfg := testenv.KafkaConfig()
	cfg.Metadata.Retry.Max = 0
	client, err := sarama.NewClient(cluster.ListenAddrs(), cfg)
	require.NoError(t, err)
	in := Input{Group: "billing", Kafka: func(context.Context) (sarama.Client, error) { return client, nil }}
	cluster.Close()
	for range 2 {
		r, err := Examine(t.Context(), in)
		require.NoError(t, err)
		require.Equal(t, Bad, worst(r, "kafka.connect").Verdict)
		_ = client.Close()
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("enough"))
	cluster, err = kfake.NewCluster(kfake.NumBrokers(1))
	require.NoError(t, err)
	t.Cleanup(cluster.Close)
	again := kafkaOf(t, cluster.ListenAddrs())
	in.Kafka = func(context.Context) (sarama.Client, error) { return again, nil }
	_, err = Examine(ctx, in)
	require.ErrorContains(t, err, "enough")

	// A deadline that passes while the client is opened leaves the findings.
	due, cancelDue := context.WithTimeout(t.Context(), time.Nanosecond)
	defer cancelDue()
	in.Kafka = func(ctx context.Context) (sarama.Client, error) {
		<-ctx.Done()
		return nil, context.Cause(ctx)
	}
	r, err := Examine(due, in)
	require.NoError(t, err)
	require.Equal(t, Bad, worst(r, "kafka.connect").Verdict)
}

// An interruption is no finding of a store. A deadline leaves the findings.
func TestExamine_InterruptedWithStoresOnly(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	store := Store{URL: "sqlite:shop.db", OpenSQL: func(ctx context.Context) (Checker, string, error) {
		cancel()
		return nil, "", context.Cause(ctx)
	}}
	r, err := Examine(ctx, Input{Group: "g", Stores: []Store{store}})
	require.ErrorIs(t, err, context.Canceled)
	require.Empty(t, r)

	due, cancelDue := context.WithTimeout(t.Context(), time.Nanosecond)
	defer cancelDue()
	<-due.Done()
	r, err = Examine(due, Input{Group: "g", Stores: []Store{store}})
	require.NoError(t, err)
	require.Equal(t, Bad, worst(r, "sql.store").Verdict)
}

func TestMain(m *testing.M) {
	redis.SetLogger(quiet{}) // as the command does: the error has the same text
	os.Exit(m.Run())
}

// canary is a password with a mark at its start, in its middle and at its end. No part of it may
// appear.
const (
	canary = "canarya" + "/#?@%canaryb&canaryc"
	mark   = "canary"
	number = "4711" // is taken for a port
)

// quiet drops all lines.
type quiet struct{}

func (quiet) Printf(context.Context, string, ...any) {}

func requireSilent(t *testing.T, r Findings, what string) {
	t.Helper()
	require.NotEmpty(t, r)
	for _, f := range r {
		text := strings.ToLower(f.On + f.Detail + f.Remedy + f.Title)
		require.NotContains(t, text, mark, "%s: %+v", what, f)
		require.NotContains(t, text, number, "%s: %+v", what, f)
	}
}

// G-04: no finding and no error shows any part of a password, for any wrong URL and any answer of a
// server.
func TestExamine_CanaryPasswords_G04(t *testing.T) {
	const away = "127.0.0.1:1"
	escaped := url.QueryEscape(canary)
	var ledgers []Store
	for _, scheme := range []string{"postgres", "postgresql", "redis", "rediss", "redis+cluster", "redis+sentinel", "mysql", "memstore", "canary", "mem-canary"} {
		for _, password := range []string{canary, escaped, "4711/canary", "4711#canary", "4711?canary", "4711?x=canary", "can@canary", "can@canary/canary", "canary canary", "%canary"} {
			for _, host := range []string{away, away + "/0", away + "/db?connect_timeout=1", "127.0.0.1:bad/db"} {
				ledgers = append(ledgers, Store{URL: scheme + "://u:" + password + "@" + host}, Store{URL: scheme + "://:" + password + "@" + host})
			}
			ledgers = append(ledgers, Store{URL: scheme + "://" + away + "/db?password=" + password})
		}
	}
	ledgers = append(ledgers, Store{URL: "redis+cluster://h?addr=u:canary@h"}, Store{URL: "u:canary@h"}, Store{URL: "mem:canary@h"}, Store{URL: "host=h password=canary"}, Store{URL: "u:canary://x@h"},
		Store{URL: "redis"}, Store{})
	for i := range ledgers {
		ledgers[i].OpenRedis = func(context.Context) (redis.UniversalClient, string, error) {
			o, err := redis.ParseURL(ledgers[i].URL)
			if err != nil {
				return nil, "", errors.New("cannot be parsed")
			}
			o.MaxRetries, o.DialerRetries, o.DialTimeout = -1, 1, time.Second
			client := redis.NewClient(o)
			t.Cleanup(func() { _ = client.Close() })
			return client, "redis " + o.Addr, nil
		}
		r, err := Examine(t.Context(), Input{Group: "g", Stores: ledgers[i : i+1]})
		require.NoError(t, err)
		requireSilent(t, r, ledgers[i].URL)
	}
}

// The doctor's own words are not redacted: a missing word would reveal the password.
func TestExamine_PasswordThatIsAWord(t *testing.T) {
	r, err := Examine(t.Context(), Input{Group: "g", Offline: true, Stores: []Store{{URL: "postgres://u:postgres@127.0.0.1:1/postgres?pool_max_conns=1"}}})
	require.NoError(t, err)
	require.Equal(t, "postgres 127.0.0.1:1/postgres", worst(r, "settings.pool").On)
}

// G-04: no finding shows the passwords of given pools and clients that the server refuses.
func TestExamine_CanaryClients_G04(t *testing.T) {
	u, err := url.Parse(testenv.Postgres(t))
	require.NoError(t, err)
	u.User = url.UserPassword("nobody", canary)
	pool, err := pgxpool.New(t.Context(), u.String())
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	options := *testenv.RedisOptions(t)
	options.Username, options.Password = "nobody", canary
	rdb := redis.NewClient(&options)
	t.Cleanup(func() { _ = rdb.Close() })
	cluster := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{options.Addr}, Password: canary})
	t.Cleanup(func() { _ = cluster.Close() })

	fake, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.EnableSASL(), kfake.Superuser("PLAIN", "admin", "admin"))
	require.NoError(t, err)
	t.Cleanup(fake.Close)
	kafka := func(password string) func(context.Context) (sarama.Client, error) {
		return func(context.Context) (sarama.Client, error) {
			cfg := testenv.KafkaConfig()
			cfg.Net.SASL.Enable, cfg.Net.SASL.Mechanism, cfg.Net.SASL.User, cfg.Net.SASL.Password = true, sarama.SASLTypePlaintext, "admin", password
			cfg.Metadata.Retry.Max = 0
			client, err := sarama.NewClient(fake.ListenAddrs(), cfg)
			if err == nil {
				t.Cleanup(func() { _ = client.Close() })
			}
			return client, err
		}
	}
	wrong, err := pgxpool.New(t.Context(), "postgres://127.0.0.1:1/canary@h/db?user=u")
	require.NoError(t, err)
	t.Cleanup(wrong.Close)
	r, err := Examine(t.Context(), Input{
		Group: "g", Options: Options{Topics: []string{"orders"}}, Kafka: kafka(canary),
		Stores: []Store{{Pool: pool}, {Redis: rdb}, {Redis: cluster}, {Pool: wrong}},
	})
	require.NoError(t, err)
	requireSilent(t, r, "refused")
	for _, id := range []string{"kafka.connect", "postgres.connect", "redis.connect"} {
		require.Equal(t, Bad, worst(r, id).Verdict, id)
	}
	// Texts of servers are redacted too: this server quotes its input.
	in := Input{
		Group: "g", Brokers: []string{"broker:1"}, Redact: func(s string) string { return strings.ReplaceAll(s, "canary-of-the-caller", "***") },
		Kafka: func(context.Context) (sarama.Client, error) {
			return nil, errors.New("no such user: canary-of-the-caller " + canary)
		},
		Stores: []Store{{Pool: pool}},
	}
	r, err = Examine(t.Context(), in)
	require.NoError(t, err)
	requireSilent(t, r, "quoted")
	require.Contains(t, worst(r, "kafka.connect").Detail, "no such user: *** xxxxx")
}
