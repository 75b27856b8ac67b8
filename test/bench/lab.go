package main

import (
	"context"
	"crypto/rand"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/IBM/sarama"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"

	"github.com/idem-go/idem/dedup/pgstore"
	"github.com/idem-go/idem/outbox/pgoutbox"
)

// lab is shared by all rows of a run. Everything that lab makes has the run's ID in the name, and
// close removes all.
type lab struct {
	id      string
	brokers []string
	admin   sarama.ClusterAdmin
	pool    *pgxpool.Pool
	writers *pgxpool.Pool // one connection each; nil until they are wanted
	redis   *redis.Client
	topics  map[spec]*topic
	created []string
	roots   []int // own processes; empty if they are unknown
}

//go:embed tables.sql
var tablesSQL string

// connections is the number of Postgres connections for every row.
const connections = 24

func openLab(ctx context.Context) (_ *lab, err error) {
	l, err := connectLab(ctx, "bench-"+strings.ToLower(rand.Text()[:10]))
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			l.close()
		}
	}()
	if err := l.createTables(ctx); err != nil {
		return nil, fmt.Errorf("postgres: %w", err)
	}
	servers, err := l.servers()
	if err != nil {
		return nil, err
	}
	if l.roots, err = proc.ownProcesses(servers); err != nil {
		logf("the load of the machine is not measured: %v", err)
	}
	return l, nil
}

// connectLab connects to the servers of the run with this ID.
func connectLab(ctx context.Context, id string) (_ *lab, err error) {
	l := &lab{id: id, topics: make(map[spec]*topic)}
	defer func() {
		if err != nil {
			l.disconnect()
		}
	}()
	for _, name := range []string{"KAFKA_BROKERS", "POSTGRES_URL", "REDIS_URL"} {
		if os.Getenv(name) == "" {
			return nil, fmt.Errorf(
				"%s is not set: run it by `make bench`, or by test/services/services.sh run",
				name,
			)
		}
	}
	l.brokers = strings.Split(os.Getenv("KAFKA_BROKERS"), ",")
	if l.admin, err = sarama.NewClusterAdmin(l.brokers, saramaConfig()); err != nil {
		return nil, fmt.Errorf("kafka: %w", err)
	}
	opts, err := redis.ParseURL(os.Getenv("REDIS_URL"))
	if err != nil {
		return nil, errors.New("REDIS_URL cannot be parsed")
	}
	opts.PoolSize = connections
	l.redis = redis.NewClient(opts)
	if err := l.redis.Ping(ctx).Err(); err != nil {
		return nil, fmt.Errorf("redis: %w", err)
	}
	if err := l.openPostgres(ctx); err != nil {
		return nil, fmt.Errorf("postgres: %w", err)
	}
	return l, nil
}

// schema is where the tables are.
func (l *lab) schema() string { return strings.ReplaceAll(l.id, "-", "_") }

// compactSchema has the tables of the compact layout.
func (l *lab) compactSchema() string { return l.schema() + "_compact" }

func (l *lab) openPostgres(ctx context.Context) error {
	cfg, err := pgxpool.ParseConfig(os.Getenv("POSTGRES_URL"))
	if err != nil {
		return errors.New("POSTGRES_URL cannot be parsed")
	}
	cfg.ConnConfig.RuntimeParams["application_name"] = l.id
	pgstore.Configure(cfg)
	cfg.ConnConfig.RuntimeParams["search_path"] = l.schema()
	cfg.MaxConns, cfg.MinConns = connections, connections
	l.pool, err = pgxpool.NewWithConfig(ctx, cfg)
	return err
}

func (l *lab) createTables(ctx context.Context) error {
	if _, err := l.pool.Exec(ctx, "CREATE SCHEMA "+l.schema()); err != nil {
		return err
	}
	if err := pgstore.Migrate(ctx, l.pool, pgstore.InSchema(l.schema())); err != nil {
		return err
	}
	compact := []pgstore.Option{pgstore.Compact(), pgstore.InSchema(l.compactSchema())}
	if err := pgstore.Migrate(ctx, l.pool, compact...); err != nil {
		return err
	}
	if err := pgoutbox.Migrate(ctx, l.pool, pgoutbox.InSchema(l.schema())); err != nil {
		return err
	}
	_, err := l.pool.Exec(ctx, tablesSQL)
	return err
}

// close removes everything that the run has made.
func (l *lab) close() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if _, err := l.pool.Exec(ctx, "DROP SCHEMA IF EXISTS "+l.schema()+", "+l.compactSchema()+" CASCADE"); err != nil {
		logf("postgres: %v", err)
	}
	if err := l.forget(ctx); err != nil {
		logf("redis: %v", err)
	}
	for name := range slices.Values(l.created) {
		_ = l.admin.DeleteTopic(name) // it may not have come into being
	}
	l.disconnect()
}

// disconnect ends the connections.
func (l *lab) disconnect() {
	if l.writers != nil {
		l.writers.Close()
	}
	if l.pool != nil {
		l.pool.Close()
	}
	if l.redis != nil {
		_ = l.redis.Close()
	}
	if l.admin != nil {
		_ = l.admin.Close()
	}
}

// forget removes the keys of this run from Redis.
func (l *lab) forget(ctx context.Context) error {
	var cursor uint64
	for {
		keys, next, err := l.redis.Scan(ctx, cursor, l.id+"*", 5000).Result()
		if err != nil {
			return err
		}
		if len(keys) > 0 {
			if err := l.redis.Unlink(ctx, keys...).Err(); err != nil {
				return err
			}
		}
		if cursor = next; cursor == 0 {
			return nil
		}
	}
}

// reset empties all tables and keys, and writes that many orders that wait to be paid.
func (l *lab) reset(ctx context.Context, orders int) error {
	if err := l.forget(ctx); err != nil {
		return err
	}
	var tables string // also those in which the store remembers scopes and progress
	if err := l.pool.QueryRow(ctx, `SELECT string_agg(format('%I.%I', schemaname, tablename), ', ') FROM pg_tables
		WHERE schemaname = ANY ($1) AND tablename NOT IN ('idem_schema', 'idem_outbox_schema', 'idem_outbox_shards')`, []string{l.schema(), l.compactSchema()}).Scan(&tables); err != nil {
		return err
	}
	for _, q := range []string{
		"TRUNCATE " + tables,
		"UPDATE idem_outbox_shards SET relay = NULL, lease_until = NULL",
		fmt.Sprintf("INSERT INTO accounts (id) SELECT generate_series(1, %d)", accounts),
		fmt.Sprintf("INSERT INTO orders (id) SELECT generate_series(1, %d)", orders),
		"VACUUM ANALYZE orders", // equal hint bits and statistics for every row
		"VACUUM ANALYZE accounts",
	} {
		if _, err := l.pool.Exec(ctx, q); err != nil {
			return err
		}
	}
	return nil
}

// paid counts the orders, and those that were paid once.
func (l *lab) paid(ctx context.Context) (once, other int, err error) {
	err = l.pool.QueryRow(ctx, "SELECT count(*) FILTER (WHERE paid = 1), count(*) FILTER (WHERE paid > 1) FROM orders").
		Scan(&once, &other)
	return once, other, err
}

// booked returns how many payments the accounts have, and their sum.
func (l *lab) booked(ctx context.Context) (payments, sum int64, err error) {
	err = l.pool.QueryRow(ctx, "SELECT coalesce(sum(payments), 0), coalesce(sum(balance), 0) FROM accounts").
		Scan(&payments, &sum)
	return payments, sum, err
}

// saramaConfig returns the configuration of the hand-written consumers and Watermill: sarama's
// defaults, from the first record on.
func saramaConfig() *sarama.Config {
	c := sarama.NewConfig()
	c.ClientID = "bench"
	c.Metadata.AllowAutoTopicCreation = false
	c.Consumer.Offsets.Initial = sarama.OffsetOldest
	c.Consumer.Return.Errors = true
	return c
}
