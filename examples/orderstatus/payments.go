package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/codec/schemaregistry"
	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/outbox"
)

// This file is the part of the example that concerns Idem: the event, the identity and the effect
// of an event, and the event that follows.

// Payment is the payload of payment.completed and of order.paid.
type Payment struct {
	PaymentID  string      `json:"payment_id"`
	OrderID    orderID     `json:"order_id"`
	CustomerID string      `json:"customer_id,omitempty"`
	Amount     json.Number `json:"amount,omitempty"`
	Currency   string      `json:"currency,omitempty"`
}

// orderID is a number. The JSON may have quotes, as producers with text IDs write them.
type orderID int64

// UnmarshalJSON implements [json.Unmarshaler].
func (n *orderID) UnmarshalJSON(b []byte) error {
	return json.Unmarshal(bytes.Trim(b, `"`), (*int64)(n))
}

// newRouter registers the handler for the transactions of db. The identity of an event is the
// payment, not the message. A producer may send a payment again with a new event_id and under
// another Kafka key; that is the same event.
func newRouter[Tx any](o options, db orders[Tx]) *idem.Router {
	h := handler[Tx]{db: db, worker: o.worker(), auditOn: o.audit, emit: o.emit}
	r, identity := idem.NewRouter(
		idem.NoContentCheck(), // copies differ, because each has its own event_id
		// A missing order gets 5 s (RetryPolicy.InPlace) to appear, with any number of attempts.
		idem.Retry(idem.RetryPolicy{MaxAttempts: idem.NoLimit})), idem.FromJSON("payment_id")
	if o.registry != nil { // the title of the payments' schema is the type of the event
		r = r.With(idem.DecodeWith(o.registry), idem.Type(o.registry.SchemaName()))
		identity = schemaregistry.Field[Payment](o.registry, "payment_id")
	}
	if o.batch {
		idem.OnBatchTx(r, "payment.completed", h.paymentsCompleted, idem.ID(identity))
	} else {
		idem.OnTx(r, "payment.completed", h.paymentCompleted, idem.ID(identity))
	}
	return r
}

// handler holds the dependencies of the handler of payments.
type handler[Tx any] struct {
	db      orders[Tx]
	worker  string // name of the worker in the audit table
	auditOn bool
	emit    string // topic of order.paid; empty: order.paid is not emitted
}

// paymentCompleted moves an order from pending to paid. The update in tx, the record in
// processed_events and order.paid in the outbox are one transaction: they commit together.
func (h handler[Tx]) paymentCompleted(ctx context.Context, tx Tx, e idem.Event[Payment]) error {
	p := e.Data
	// encoding/json would accept PAYMENT_ID too; the identity is the ID in the store
	p.PaymentID = e.ID
	if p.OrderID < 1 {
		return idem.Permanent(fmt.Errorf("payment %s is for order %d", p.PaymentID, p.OrderID))
	}
	if h.auditOn {
		if err := h.db.audit(ctx, tx, p, h.worker); err != nil {
			return err
		}
	}
	switch paid, err := h.db.pay(ctx, tx, p); {
	case err != nil:
		return err
	case !paid:
		return h.whyNotPending(ctx, tx, p)
	}
	return h.orderPaid(ctx, tx, p)
}

// paymentsCompleted handles a batch of payments in one transaction. An error rolls the transaction
// back; Idem then finds the payment that fails, and commits the others.
func (h handler[Tx]) paymentsCompleted(
	ctx context.Context, tx Tx, events []idem.Event[Payment],
) error {
	for _, e := range events {
		if err := h.paymentCompleted(dedup.WithParent(ctx, e.Identity()), tx, e); err != nil {
			return err
		}
	}
	return nil
}

// orderPaid adds order.paid to the outbox in tx. The ID of the new event derives from the payment,
// so that consumers recognize a copy.
func (h handler[Tx]) orderPaid(ctx context.Context, tx Tx, p Payment) error {
	if h.emit == "" {
		return nil
	}
	payload, err := json.Marshal(p)
	if err != nil {
		return idem.Permanent(err)
	}
	return h.db.emit(ctx, tx, outbox.Entry{
		Topic: h.emit, Key: strconv.FormatInt(int64(p.OrderID), 10), Type: "order.paid",
		Payload: payload,
	})
}

// whyNotPending returns the reason for an update that changed no row. Without this check a second
// payment would take the customer's money silently (rule 36).
func (h handler[Tx]) whyNotPending(ctx context.Context, tx Tx, p Payment) error {
	status, paidBy, found, err := h.db.find(ctx, tx, p.OrderID)
	switch {
	case err != nil:
		return err
	case !found || status == "pending": // or the order appeared between the two statements
		return fmt.Errorf("order %d does not exist yet", p.OrderID)
	case paidBy != p.PaymentID:
		return idem.Permanent(fmt.Errorf("order %d paid twice: by %s, and now by %s", p.OrderID,
			paidBy, p.PaymentID))
	}
	return nil // paid by this payment before the store existed
}
