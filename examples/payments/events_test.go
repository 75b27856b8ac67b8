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

// newTellingShop has the program's own events.
func newTellingShop(t *testing.T) *shop {
	s := newShop(t)
	s.cashier.completed = events{pgoutbox.New(s.pool), "payments"}.completed
	return s
}

// Rules 22 and 23: payment.completed is in the outbox when the payment is there, and only then. It is one event, however often the
// request comes, and if all is lost but the request, the request makes the same event again.
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

	s.post("other", "k-1", wish("7", "ada", 995)).id(t) // another account's payment is another event
	require.Len(t, s.leaving(), 2)
	require.NotEqual(t, first[0].ID, s.leaving()[1].ID)

	s.forget() // the UNIQUE constraint finds the payment: nothing happens, and nothing is said
	s.post("shop", "k-1", wish("7", "ada", 995)).id(t)
	require.Len(t, s.leaving(), 2)

	s.forget()
	_, err := s.pool.Exec(t.Context(), `TRUNCATE payments, idem_outbox`)
	require.NoError(t, err)
	s.post("shop", "k-1", wish("7", "ada", 995)).id(t)
	require.Equal(t, first, s.leaving())
}

// What is not paid is not said: declined, unavailable, a mistake, and a transaction that fails after the event was queued.
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
		return errors.Join(completed(ctx, tx, p), &declinedError{"on second thoughts"}) // an answer that is kept: back to the savepoint
	}
	require.Equal(t, http.StatusPaymentRequired, s.post("shop", "k-5", wish("5", "ada", 995)).status)
	require.Empty(t, s.leaving())
	s.cashier.completed = completed
	s.post("shop", "k-4", wish("4", "ada", 995)).id(t)
	require.Len(t, s.leaving(), 1)
}
