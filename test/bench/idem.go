package main

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/adapter/kgoidem"
	"github.com/idem-go/idem/consumer"
	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/dedup/pgstore"
	"github.com/idem-go/idem/dedup/redisstore"
	"github.com/idem-go/idem/observe"
)

// Idem's rows. They use the default settings.

// noDeadLetters refuses dead letters, because no event of a benchmark is given up.
type noDeadLetters struct{ failed *firstError }

var errDeadLetter = errors.New("an event was given up")

func (n noDeadLetters) Produce(context.Context, ...*idem.Message) error {
	n.failed.add(errDeadLetter)
	return errDeadLetter
}

// consumeIdem runs the router on the topic.
func consumeIdem(
	ctx context.Context,
	x *run,
	store dedup.Store,
	r *idem.Router,
	observers ...observe.Observer,
) error {
	letters := noDeadLetters{newFirstError()}
	cfg := consumer.Config{
		Brokers: x.brokers, Group: x.group, Scope: x.scope, Topics: []string{x.topic.name}, Store: store, Lanes: x.row.lanes,
		Producer: letters, Observers: observers, Logger: slog.New(slog.NewTextHandler(io.Discard, nil)),
	}
	open := onSarama
	if x.row.runner != nil {
		open = x.row.runner
	}
	c, err := open(cfg, r)
	if err != nil {
		return err
	}
	return letters.refused(ctx, c.Run)
}

// refused consumes until consume ends. The first dead letter ends it with an error.
func (n noDeadLetters) refused(ctx context.Context, consume func(context.Context) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	ended := make(chan error, 1)
	go func() { ended <- consume(ctx) }()
	select {
	case <-n.failed.found:
		cancel(errDeadLetter)
		return errors.Join(errDeadLetter, <-ended)
	case err := <-ended:
		return err
	}
}

// kafkaRunner is a runner on any Kafka client.
type kafkaRunner interface {
	Run(ctx context.Context) error
}

// newRunner returns a runner with these settings.
type newRunner func(cfg consumer.Config, r *idem.Router) (kafkaRunner, error)

func onSarama(cfg consumer.Config, r *idem.Router) (kafkaRunner, error) {
	return consumer.New(cfg, r)
}

func onFranz(cfg consumer.Config, r *idem.Router) (kafkaRunner, error) {
	return kgoidem.New(kgoidem.Config{
		Brokers: cfg.Brokers, Group: cfg.Group, Scope: cfg.Scope, Topics: cfg.Topics, Store: cfg.Store,
		Lanes: cfg.Lanes, Producer: cfg.Producer, Observers: cfg.Observers, Logger: cfg.Logger,
	}, r)
}

func (x *run) postgres() *pgstore.Store { return pgstore.New(x.pool, x.layout()...) }

func (x *run) redisStore() dedup.Store {
	return redisstore.New(x.redis, redisstore.Prefix(x.id+":idem:"))
}

func idemOnTx(ctx context.Context, x *run) error {
	return consumeIdem(ctx, x, x.postgres(), onTxRouter(x))
}

func onTxRouter(x *run) *idem.Router {
	r := idem.NewRouter()
	idem.OnTx(r, eventType, func(ctx context.Context, tx pgx.Tx, e idem.Event[payment]) error {
		x.meter.begin()
		if err := x.row.pay(ctx, tx, &e.Data); err != nil {
			return err
		}
		x.meter.effect(e.Data.Seq) // of the run; the tables have the committed effects
		return nil
	}, x.row.options...)
	return r
}

func idemOnRedis(ctx context.Context, x *run) error    { return idemOn(ctx, x, x.redisStore()) }
func idemOnPostgres(ctx context.Context, x *run) error { return idemOn(ctx, x, x.postgres()) }

func idemOn(ctx context.Context, x *run, store dedup.Store) error {
	r := idem.NewRouter(x.row.options...)
	idem.On(r, eventType, func(_ context.Context, e idem.Event[payment]) error {
		x.meter.begin()
		if x.row.takes > 0 {
			time.Sleep(x.row.takes)
		}
		x.meter.effect(e.Data.Seq)
		return nil
	})
	return consumeIdem(ctx, x, store, r)
}
