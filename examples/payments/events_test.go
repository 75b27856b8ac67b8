package main

import (
	"context"
	"errors"
	"net/http"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/outbox/pgoutbox"
)

// leaving is a row of the outbox.
type leaving struct{ Topic, Key, ID, Type, Payload string }

func (s *shop) leaving() []leaving {
	s.t.Helper()
	rows, err := s.pool.Query(context.WithoutCancel(s.t.Context()), `SELECT topic, convert_from(key, 'UTF8'), event_id, event_type,
		convert_from(payload, 'UTF8') FROM idem_outbox ORDER BY seq`)
	require.NoError(s.t, err)
	found, err := pgx.CollectRows(rows, pgx.RowToStructByPos[leaving])
	require.NoError(s.t, err)
	return found
}

// newTellingShop returns a shop that emits the program's own events.
func newTellingShop(t *testing.T) *shop {
	s := newShop(t)
	s.cashier.completed = events{pgoutbox.New(s.pool), "payments"}.completed
	return s
}

// Rules 22 and 23: payment.completed is in the outbox if and only if the payment is in the table.
// It is one event, however often the request comes. If all data but the request is lost, the
// request makes the same event again.
func TestPaymentCompletedLeaves_Idempotent(t *testing.T) {
	s := newTellingShop(t)
	for range 3 {
		s.post("shop", "k-1", wish("7", "ada", 995)).id(t)
	}
	first := s.leaving()
	require.Len(t, first, 1)
	require.Equal(t, []string{"payments", "7", "payment.completed"}, []string{first[0].Topic, first[0].Key, first[0].Type})
	require.JSONEq(t, `{"payment_id":"`+s.provider.Charges()[0].Reference+
		`","order_id":"7","customer_id":"ada","amount":995,"currency":"EUR"}`, first[0].Payload)

	// another account's payment is another event
	s.post("other", "k-1", wish("7", "ada", 995)).id(t)
	require.Len(t, s.leaving(), 2)
	require.NotEqual(t, first[0].ID, s.leaving()[1].ID)

	s.forget() // the UNIQUE constraint finds the payment: no effect and no event
	s.post("shop", "k-1", wish("7", "ada", 995)).id(t)
	require.Len(t, s.leaving(), 2)

	s.forget()
	_, err := s.pool.Exec(t.Context(), `TRUNCATE payments, idem_outbox`)
	require.NoError(t, err)
	s.post("shop", "k-1", wish("7", "ada", 995)).id(t)
	require.Equal(t, first, s.leaving())
}

// No event without a payment: a decline, an outage, an invalid request, and a transaction that
// fails after it has queued the event.
func TestNothingLeavesWithoutPayment(t *testing.T) {
	s := newTellingShop(t)
	s.post("shop", "k-1", wish("1", "declined", 995))
	s.post("shop", "k-2", wish("2", "unavailable", 995))
	s.post("shop", "k-3", wish("3", "ada", -1))
	completed := s.cashier.completed
	s.cashier.completed = func(ctx context.Context, tx pgx.Tx, p payment) error {
		return errors.Join(completed(ctx, tx, p), errors.New("too late"))
	}
	require.Equal(t, http.StatusInternalServerError, s.post("shop", "k-4", wish("4", "ada", 995)).status)
	require.Empty(t, s.leaving())
	s.cashier.completed = func(ctx context.Context, tx pgx.Tx, p payment) error {
		// a stored answer: back to the savepoint
		return errors.Join(completed(ctx, tx, p), &declinedError{"on second thoughts"})
	}
	require.Equal(t, http.StatusPaymentRequired, s.post("shop", "k-5", wish("5", "ada", 995)).status)
	require.Empty(t, s.leaving())
	s.cashier.completed = completed
	s.post("shop", "k-4", wish("4", "ada", 995)).id(t)
	require.Len(t, s.leaving(), 1)
}
