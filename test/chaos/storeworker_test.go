package chaos

import (
	"context"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/IBM/sarama"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/consumer"
	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/dedup/pgstore"
	"github.com/idem-go/idem/dedup/sqlstore/postgres"
	"github.com/idem-go/idem/observe"
)

// storeRole is a worker on one of the two stores that share the tables of Postgres. The worker
// writes one row to the table effects for each run of its handler that commits.
const storeRole = "store"

const (
	onPgstore  = "pgstore"
	onSQLStore = "sqlstore"
)

// storeWorker has the flags of a worker.
type storeWorker struct{ kind, brokers, topic, group, url, instance string }

func (w storeWorker) args() []string {
	return []string{
		"-store", w.kind, "-brokers", w.brokers, "-topic", w.topic, "-group", w.group,
		"-postgres", w.url, "-instance-id", w.instance,
	}
}

func storeWorkerRole(args []string) error {
	var w storeWorker
	flags := flag.NewFlagSet(storeRole, flag.ContinueOnError)
	flags.StringVar(&w.kind, "store", "", "")
	flags.StringVar(&w.brokers, "brokers", "", "")
	flags.StringVar(&w.topic, "topic", "", "")
	flags.StringVar(&w.group, "group", "", "")
	flags.StringVar(&w.url, "postgres", "", "")
	flags.StringVar(&w.instance, "instance-id", "", "")
	if err := flags.Parse(args); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	return w.run(ctx)
}

func (w storeWorker) run(ctx context.Context) error {
	store, router, closeDB, err := w.open(ctx)
	if err != nil {
		return err
	}
	defer closeDB()
	c, err := consumer.New(consumer.Config{
		Brokers: strings.Split(w.brokers, ","), Group: w.group, Topics: []string{w.topic},
		Store: store, InstanceID: w.instance, Grace: 5 * time.Second,
		CreateDeadLetterTopics: &consumer.TopicSpec{}, Observers: []observe.Observer{copyPrinter{}},
		Sarama: func(c *sarama.Config) {
			c.Consumer.Group.Session.Timeout = 6 * time.Second
			c.Consumer.Group.Heartbeat.Interval = 300 * time.Millisecond
		},
	}, router)
	if err != nil {
		return err
	}
	if err := c.Run(ctx); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

const insertEffect = `INSERT INTO effects (event, store, worker) VALUES ($1, $2, $3)`

// open opens the database with the client of the store.
func (w storeWorker) open(ctx context.Context) (dedup.Store, *idem.Router, func(), error) {
	const typ = "e"
	type event struct {
		ID string `json:"event_id"`
	}
	worker := fmt.Sprintf("%s/%d", w.instance, os.Getpid())
	router := idem.NewRouter(idem.Type(idem.Fixed(typ)))
	switch w.kind {
	case onPgstore:
		cfg, err := pgxpool.ParseConfig(w.url)
		if err != nil {
			return nil, nil, nil, err
		}
		cfg.MaxConns = 8
		pgstore.Configure(cfg)
		pool, err := pgxpool.NewWithConfig(ctx, cfg)
		if err != nil {
			return nil, nil, nil, err
		}
		idem.OnTx(router, typ, func(ctx context.Context, tx pgx.Tx, e idem.Event[event]) error {
			_, err := tx.Exec(ctx, insertEffect, e.Data.ID, w.kind, worker)
			return err
		})
		return pgstore.New(pool), router, pool.Close, nil
	case onSQLStore:
		db, err := sql.Open("pgx", w.url+"&"+postgres.Parameters)
		if err != nil {
			return nil, nil, nil, err
		}
		db.SetMaxOpenConns(8)
		db.SetMaxIdleConns(8)
		idem.OnTx(router, typ, func(ctx context.Context, tx *sql.Tx, e idem.Event[event]) error {
			_, err := tx.ExecContext(ctx, insertEffect, e.Data.ID, w.kind, worker)
			return err
		})
		return postgres.New(db), router, func() { _ = db.Close() }, nil
	}
	return nil, nil, nil, fmt.Errorf("no store %q", w.kind)
}

// copyPrinter writes the ID of each event of which another record was handled before.
type copyPrinter struct{}

var _ observe.DuplicateObserver = copyPrinter{}

func (copyPrinter) ObserveDuplicate(_ context.Context, e observe.DuplicateEvent) {
	if !e.SameRecord {
		fmt.Println(e.Key.ID)
	}
}
