package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/outbox"
	"github.com/idem-go/idem/outbox/pgoutbox"
)

// orders are the statements of the handler in the SQL of one database. Tx is the type of its
// transactions. Every statement runs in the transaction of the handler.
type orders[Tx any] interface {
	// pay moves a pending order to paid. paid is false if no order with this ID is pending.
	pay(ctx context.Context, tx Tx, p Payment) (paid bool, err error)
	// find returns the status of an order and the payment that paid it. found is false if the order
	// does not exist.
	find(ctx context.Context, tx Tx, id orderID) (status, paidBy string, found bool, err error)
	// audit adds a row for this run.
	audit(ctx context.Context, tx Tx, p Payment, worker string) error
	// emit adds an event to the outbox.
	emit(ctx context.Context, tx Tx, e outbox.Entry) error
}

// tables are the tables of a database.
type tables interface {
	// migrate creates the missing tables. Several workers may run migrate at once.
	migrate(ctx context.Context) error
	// seed adds those of the orders 1 to n that are missing, as pending, and returns the number of
	// added orders.
	seed(ctx context.Context, n int64) (int64, error)
	// close closes the connections.
	close()
}

// opened is an open database: the tables, the store in them, and the handler for their
// transactions.
type opened struct {
	tables
	store  dedup.Store
	router *idem.Router
	reaper interface{ Run(context.Context) error } // deletes expired records
	box    *pgoutbox.Outbox                        // nil if the database has no outbox
}

var errOutbox = errors.New("the outbox needs Postgres")

// open opens the database of the flags. It does not connect.
func (o options) open(ctx context.Context, watch ...outbox.Observer) (*opened, error) {
	if o.mysql != "" {
		return o.openMySQL()
	}
	return o.openPostgres(ctx, watch...)
}

// prepare does the work of -migrate and -seed.
func (o options) prepare(ctx context.Context) error {
	if !o.migrate && o.seed == 0 {
		return nil
	}
	db, err := o.open(ctx)
	if err != nil {
		return err
	}
	defer db.close()
	if o.migrate {
		if err := db.migrate(ctx); err != nil {
			return fmt.Errorf("migrate: %w", err)
		}
		o.log.InfoContext(ctx, "tables exist")
	}
	if o.seed > 0 {
		added, err := db.seed(ctx, o.seed)
		if err != nil {
			return fmt.Errorf("seed: %w", err)
		}
		o.log.InfoContext(ctx, "orders exist", "orders", o.seed, "added", added)
	}
	return nil
}
