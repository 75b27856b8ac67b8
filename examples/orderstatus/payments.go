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

// newRouter registers the handler. The identity of an event is the payment, not the message. A
// producer may send a payment again with a new event_id and under another Kafka key; that is the
// same event.
func newRouter(h handler) *idem.Router {
	r := idem.NewRouter()
	idem.OnTx(r, "payment.completed", h.paymentCompleted,
		idem.ID(idem.FromJSON("payment_id")),
		idem.NoContentCheck(), // copies differ, because each has its own event_id
		// A missing order gets 5 s (RetryPolicy.InPlace) to appear, with any number of attempts.
		idem.Retry(idem.RetryPolicy{MaxAttempts: idem.NoLimit}))
	return r
}

// paymentCompleted moves an order from pending to paid. The update in tx, the record in
// processed_events and order.paid in the outbox are one transaction: they commit together.
func (h handler) paymentCompleted(ctx context.Context, tx pgx.Tx, e idem.Event[Payment]) error {
	p := e.Data
	// encoding/json would accept PAYMENT_ID too; the identity is the ID in the store
	p.PaymentID = e.ID
	if p.OrderID < 1 {
		return idem.Permanent(fmt.Errorf("payment %s is for order %d", p.PaymentID, p.OrderID))
	}
	if err := h.audit(ctx, tx, p); err != nil {
		return err
	}
	tag, err := tx.Exec(ctx, `
		UPDATE orders
		SET status = 'paid', paid_by = $2, amount = NULLIF($3, '')::numeric,
			currency = $4, paid_at = now()
		WHERE id = $1 AND status = 'pending'`, p.OrderID, p.PaymentID, string(p.Amount), p.Currency)
	switch {
	case err != nil:
		return err
	case tag.RowsAffected() == 0:
		return whyNotPending(ctx, tx, p)
	}
	return h.orderPaid(ctx, tx, p)
}

// orderPaid adds order.paid to the outbox in tx. The ID of the new event derives from the payment,
// so that consumers recognize a copy.
func (h handler) orderPaid(ctx context.Context, tx pgx.Tx, p Payment) error {
	if h.emit == "" {
		return nil
	}
	payload, err := json.Marshal(p)
	if err != nil {
		return idem.Permanent(err)
	}
	return h.outbox.Add(ctx, tx, outbox.Entry{
		Topic: h.emit, Key: strconv.FormatInt(int64(p.OrderID), 10), Type: "order.paid",
		Payload: payload,
	})
}

// whyNotPending returns the reason for an update that changed no row. Without this check a second
// payment would take the customer's money silently (rule 36).
func whyNotPending(ctx context.Context, tx pgx.Tx, p Payment) error {
	var status, paidBy string
	err := tx.QueryRow(ctx, `SELECT status, coalesce(paid_by, '') FROM orders WHERE id = $1`,
		p.OrderID).Scan(&status, &paidBy)
	switch {
	// or the order appeared between the two statements
	case errors.Is(err, pgx.ErrNoRows) || err == nil && status == "pending":
		return fmt.Errorf("order %d does not exist yet", p.OrderID)
	case err != nil:
		return err
	case paidBy != p.PaymentID:
		return idem.Permanent(fmt.Errorf("order %d paid twice: by %s, and now by %s", p.OrderID,
			paidBy, p.PaymentID))
	}
	return nil // paid by this payment before the store existed
}
