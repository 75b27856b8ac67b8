package canary

import (
	"context"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/consumer"
	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/dedup/memstore"
	"github.com/idem-go/idem/dedup/pgstore"
	"github.com/idem-go/idem/dedup/redisstore"
	"github.com/idem-go/idem/internal/testenv"
	"github.com/idem-go/idem/outbox/pgoutbox"
)

// addresses are those without such a server: a port without a listener, and another server.
func addresses(t *testing.T) []string {
	return []string{"127.0.0.1:1", testenv.Kafka(t)[0], testenv.RedisOptions(t).Addr}
}

// said logs an error as a program would.
func (h *house) said(err error) {
	if err != nil {
		h.log.Error("failed", "error", idem.ErrorText(err))
	}
}

// each does n things at once, since most of them wait for servers that do not answer.
func (h *house) each(n int, do func(i int)) {
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { do(i) })
	}
	all.Wait()
}

// uses handles an event with a store that cannot be used.
func (h *house) uses(store dedup.Store) {
	ctx, cancel := context.WithTimeout(h.t.Context(), 300*time.Millisecond)
	defer cancel()
	r := idem.NewRouter()
	idem.On(r, "order", func(context.Context, idem.Event[order]) error { return nil })
	p := h.processor(r, store)
	h.said(p.Handle(ctx, h.record("e1", "order", `{"mail":"`+secret()+`"}`)))
	require.NoError(h.t, p.Close())
}

// Passwords of Postgres, in both forms of its connection strings: no server there, the wrong
// server, the wrong password, strings that cannot be read.
func TestPostgresPasswords_G04(t *testing.T) {
	h := newHouse(t)
	real, err := pgxpool.ParseConfig(os.Getenv("POSTGRES_URL"))
	require.NoError(t, err)
	urls := []string{
		fmt.Sprintf("postgres://idem:%s@%s:%d/%s?sslmode=disable", secret(), real.ConnConfig.Host, real.ConnConfig.Port, "idem"),
		fmt.Sprintf("host=%s port=%d user=nobody password=%s dbname=idem sslmode=disable", real.ConnConfig.Host, real.ConnConfig.Port, secret()),
		"postgres://idem:" + secret() + "@/x?sslmode=" + secret()[:3] + "never", "postgres://idem:" + secret() + "/x@h:5432/d", "postgres://idem:%zz" + secret() + "@h/d",
		"password=" + secret() + " port=none", "password='" + secret(), "host=h pass word=" + "x" + " password = " + secret() + " port = x",
		"postgres://h/d?password=" + secret() + "&port=none", "postgres://idem:" + secret() + "@[h/d",
	}
	urls = append(urls, testenv.Postgres(t)) // where there are no tables
	for _, at := range addresses(t) {
		urls = append(urls, "postgres://idem:"+secret()+"@"+at+"/x?sslmode=disable&connect_timeout=1")
	}
	h.each(len(urls), func(i int) {
		pool, err := pgxpool.New(t.Context(), urls[i])
		h.said(err)
		if err != nil {
			return
		}
		defer pool.Close()
		h.uses(pgstore.New(pool))
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		h.said(pgstore.NewReaper(pgstore.New(pool), pgstore.ReaperConfig{Logger: h.log, Interval: time.Minute}).Run(ctx))
		h.said(h.relay(pgoutbox.New(pool), &refusing{}).Run(ctx))
		cancel()
		h.said(pgstore.Migrate(t.Context(), pool))
	})
	require.Regexp(t, `reaper cannot work[^\n]*SQLSTATE \w{5} \(`, h.sinks[0].read())
	h.clean()
}

// redisLog gets the lines that go-redis writes by itself.
type redisLog struct{ h *house }

// Printf implements the logger of go-redis.
func (l redisLog) Printf(ctx context.Context, format string, v ...any) {
	l.h.log.DebugContext(ctx, fmt.Sprintf(format, v...))
}

// Passwords of Redis: some servers take any.
func TestRedisPasswords_G04(t *testing.T) {
	h := newHouse(t)
	redis.SetLogger(redisLog{h})
	defer redis.SetLogger(&logging.VoidLogger{})
	urls := []string{
		"redis://:" + secret() + "@h:port/0", "redis://u:" + secret() + "/x@h:1/0", "redis://:" + secret() + "@h:1/" + "none", "other://:" + secret() + "@h:1",
		"redis://:" + secret() + "@127.0.0.1:1/0?dial_timeout=none", "redis://:%zz" + secret() + "@h",
	}
	for _, at := range addresses(t) {
		urls = append(urls, "redis://:"+secret()+"@"+at, "redis://user:"+secret()+"@"+at)
	}
	h.each(len(urls), func(i int) {
		options, err := redis.ParseURL(urls[i])
		h.said(err)
		if err != nil {
			return
		}
		options.DialTimeout, options.ReadTimeout, options.MaxRetries = 300*time.Millisecond, 300*time.Millisecond, -1
		client := redis.NewClient(options)
		h.uses(redisstore.New(client))
		h.said(client.Set(t.Context(), secret(), secret(), 0).Err())
		h.said(client.Close())
	})
	h.clean()
}

// impatient gives up on servers that do not speak Kafka.
func impatient(sc *sarama.Config) {
	sc.Net.DialTimeout, sc.Net.ReadTimeout, sc.Net.WriteTimeout = 300*time.Millisecond, 1100*time.Millisecond, 300*time.Millisecond
	sc.Metadata.Retry.Max = 0
}

// Passwords for Kafka: no server there, the wrong server, a server without SASL, the wrong
// password.
func TestSASLPasswords_G04(t *testing.T) {
	h := newHouse(t)
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "orders"), kfake.EnableSASL(),
		kfake.Superuser("PLAIN", "app", "right"), kfake.Superuser("SCRAM-SHA-256", "app", "right"))
	require.NoError(t, err)
	defer cluster.Close()
	at, mechanisms := append(addresses(t), cluster.ListenAddrs()[0]), []string{"PLAIN", "SCRAM-SHA-256"}
	h.each(len(at)*len(mechanisms), func(i int) {
		cfg := consumer.Config{
			Brokers: []string{at[i/2]}, Group: "g", Topics: []string{"orders"}, Store: memstore.New(memstore.Volatile()), Logger: h.log,
			Observers: h.observers, SASL: &consumer.SASL{Mechanism: mechanisms[i%2], User: "app", Password: secret()},
			AllowInsecure: true, Grace: time.Second, Sarama: impatient,
		}
		h.log.Info("configured", "config", cfg, "sasl", cfg.SASL, "text", fmt.Sprintf("%v %+v %#v", cfg, cfg, cfg))
		r := idem.NewRouter()
		idem.On(r, "order", func(context.Context, idem.Event[order]) error { return nil })
		c, err := consumer.New(cfg, r)
		if err != nil {
			t.Error(err)
			return
		}
		ctx, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
		defer cancel()
		h.said(c.Run(ctx))
		h.said(c.Ready())
	})
	h.clean()
}
