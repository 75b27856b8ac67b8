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

type PaymentCompleted struct {
	PaymentID string `json:"payment_id"`
	OrderID   string `json:"order_id"`
}

func paid(p PaymentCompleted) []byte {
	payload, err := json.Marshal(map[string]string{"order_id": p.OrderID, "payment_id": p.PaymentID})
	if err != nil {
		panic(err) // strings can always be encoded
	}
	return payload
}

// Adds an event in the transaction of a handler. The event is published if, and only if, the
// transaction commits. A relay publishes it.
func Example_emit() {
	run := func(ctx context.Context, pool *pgxpool.Pool, router *idem.Router, producer outbox.Producer) error {
		if err := pgoutbox.Migrate(ctx, pool); err != nil {
			return err
		}
		box := pgoutbox.New(pool)
		idem.OnTx(router, "payment.completed", func(ctx context.Context, tx pgx.Tx, e idem.Event[PaymentCompleted]) error {
			if _, err := tx.Exec(ctx, `UPDATE orders SET status = 'paid' WHERE id = $1`, e.Data.OrderID); err != nil {
				return err
			}
			return box.Add(ctx, tx, outbox.Entry{Topic: "orders", Key: e.Data.OrderID, Type: "order.paid", Payload: paid(e.Data)})
		})
		relay, err := outbox.NewRelay(outbox.RelayConfig{Store: box, Producer: producer}) // or the command `idem relay`
		if err != nil {
			return err
		}
		return relay.Run(ctx)
	}
	_ = run
}
