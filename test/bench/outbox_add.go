package main

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/outbox/pgoutbox"
)

// The cost of adding an event to a transaction: writers change an order each, with and without an
// event. No relay runs meanwhile.

const writers = 32

// addRows differ by the event alone.
func addRows(n sizes) []row {
	of := func(name, about string, aggregates int, check check, write func(*run) writing) row {
		return row{
			name: name, about: about, unit: "transactions/s", spec: spec{deliveries: n.writes, partitions: 6, once: true, seed: 7},
			consume: writeAll(write), check: check, empty: true, aggregates: aggregates,
		}
	}
	const many, hot = 10_000, 10
	return []row{
		of(
			"write-alone",
			"32 writers, BEGIN, UPDATE of an order of its own, COMMIT",
			many,
			inOrders,
			payAlone,
		),
		of(
			"write-naive",
			"the same with an INSERT into an outbox that is written by hand: no order is kept",
			many,
			inOrders,
			payAndInsert,
		),
		of(
			"write-outbox",
			"the same with box.Add of an event instead, 10,000 aggregates",
			many,
			inOutbox,
			payAndAdd(),
		),
		of(
			"write-outbox-notify",
			"the same with pgoutbox.Notify",
			many,
			inOutbox,
			payAndAdd(pgoutbox.Notify()),
		),
		of(
			"write-outbox-hot",
			"the same without it, 10 aggregates: their order makes writers wait",
			hot,
			inOutbox,
			payAndAdd(),
		),
		{
			name: "idem-ontx-outbox", about: "OnTx as in idem-ontx, with box.Add of an event in the handler", spec: spec{deliveries: n.medium, partitions: 6, seed: 1},
			consume: idemOnTxOutbox, check: inOutbox, pay: payOwn, aggregates: many,
		},
	}
}

// writing is the work of one transaction for event seq, before the commit.
type writing func(ctx context.Context, tx pgx.Tx, seq int) error

func payAlone(*run) writing {
	return func(ctx context.Context, tx pgx.Tx, seq int) error {
		_, err := tx.Exec(ctx, payOrder, seq+1)
		return err
	}
}

// payAndInsert is the least that an outbox costs: an INSERT without an order of commits.
func payAndInsert(x *run) writing {
	pay := payAlone(x)
	return func(ctx context.Context, tx pgx.Tx, seq int) error {
		if err := pay(ctx, tx, seq); err != nil {
			return err
		}
		_, err := tx.Exec(
			ctx,
			"INSERT INTO naive_outbox (topic, aggregate, event_type, payload) VALUES ($1, $2, $3, $4)",
			x.topic.name,
			x.row.aggregateOf(seq),
			emitted,
			payloadOf(seq),
		)
		return err
	}
}

func payAndAdd(opts ...pgoutbox.Option) func(x *run) writing {
	return func(x *run) writing {
		box, pay := pgoutbox.New(x.pool, opts...), payAlone(x)
		return func(ctx context.Context, tx pgx.Tx, seq int) error {
			if err := pay(ctx, tx, seq); err != nil {
				return err
			}
			return box.Add(ctx, tx, x.entry(seq))
		}
	}
}

// writeAll runs a transaction for every event, as many at once as there are writers.
func writeAll(of func(*run) writing) func(context.Context, *run) error {
	return func(ctx context.Context, x *run) error {
		pool, err := x.writerPool(ctx)
		if err != nil {
			return err
		}
		write, failed := of(x), newFirstError()
		var next atomic.Int64
		var group sync.WaitGroup
		x.meter.begin()
		for range writers {
			group.Go(func() {
				for seq := next.Add(1) - 1; seq < int64(x.topic.unique) && ctx.Err() == nil; seq = next.Add(1) - 1 {
					if err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error { return write(ctx, tx, int(seq)) }); err != nil {
						failed.add(err)
						return
					}
					x.meter.effect(int(seq))
				}
			})
		}
		group.Wait()
		return failed.get()
	}
}

// writerPool has a connection for each writer. It is kept for the next row.
func (l *lab) writerPool(ctx context.Context) (_ *pgxpool.Pool, err error) {
	if l.writers == nil {
		l.writers, err = l.newPool(ctx, l.id, writers)
	}
	return l.writers, err
}

// idemOnTxOutbox emits an event from each handled event. The emitted events are written together,
// before the shared commit.
func idemOnTxOutbox(ctx context.Context, x *run) error {
	r, box := idem.NewRouter(), pgoutbox.New(x.pool)
	idem.OnTx(r, eventType, func(ctx context.Context, tx pgx.Tx, e idem.Event[payment]) error {
		x.meter.begin()
		if err := x.row.pay(ctx, tx, &e.Data); err != nil {
			return err
		}
		if err := box.Add(ctx, tx, x.entry(e.Data.Seq)); err != nil {
			return err
		}
		x.meter.effect(e.Data.Seq)
		return nil
	})
	return consumeIdem(ctx, x, x.postgres(), r)
}
