package main

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"sync"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/consumer"
	"github.com/idem-go/idem/outbox"
	"github.com/idem-go/idem/outbox/pgoutbox"
)

// events adds payment.completed to the outbox in the transaction of the payment, see [cashier].
type events struct {
	outbox *pgoutbox.Outbox
	topic  string
}

// completed adds the event to the outbox in tx. The event ID derives from the account and the key
// of the request, so all runs of a request make the same event.
func (e events) completed(ctx context.Context, tx pgx.Tx, p payment) error {
	payload, err := json.Marshal(map[string]any{
		"payment_id": p.ID, "order_id": p.OrderID, "customer_id": p.CustomerID, "amount": p.Amount,
		"currency": p.Currency,
	})
	if err != nil {
		return err
	}
	return e.outbox.Add(ctx, tx,
		outbox.Entry{Topic: e.topic, Key: p.OrderID, Type: "payment.completed", Payload: payload})
}

// publish publishes the rows of the outbox. Servers share the rows. stop waits until publish has
// ended; unpublished rows wait for the next server.
func publish(
	ctx context.Context, box *pgoutbox.Outbox, brokers string, watch outbox.Observer,
	log *slog.Logger,
) (stop func(), err error) {
	if brokers == "" {
		log.Info("no -brokers: payment.completed waits in the outbox and is not published")
		return func() {}, nil
	}
	producer, err := consumer.OpenProducerContext(ctx, consumer.Config{
		Brokers: strings.Split(brokers, ","), Logger: log,
	})
	if err != nil {
		return nil, err
	}
	relay, err := outbox.NewRelay(outbox.RelayConfig{
		Store: box, Producer: producer, Name: "payments", Observers: []outbox.Observer{watch},
		Logger: log,
	})
	if err != nil {
		return nil, errors.Join(err, producer.Close())
	}
	// ends after the payments that have begun
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var running sync.WaitGroup
	running.Go(func() {
		if err := errors.Join(relay.Run(ctx), producer.Close()); err != nil {
			log.Error("payment.completed is not published", "error", idem.ErrorText(err))
		}
	})
	return func() {
		cancel()
		running.Wait()
	}, nil
}
