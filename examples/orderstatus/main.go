// Command orderstatus is a worker that sets orders to paid, each once, however often Kafka delivers
// the payment. The record of the payment in the store and the change of the order are one
// transaction in Postgres, MariaDB or MySQL. README.md shows how to run the worker.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/IBM/sarama"

	"github.com/idem-go/idem/codec/schemaregistry"
	"github.com/idem-go/idem/consumer"
	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/examples/internal/cli"
	"github.com/idem-go/idem/examples/internal/telemetry"
	"github.com/idem-go/idem/observe"
	"github.com/idem-go/idem/outbox"
	"github.com/idem-go/idem/outbox/pgoutbox"
	"github.com/idem-go/idem/service"
)

func main() {
	os.Exit(run(context.Background(), os.Args[1:], os.Stderr))
}

// run is the program. All output goes to stderr.
func run(ctx context.Context, args []string, stderr io.Writer) int {
	o, err := parse(args, stderr)
	if err != nil {
		return cli.Usage(err)
	}
	return cli.Run(ctx, o.log, o.work)
}

type options struct {
	brokers, topic, emit, group, postgres, mysql, instance, client string

	migrate, audit bool
	batch          bool
	registry       *schemaregistry.Registry // nil: the payments are plain JSON
	newScope       bool
	shadow         bool
	seed           int64
	sessionTimeout time.Duration
	stats          time.Duration
	replay         replayOptions
	log            *slog.Logger
	out            io.Writer
}

func parse(args []string, stderr io.Writer) (options, error) {
	o := options{log: slog.New(slog.NewTextHandler(stderr, nil)), out: stderr}
	flags := flag.NewFlagSet("orderstatus", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.StringVar(&o.brokers, "brokers", "", "Kafka brokers, host:port, separated by commas;\n"+
		"without them the program ends after -migrate and -seed")
	flags.StringVar(&o.topic, "topic", "payments", "topic of the payments")
	flags.StringVar(&o.emit, "emit", "",
		"`topic` of order.paid, through the outbox; default: do not emit")
	flags.StringVar(&o.group, "group", "orderstatus",
		"consumer group and scope of the store; another group handles every payment again")
	flags.BoolVar(&o.shadow, "shadow", false,
		"shadow mode: handle every payment, and count those that would be skipped")
	flags.BoolVar(&o.newScope, "new-scope", false,
		"allow a group without offsets on a topic whose payments another group has handled")
	flags.StringVar(&o.postgres, "postgres", "",
		"Postgres `URL` of the orders and of processed_events; default $POSTGRES_URL")
	flags.StringVar(&o.mysql, "mysql", "",
		"`DSN` of a MariaDB or MySQL to use instead of Postgres: user:password@tcp(host:3306)/database")
	flags.BoolVar(&o.batch, "batch", false,
		"handle the waiting payments of a partition in one call and one transaction")
	var registry string
	flags.StringVar(&registry, "registry", "",
		"`URL` of the schema registry for payments in Confluent's wire format; default: plain JSON")
	flags.StringVar(&o.instance, "instance-id", "",
		"static group membership: a restart under the same `ID` goes on at once, without a rebalance")
	flags.StringVar(&o.client, "client", onSarama, "Kafka client of the worker: "+onSarama+" or "+onFranzGo)
	flags.BoolVar(&o.migrate, "migrate", false, "first create the missing tables")
	flags.Int64Var(&o.seed, "seed", 0, "first add pending orders numbered 1 to `N`")
	flags.BoolVar(&o.audit, "audit", false, "write a row to order_effects for every committed run")
	flags.DurationVar(&o.sessionTimeout, "session-timeout", 0,
		"time after which Kafka removes a silent worker; default: that of package consumer")
	flags.DurationVar(&o.stats, "stats", 0, "log counts at this interval; default: only at the end")
	o.replay.flags(flags)
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	// not the default of the flag, because -help prints defaults and the URL may hold a password
	o.postgres = cmp.Or(o.postgres, os.Getenv("POSTGRES_URL"))
	var problem error
	switch {
	case flags.NArg() > 0:
		problem = fmt.Errorf("unexpected argument %q", flags.Arg(0))
	case o.mysql != "" && given(flags, "postgres"):
		problem = errors.New("give -postgres or -mysql, not both")
	case o.mysql != "" && o.emit != "":
		problem = errors.New("-emit cannot be used with -mysql: " + errOutbox.Error())
	case o.mysql == "" && o.postgres == "":
		problem = errors.New("-postgres is missing")
	case o.client != onSarama && o.client != onFranzGo:
		problem = fmt.Errorf("-client %q is neither %s nor %s", o.client, onSarama, onFranzGo)
	case o.seed < 0 || o.sessionTimeout < 0 || o.stats < 0:
		problem = errors.New("-seed, -session-timeout and -stats must not be negative")
	case o.brokers == "" && (!o.migrate && o.seed == 0 || o.replay.from != ""):
		problem = errors.New("-brokers is missing")
	default:
		problem = o.replay.check(time.Now())
	}
	if registry != "" && problem == nil {
		o.registry, problem = schemaregistry.New(schemaregistry.Config{URLs: []string{registry}})
	}
	return o, cli.Checked(flags, problem)
}

// given reports whether a flag is on the command line.
func given(flags *flag.FlagSet, name string) (found bool) {
	flags.Visit(func(f *flag.Flag) { found = found || f.Name == name })
	return found
}

// work prepares the database and then handles payments until ctx ends.
func (o options) work(ctx context.Context) error {
	if err := o.prepare(ctx); err != nil || o.brokers == "" {
		return err
	}
	watch, endTelemetry, err := telemetry.Observe(ctx, "orderstatus", o.log)
	if err != nil {
		return err
	}
	defer endTelemetry()
	db, err := o.open(ctx, watch)
	if err != nil {
		return err
	}
	defer db.close()
	if o.replay.from != "" {
		return o.replay.run(ctx, o.config(db.store), db.router, o.out)
	}
	counts := &stats{}
	c, err := o.newWorker(o.config(db.store, counts, watch), db.router)
	if err != nil {
		return err
	}
	// The last part stops first. Relay and reaper serve the handlers until the worker has stopped.
	parts := []service.Part{{Name: "reaper", Run: db.reaper.Run}}
	if o.stats > 0 {
		parts = append(parts, service.Part{Name: "stats", Run: func(ctx context.Context) error {
			cli.Report(ctx, o.log, o.stats, "stats", counts)
			return nil
		}})
	}
	if o.emit != "" {
		relay, producer, err := o.newRelay(ctx, db.box, watch)
		if err != nil {
			return err
		}
		parts = append(parts, service.Part{Name: "relay", Run: relay.Run, Close: producer.Close})
	}
	parts = append(parts, service.Part{Name: "worker", Run: c.Run})
	err = service.Run(ctx, service.Config{Logger: o.log}, parts...)
	o.log.Info("stopped", "stats", counts)
	return err
}

func (o options) config(store dedup.Store, observers ...observe.Observer) consumer.Config {
	return consumer.Config{
		Brokers:    strings.Split(o.brokers, ","),
		Group:      o.group,
		Topics:     []string{o.topic},
		Store:      store,
		NewScope:   o.newScope,
		Shadow:     o.shadow,
		InstanceID: o.instance,
		// A payment that cannot be booked goes to <topic>.<group>.dlq. The worker creates that
		// topic if needed.
		CreateDeadLetterTopics: &consumer.TopicSpec{},
		Observers:              observers,
		Logger:                 o.log,
		Sarama: func(c *sarama.Config) {
			if o.sessionTimeout > 0 {
				c.Consumer.Group.Session.Timeout = o.sessionTimeout
				c.Consumer.Group.Heartbeat.Interval = o.sessionTimeout / 6
			}
		},
	}
}

// newRelay returns the relay that publishes order.paid. Workers share the rows of the outbox. The
// command idem relay can do the same.
func (o options) newRelay(
	ctx context.Context, box *pgoutbox.Outbox, watch outbox.Observer,
) (*outbox.Relay, *consumer.Producer, error) {
	producer, err := consumer.OpenProducerContext(ctx, consumer.Config{
		Brokers: strings.Split(o.brokers, ","), Logger: o.log,
	})
	if err != nil {
		return nil, nil, err
	}
	relay, err := outbox.NewRelay(outbox.RelayConfig{
		Store: box, Producer: producer, Name: "orders", Observers: []outbox.Observer{watch},
		Logger: o.log,
	})
	if err != nil {
		return nil, nil, errors.Join(err, producer.Close())
	}
	return relay, producer, nil
}

// worker returns the name for the audit table. The name is unique for each process, also under one
// instance ID.
func (o options) worker() string { return fmt.Sprintf("%s/%d", o.instance, os.Getpid()) }
