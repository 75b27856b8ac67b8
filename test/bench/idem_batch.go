package main

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/observe"
)

func idemOnBatchTx(ctx context.Context, x *run) error {
	return consumeIdem(ctx, x, x.postgres(), batchTxRouter(x))
}

func batchTxRouter(x *run) *idem.Router {
	r := idem.NewRouter(x.row.options...)
	idem.OnBatchTx(
		r,
		eventType,
		func(ctx context.Context, tx pgx.Tx, events []idem.Event[payment]) error {
			x.meter.begin()
			x.meter.calls.Add(1)
			orders := make([]int64, len(events))
			for i := range events {
				orders[i] = events[i].Data.OrderID
			}
			if _, err := tx.Exec(ctx, payOrders, orders); err != nil {
				return err
			}
			for i := range events {
				x.meter.effect(events[i].Data.Seq)
			}
			return nil
		},
	)
	return r
}

func idemOnBatchRedis(ctx context.Context, x *run) error {
	r := idem.NewRouter(x.row.options...)
	idem.OnBatch(r, eventType, func(_ context.Context, events []idem.Event[payment]) error {
		x.meter.begin()
		x.meter.calls.Add(1)
		for i := range events {
			x.meter.effect(events[i].Data.Seq)
		}
		return nil
	})
	return consumeIdem(ctx, x, x.redisStore(), r)
}

// duplicates counts deliveries that were known.
type duplicates struct{ x *run }

func (d duplicates) ObserveDuplicate(context.Context, observe.DuplicateEvent) {
	d.x.meter.begin()
	d.x.meter.count(1)
}

// idemDuplicates consumes the same records again, with the full store.
func idemDuplicates(ctx context.Context, x *run) error {
	return consumeIdem(ctx, x, x.postgres(), batchTxRouter(x), duplicates{x})
}
