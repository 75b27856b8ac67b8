package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/outbox"
)

// This file is all there is to know about Idem in this example: what the event is, what makes it the same event, what
// it does to the database, and what follows from it.

// Payment is the payload of payment.completed, and of the order.paid that follows from it.
type Payment struct {
	PaymentID  string      `json:"payment_id"`
	OrderID    orderID     `json:"order_id"`
	CustomerID string      `json:"customer_id,omitempty"`
	Amount     json.Number `json:"amount,omitempty"`
	Currency   string      `json:"currency,omitempty"`
}

// orderID is a number, also where a producer whose order IDs are texts has written it in quotes.
type orderID int64

// UnmarshalJSON implements [json.Unmarshaler].
func (n *orderID) UnmarshalJSON(b []byte) error {
	return json.Unmarshal(bytes.Trim(b, `"`), (*int64)(n))
}

// newRouter registers the handler. The payment is the identity, not the message: a producer that sends a payment again,
// with a new event_id and under another Kafka key, sends the same event.
func newRouter(h handler) *idem.Router {
	r := idem.NewRouter()
	idem.OnTx(r, "payment.completed", h.paymentCompleted,
		idem.ID(idem.FromJSON("payment_id")),
		idem.NoContentCheck(), // its copies differ: each has an event_id of its own
		// An order that is not there yet gets RetryPolicy.InPlace, 5 s, to appear, however many attempts that takes.
		idem.Retry(idem.RetryPolicy{MaxAttempts: idem.NoLimit}))
	return r
}

// paymentCompleted moves an order from pending to paid. What it does in tx and the mark in processed_events are one
// transaction, with order.paid in the outbox: all of it happens or nothing.
func (h handler) paymentCompleted(ctx context.Context, tx pgx.Tx, e idem.Event[Payment]) error {
	p := e.Data
	p.PaymentID = e.ID // encoding/json would also take PAYMENT_ID; the identity is what the store remembers
	if p.OrderID < 1 {
		return idem.Permanent(fmt.Errorf("payment %s is for order %d", p.PaymentID, p.OrderID))
	}
	if err := h.audit(ctx, tx, p); err != nil {
		return err
	}
	tag, err := tx.Exec(ctx, `
		UPDATE orders SET status = 'paid', paid_by = $2, amount = NULLIF($3, '')::numeric, currency = $4, paid_at = now()
		WHERE id = $1 AND status = 'pending'`, p.OrderID, p.PaymentID, string(p.Amount), p.Currency)
	switch {
	case err != nil:
		return err
	case tag.RowsAffected() == 0:
		return whyNotPending(ctx, tx, p)
	}
	return h.orderPaid(ctx, tx, p)
}

// orderPaid lets order.paid leave when tx commits. Its identity is made of the payment's, which is what is being handled: who
// hears of it twice can tell.
func (h handler) orderPaid(ctx context.Context, tx pgx.Tx, p Payment) error {
	if h.emit == "" {
		return nil
	}
	payload, err := json.Marshal(p)
	if err != nil {
		return idem.Permanent(err)
	}
	return h.outbox.Add(ctx, tx, outbox.Entry{
		Topic: h.emit, Key: strconv.FormatInt(int64(p.OrderID), 10), Type: "order.paid", Payload: payload,
	})
}

// whyNotPending tells apart the reasons for an update that found nothing. Not to ask would take the customer's money for
// a second payment without a word (rule 36).
func whyNotPending(ctx context.Context, tx pgx.Tx, p Payment) error {
	var status, paidBy string
	err := tx.QueryRow(ctx, `SELECT status, coalesce(paid_by, '') FROM orders WHERE id = $1`, p.OrderID).Scan(&status, &paidBy)
	switch {
	case errors.Is(err, pgx.ErrNoRows) || err == nil && status == "pending": // or it came between the two statements
		return fmt.Errorf("order %d does not exist yet", p.OrderID)
	case err != nil:
		return err
	case paidBy != p.PaymentID:
		return idem.Permanent(fmt.Errorf("order %d paid twice: by %s, and now by %s", p.OrderID, paidBy, p.PaymentID))
	}
	return nil // by this payment, before the store was asked for the first time
}
