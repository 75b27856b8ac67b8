// Command laneworker is a worker for the tests of package chaos: ordered lanes with every kind of
// handler, on one Postgres. With a store of package sqlstore, which may be on MariaDB, the worker
// has the handlers that are KeyOrdered. Each run of a handler writes one row to the table effects.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/IBM/sarama"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/consumer"
	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/dedup/memstore"
	"github.com/idem-go/idem/dedup/pgstore"
	"github.com/idem-go/idem/dedup/sqlstore/postgres"
)

func main() {
	if err := run(context.Background()); err != nil {
		slog.Error("failed", "error", err)
		os.Exit(1)
	}
}

// event is the Seq-th of its key.
type event struct {
	Key int `json:"key"`
	Seq int `json:"seq"`
}

func run(ctx context.Context) (err error) {
	brokers, topic, group := flag.String("brokers", "", ""), flag.String("topic", "", ""), flag.String("group", "", "")
	url, instance, lanes := flag.String("postgres", "", ""), flag.String("instance-id", "", ""), flag.Int("lanes", 16, "")
	dsn, sqlStore := flag.String("mariadb", "", "instead of -postgres"), flag.Bool("sqlstore", false, "in -postgres")
	forgets := flag.Bool("forgets", false, "a fault for controls: claims are in the memory of the process")
	flag.Parse()
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()

	worker := fmt.Sprintf("%s/%d", *instance, os.Getpid())
	var at place
	switch {
	case *dsn != "":
		at, err = openSQL(onMariaDB, *dsn, worker)
	case *sqlStore:
		at, err = openSQL(onPostgres, *url+"&"+postgres.Parameters, worker)
	default:
		at, err = openPostgres(ctx, *url, worker, *forgets)
	}
	if err != nil {
		return err
	}
	defer at.end()

	c, err := consumer.New(consumer.Config{
		Brokers: []string{*brokers}, Group: *group, Topics: []string{*topic}, Store: at.store, InstanceID: *instance,
		Lanes: *lanes, Lease: 5 * time.Second, Grace: 5 * time.Second, CreateDeadLetterTopics: &consumer.TopicSpec{},
		Sarama: func(c *sarama.Config) {
			c.Consumer.Group.Session.Timeout = 6 * time.Second
			c.Consumer.Group.Heartbeat.Interval = time.Second
		},
	}, at.router)
	if err != nil {
		return err
	}
	err = c.Run(ctx)
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// place is an open database with a store, and the handlers that write there.
type place struct {
	store  dedup.Store
	router *idem.Router
	end    func()
}

// openPostgres has a store of package pgstore.
func openPostgres(ctx context.Context, url, worker string, forgets bool) (place, error) {
	cfg, err := pgxpool.ParseConfig(url)
	if err != nil {
		return place{}, err
	}
	cfg.MaxConns = 8
	pgstore.Configure(cfg)
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return place{}, err
	}
	return place{pgstore.New(pool), router(pool, worker, forgets), pool.Close}, nil
}

const insert = `INSERT INTO effects (key, seq, worker, kind) VALUES ($1, $2, $3, $4)`

// failures is how often an event fails before it takes effect.
func failures(e event) int {
	switch n := (e.Key*31 + e.Seq*17) % 40; n {
	case 0:
		return 2
	case 1, 2:
		return 1
	}
	return 0
}

var errBoom = errors.New("boom")

// keyOrdered returns a router for handlers that keep the order of the events of a key.
func keyOrdered(r *idem.Router) *idem.Router {
	return r.With(idem.Retry(idem.RetryPolicy{MaxAttempts: 1}), idem.KeyOrdered(time.Second, 2*time.Second, 3*time.Second, 4*time.Second))
}

// ordered adds two handlers that fail now and then, and keep the order of the events of a key.
func ordered(r *idem.Router, pool *pgxpool.Pool, worker string) {
	r = keyOrdered(r)
	idem.OnTx(r, "ordered-tx", func(ctx context.Context, tx pgx.Tx, e idem.Event[event]) error {
		_, err := tx.Exec(ctx, insert, e.Data.Key, e.Data.Seq, worker, "ordered-tx")
		if err == nil && e.Attempt <= failures(e.Data) {
			err = errBoom
		}
		return err
	})
	idem.On(r, "ordered-on", func(ctx context.Context, e idem.Event[event]) error {
		if e.Attempt <= failures(e.Data) {
			return errBoom
		}
		_, err := pool.Exec(ctx, insert, e.Data.Key, e.Data.Seq, worker, "ordered-on")
		return err
	})
}

// newRouter returns the router of all handlers.
func newRouter() *idem.Router {
	return idem.NewRouter(idem.Timeout(3*time.Second), idem.Retry(idem.RetryPolicy{MaxAttempts: idem.NoLimit, InPlace: idem.Forever}))
}

// router has the four kinds of handlers, and one that hangs until it is stopped. A transaction's
// holder that is stopped is rid of its locks after the time-out. With forgets, no other process knows
// the claims of this one.
func router(pool *pgxpool.Pool, worker string, forgets bool) *idem.Router {
	r := newRouter()
	claimed := r
	if forgets {
		claimed = r.With(idem.Store(memstore.New(memstore.Volatile())))
	}
	idem.OnTx(r, "tx", func(ctx context.Context, tx pgx.Tx, e idem.Event[event]) error {
		_, err := tx.Exec(ctx, insert, e.Data.Key, e.Data.Seq, worker, "tx")
		return err
	})
	idem.OnBatchTx(r, "batchtx", func(ctx context.Context, tx pgx.Tx, events []idem.Event[event]) error {
		keys, seqs := columns(events)
		_, err := tx.Exec(ctx, `INSERT INTO effects (key, seq, worker, kind)
			SELECT k, s, $3, 'batchtx' FROM unnest($1::int[], $2::int[]) WITH ORDINALITY AS u(k, s, n) ORDER BY n`, keys, seqs, worker)
		return err
	}, idem.SameKey())
	idem.On(claimed, "on", func(ctx context.Context, e idem.Event[event]) error {
		_, err := pool.Exec(ctx, insert, e.Data.Key, e.Data.Seq, worker, "on")
		return err
	})
	idem.OnBatch(claimed, "batch", func(ctx context.Context, events []idem.Event[event]) error {
		keys, seqs := columns(events)
		_, err := pool.Exec(ctx, `INSERT INTO effects (key, seq, worker, kind)
			SELECT k, s, $3, 'batch' FROM unnest($1::int[], $2::int[]) WITH ORDINALITY AS u(k, s, n) ORDER BY n`, keys, seqs, worker)
		return err
	}, idem.MaxBatch(32))
	idem.On(r, "stuck", func(ctx context.Context, _ idem.Event[event]) error {
		<-ctx.Done()
		return idem.NotApplied(ctx.Err())
	}, idem.Timeout(time.Hour))
	ordered(r, pool, worker)
	return r
}

func columns(events []idem.Event[event]) (keys, seqs []int) {
	for _, e := range events {
		keys, seqs = append(keys, e.Data.Key), append(seqs, e.Data.Seq)
	}
	return keys, seqs
}
