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
	c, err := newRunner(x, cfg, r)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	select {
	case <-letters.failed.found:
		cancel(errDeadLetter)
		return errors.Join(errDeadLetter, <-ended)
	case err := <-ended:
		return err
	}
}

// newRunner returns the runner on the client of the row.
func newRunner(
	x *run, cfg consumer.Config, r *idem.Router,
) (interface{ Run(context.Context) error }, error) {
	if !x.row.franz {
		return consumer.New(cfg, r)
	}
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
	r := idem.NewRouter()
	idem.OnTx(r, eventType, func(ctx context.Context, tx pgx.Tx, e idem.Event[payment]) error {
		x.meter.begin()
		if err := x.row.pay(ctx, tx, &e.Data); err != nil {
			return err
		}
		x.meter.effect(e.Data.Seq) // of the run; the tables have the committed effects
		return nil
	}, x.row.options...)
	return consumeIdem(ctx, x, x.postgres(), r)
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
