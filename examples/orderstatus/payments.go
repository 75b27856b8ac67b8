package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/idem-go/idem"
)

// This file is all there is to know about Idem in this example: what the event is, what makes it the same event, and
// what it does to the database.

// Payment is the payload of payment.completed.
type Payment struct {
	PaymentID string      `json:"payment_id"`
	OrderID   int64       `json:"order_id"`
	Amount    json.Number `json:"amount"`
	Currency  string      `json:"currency"`
}

// newRouter registers the handler. The payment is the identity, not the message: a producer that sends a payment again,
// with a new event_id and under another Kafka key, sends the same event.
func newRouter(h handler) *idem.Router {
	r := idem.NewRouter()
	idem.OnTx(r, "payment.completed", h.paymentCompleted,
		idem.ID(idem.FromJSON("payment_id")),
		// An order that is not there yet gets RetryPolicy.InPlace, 5 s, to appear, however many attempts that takes.
		idem.Retry(idem.RetryPolicy{MaxAttempts: idem.NoLimit}))
	return r
}

// paymentCompleted moves an order from pending to paid. What it does in tx and the mark in processed_events are one
// transaction: both happen or neither.
func (h handler) paymentCompleted(ctx context.Context, tx pgx.Tx, e idem.Event[Payment]) error {
	p := e.Data
	p.PaymentID = e.ID // encoding/json would also take PAYMENT_ID; the identity is what the ledger remembers
	if p.OrderID < 1 {
		return idem.Permanent(fmt.Errorf("payment %s is for order %d", p.PaymentID, p.OrderID))
	}
	if err := h.audit(ctx, tx, p); err != nil {
		return err
	}
	tag, err := tx.Exec(ctx, `
		UPDATE orders SET status = 'paid', paid_by = $2, amount = NULLIF($3, '')::numeric, currency = $4, paid_at = now()
		WHERE id = $1 AND status = 'pending'`, p.OrderID, p.PaymentID, string(p.Amount), p.Currency)
	if err == nil && tag.RowsAffected() == 0 {
		err = whyNotPending(ctx, tx, p)
	}
	return err
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
	return nil // by this payment, before the ledger was asked for the first time
}
