package pgoutbox_test

import (
	"context"
	"encoding/json"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/outbox"
	"github.com/idem-go/idem/outbox/pgoutbox"
)

// Adds events in the transaction of a handler. Their IDs derive from the handled event, so every
// attempt makes the same IDs.
func ExampleOutbox_Add() {
	type order struct{ Lines []string }
	register := func(router *idem.Router, box *pgoutbox.Outbox) {
		idem.OnTx(router, "order.paid", func(ctx context.Context, tx pgx.Tx, e idem.Event[order]) error {
			if _, err := tx.Exec(ctx, "UPDATE orders SET state = 'shipped' WHERE id = $1", e.ID); err != nil {
				return err
			}
			body, err := json.Marshal(e.Data)
			if err != nil {
				return err
			}
			entries := []outbox.Entry{{Topic: "shipments", Key: e.ID, Type: "order.shipped", Payload: body}}
			for _, article := range e.Data.Lines { // several of one type and key: names tell them apart
				entries = append(entries, outbox.Entry{Topic: "stock", Key: e.ID, Type: "stock.taken", Name: article})
			}
			return box.Add(ctx, tx, entries...)
		})
	}
	_ = register
}

// Adds events from several functions in your own transaction.
func ExampleOutbox_Queue() {
	place := func(ctx context.Context, pool *pgxpool.Pool, box *pgoutbox.Outbox, order string) error {
		begun, err := pool.Begin(ctx)
		if err != nil {
			return err
		}
		tx := box.Queue(begun)
		defer tx.Rollback(ctx) // does nothing after Commit
		if _, err := tx.Exec(ctx, "INSERT INTO orders (id) VALUES ($1)", order); err != nil {
			return err
		}
		if err := box.Add(ctx, tx, outbox.Entry{Topic: "orders", Key: order, Type: "order.placed", ID: order}); err != nil {
			return err
		}
		return tx.Commit(ctx)
	}
	_ = place
}

// Adds events in a transaction that pgx commits.
func ExampleOutbox_Queued() {
	place := func(ctx context.Context, pool *pgxpool.Pool, box *pgoutbox.Outbox) error {
		return pgx.BeginFunc(ctx, box.Queued(pool), func(tx pgx.Tx) error {
			return box.Add(ctx, tx, outbox.Entry{Topic: "orders", Key: "7", Type: "order.placed", ID: "placed-7"})
		})
	}
	_ = place
}

// Adds events in a transaction that other code commits.
func ExampleOutbox_Flush() {
	place := func(ctx context.Context, pool *pgxpool.Pool, box *pgoutbox.Outbox) error {
		return pgx.BeginFunc(ctx, pool, func(begun pgx.Tx) error {
			tx := box.Queue(begun)
			if err := box.Add(ctx, tx, outbox.Entry{Topic: "orders", Key: "7", Type: "order.placed", ID: "placed-7"}); err != nil {
				return err
			}
			return box.Flush(ctx, tx)
		})
	}
	_ = place
}
