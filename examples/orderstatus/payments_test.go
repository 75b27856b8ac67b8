package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/deadletter"
	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/internal/testenv"
	"github.com/idem-go/idem/observe"
	"github.com/idem-go/idem/outbox"
)

// shop is the example without Kafka: the handler behind a processor, on a real database.
type shop struct {
	t         testing.TB
	tables    tables
	db        *sql.DB
	processor *idem.Processor
	stats     *stats
	retries   chan observe.RetryEvent
	offset    int64

	mu          sync.Mutex
	deadLetters []*idem.Message
}

// newShop returns a shop in Postgres with pending orders. emit is the topic of order.paid; without
// it the shop does not emit.
func newShop(t testing.TB, orders int64, emit ...string) *shop {
	t.Helper()
	url := testenv.Postgres(t)
	return openShop(t, options{postgres: url, emit: strings.Join(emit, "")}, "pgx", url, orders)
}

// newMySQLShop returns a shop in MariaDB.
func newMySQLShop(t testing.TB, orders int64) *shop {
	t.Helper()
	dsn := testenv.MariaDB(t)
	return openShop(t, options{mysql: dsn}, "mysql", dsn, orders)
}

// eachDatabase runs a test in a shop with pending orders on each database, for each event and for
// batches.
func eachDatabase(t *testing.T, orders int64, test func(t *testing.T, s *shop)) {
	t.Helper()
	t.Run("postgres", func(t *testing.T) { test(t, newShop(t, orders)) })
	t.Run("mysql", func(t *testing.T) { test(t, newMySQLShop(t, orders)) })
	t.Run("mysql in batches", func(t *testing.T) {
		dsn := testenv.MariaDB(t)
		test(t, openShop(t, options{mysql: dsn, batch: true}, "mysql", dsn, orders))
	})
}

func openShop(t testing.TB, o options, driver, dsn string, orders int64) *shop {
	t.Helper()
	o.audit, o.instance, o.log = true, "test", slog.New(slog.DiscardHandler)
	opened, err := o.open(t.Context())
	require.NoError(t, err)
	t.Cleanup(opened.close)
	require.NoError(t, opened.migrate(t.Context()))
	added, err := opened.seed(t.Context(), orders)
	require.NoError(t, err)
	require.Equal(t, orders, added)
	db, err := sql.Open(driver, dsn)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })

	s := &shop{t: t, tables: opened.tables, db: db, stats: &stats{}, retries: make(chan observe.RetryEvent, 1000)}
	s.processor, err = idem.NewProcessor(opened.router, idem.Config{
		Store: opened.store, Scope: "orderstatus", Producer: s, BusyWait: idem.Forever,
		Observers: []observe.Observer{s.stats, s}, Logger: o.log,
	})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.processor.Close()) })
	return s
}

func (s *shop) Produce(_ context.Context, msgs ...*idem.Message) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.deadLetters = append(s.deadLetters, msgs...)
	return nil
}

func (s *shop) ObserveRetry(_ context.Context, e observe.RetryEvent) { s.retries <- e }

// message returns a delivery of a payment as a new record.
func (s *shop) message(payment string, order int64) *idem.Message {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.offset++
	return &idem.Message{
		Topic: "payments", Partition: int32(s.offset % 3), Offset: s.offset, Time: time.Now(),
		Value: fmt.Appendf(nil, `{"event_id":"e%d","type":"payment.completed","payment_id":%q,"order_id":%d,"amount":12.50,"currency":"EUR"}`,
			s.offset, payment, order),
	}
}

func (s *shop) deliver(m *idem.Message) {
	s.t.Helper()
	require.NoError(s.t, s.processor.Handle(s.t.Context(), m))
}

// count returns the single number that a query selects.
func (s *shop) count(query string) (n int) {
	s.t.Helper()
	require.NoError(s.t, s.db.QueryRowContext(s.t.Context(), query).Scan(&n), query)
	return n
}

func (s *shop) exec(query string) {
	s.t.Helper()
	_, err := s.db.ExecContext(s.t.Context(), query)
	require.NoError(s.t, err, query)
}

func (s *shop) requirePaid(order int64, payment string) {
	s.t.Helper()
	query := fmt.Sprintf(`SELECT count(*) FROM orders WHERE id = %d AND status = 'paid' AND paid_by = '%s'`, order, payment)
	require.Equal(s.t, 1, s.count(query), "order %d is not paid by %s", order, payment)
}

// deadLetter returns the only dead letter and its headers.
func (s *shop) deadLetter() (*idem.Message, map[string]string) {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	require.Len(s.t, s.deadLetters, 1)
	return s.deadLetters[0], headers(s.deadLetters[0])
}

func headers(m *idem.Message) map[string]string {
	found := make(map[string]string)
	for _, h := range m.Headers {
		found[h.Key] = string(h.Value)
	}
	return found
}

// requireNoDeadLetters fails with the reasons of the existing ones.
func (s *shop) requireNoDeadLetters() {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range s.deadLetters {
		h := headers(m)
		require.Fail(s.t, "dead letter", "%s: %s: %s", h[deadletter.HeaderEventID], h[deadletter.HeaderErrorClass], h[deadletter.HeaderError])
	}
}

// Every delivery of the payment is another record with another event_id. The payment is the
// identity.
func TestPaymentDeliveredAgain_Idempotent(t *testing.T) {
	eachDatabase(t, 2, func(t *testing.T, s *shop) {
		first := s.message("pay-1", 1)
		s.deliver(first)
		s.deliver(s.message("pay-1", 1))
		s.deliver(s.message("pay-1", 1))
		s.deliver(first) // redelivered after a rebalance

		s.requirePaid(1, "pay-1")
		require.Equal(t, 1, s.count(`SELECT count(*) FROM order_effects`))
		require.Equal(t, 1, s.count(`SELECT count(*) FROM processed_events`))
		require.Equal(t, 1, s.count(`SELECT count(*) FROM orders WHERE status = 'pending'`))
		require.Equal(t, 1, s.count(`SELECT count(*) FROM orders WHERE amount = 12.50 AND currency = 'EUR' AND paid_at IS NOT NULL`))
		s.requireNoDeadLetters()
		require.EqualValues(t, 1, s.stats.handled.Load())
		require.EqualValues(t, 3, s.stats.duplicates.Load())
		require.EqualValues(t, 1, s.stats.redelivered.Load())
	})
}

func TestConcurrentCopies_Idempotent(t *testing.T) {
	eachDatabase(t, 20, func(t *testing.T, s *shop) {
		var all sync.WaitGroup
		for worker := range 8 {
			var batch []*idem.Message
			for order := range int64(20) {
				batch = append(batch, s.message(fmt.Sprintf("pay-%d", order+1), order+1))
			}
			if worker%2 == 1 {
				slices.Reverse(batch)
			}
			all.Go(func() {
				n, err := s.processor.HandleBatch(t.Context(), batch)
				if err != nil || n != len(batch) {
					t.Errorf("settled %d: %v", n, err)
				}
			})
		}
		all.Wait()
		require.Equal(t, 20, s.count(`SELECT count(*) FROM orders WHERE status = 'paid'`))
		require.Equal(t, 20, s.count(`SELECT count(*) FROM order_effects`))
		require.Equal(t, 20, s.count(`SELECT count(*) FROM processed_events`))
		s.requireNoDeadLetters()
	})
}

// Rule 36: the second payment of an order is a customer's money.
func TestOrderPaidTwice(t *testing.T) {
	eachDatabase(t, 1, func(t *testing.T, s *shop) {
		s.deliver(s.message("pay-1", 1))
		second := s.message("pay-2", 1)
		s.deliver(second)

		letter, headers := s.deadLetter()
		require.Equal(t, "payments.orderstatus.dlq", letter.Topic)
		require.Equal(t, second.Value, letter.Value)
		require.Equal(t, "permanent", headers[deadletter.HeaderErrorClass])
		require.Contains(t, headers[deadletter.HeaderError], "order 1 paid twice: by pay-1, and now by pay-2")
		require.Equal(t, "pay-2", headers[deadletter.HeaderEventID])
		s.requirePaid(1, "pay-1")
		require.Equal(t, 1, s.count(`SELECT count(*) FROM order_effects`), "what the second payment did must be rolled back")
	})
}

// Two payments of one order at the same moment: the lock of the row decides which is first.
func TestOrderPaidTwiceAtOnce(t *testing.T) {
	eachDatabase(t, 1, func(t *testing.T, s *shop) {
		var all sync.WaitGroup
		for _, m := range []*idem.Message{s.message("pay-1", 1), s.message("pay-2", 1)} {
			all.Go(func() {
				if err := s.processor.Handle(t.Context(), m); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		_, headers := s.deadLetter()
		require.Contains(t, headers[deadletter.HeaderError], "order 1 paid twice")
		require.Equal(t, 1, s.count(`SELECT count(*) FROM order_effects`))
		require.Equal(t, 1, s.count(`SELECT count(*) FROM orders WHERE status = 'paid'`))
	})
}

// Rule 36: a payment may overtake its order, which comes from another topic.
func TestOrderComesLater(t *testing.T) {
	eachDatabase(t, 1, func(t *testing.T, s *shop) {
		m, done := s.message("pay-2", 2), make(chan error, 1)
		go func() { done <- s.processor.Handle(t.Context(), m) }()
		retry := <-s.retries
		require.ErrorContains(t, retry.Err, "order 2 does not exist yet")
		_, err := s.tables.seed(t.Context(), 2)
		require.NoError(t, err)
		require.NoError(t, <-done)
		s.requirePaid(2, "pay-2")
		require.Equal(t, 1, s.count(`SELECT count(*) FROM order_effects`))
		s.requireNoDeadLetters()
	})
}

func TestOrderNeverComes(t *testing.T) {
	t.Parallel() // 5 s of retries
	s := newShop(t, 1)
	s.deliver(s.message("pay-2", 2))
	_, headers := s.deadLetter()
	require.Equal(t, "failed", headers[deadletter.HeaderErrorClass])
	require.Contains(t, headers[deadletter.HeaderError], "order 2 does not exist yet")
	require.NotEmpty(t, s.retries)
	require.Zero(t, s.count(`SELECT count(*) FROM order_effects`))
}

// This payment has paid the order already, but the store does not have it, for example after a
// restore from a backup.
func TestOrderPaidByThisPayment_Idempotent(t *testing.T) {
	eachDatabase(t, 1, func(t *testing.T, s *shop) {
		s.deliver(s.message("pay-1", 1))
		s.exec(`DELETE FROM processed_events`)
		s.deliver(s.message("pay-1", 1))
		s.requirePaid(1, "pay-1")
		s.requireNoDeadLetters()
	})
}

func TestBadPayments(t *testing.T) {
	for name, c := range map[string]struct{ value, class string }{
		"no payment_id":       {`{"type":"payment.completed","event_id":"e1","order_id":1}`, "no-event-id"},
		"empty payment_id":    {`{"type":"payment.completed","payment_id":"","order_id":1}`, "no-event-id"},
		"no order_id":         {`{"type":"payment.completed","payment_id":"p"}`, "permanent"},
		"order_id is text":    {`{"type":"payment.completed","payment_id":"p","order_id":"one"}`, "undecodable"},
		"order_id has digits": {`{"type":"payment.completed","payment_id":"p","order_id":1.5}`, "undecodable"},
		"order_id is empty":   {`{"type":"payment.completed","payment_id":"p","order_id":""}`, "undecodable"},
		"amount is text":      {`{"type":"payment.completed","payment_id":"p","order_id":1,"amount":"much"}`, "undecodable"},
		"not JSON":            {`payment of order 1`, "not-json"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newShop(t, 1)
			m := s.message("p", 1)
			m.Value = []byte(c.value)
			s.deliver(m)
			letter, headers := s.deadLetter()
			require.Equal(t, c.class, headers[deadletter.HeaderErrorClass], headers[deadletter.HeaderError])
			require.Equal(t, c.value, string(letter.Value))
			require.Zero(t, s.count(`SELECT count(*) FROM order_effects`))
			require.Equal(t, 1, s.count(`SELECT count(*) FROM orders WHERE status = 'pending'`))
		})
	}
}

// A producer with text IDs, such as examples/payments, writes numbers in quotes.
func TestOrderIDInQuotes(t *testing.T) {
	s := newShop(t, 1)
	m := s.message("", 0)
	m.Value = []byte(`{"type":"payment.completed","payment_id":"pay-1","order_id":"1","customer_id":"ada","amount":995,"currency":"EUR"}`)
	s.deliver(m)
	s.requirePaid(1, "pay-1")
	s.requireNoDeadLetters()
}

// Rules 22 and 23: order.paid is in the outbox if and only if the order is paid, once, with an ID
// that derives from the payment.
func TestOrderPaidLeaves_Idempotent(t *testing.T) {
	s := newShop(t, 3, "orders")
	m := s.message("pay-1", 1)
	m.Value = []byte(`{"type":"payment.completed","payment_id":"pay-1","order_id":1,"customer_id":"ada","amount":12.50,"currency":"EUR"}`)
	for range 3 {
		s.deliver(m)
	}
	s.deliver(s.message("pay-1", 1))
	s.deliver(s.message("pay-2", 1)) // the order is paid already: dead letter
	s.deliver(s.message("pay-3", 3))
	require.Equal(t, 2, s.count(`SELECT count(*) FROM idem_outbox`))
	var id, key, payload string
	require.NoError(t, s.db.QueryRowContext(t.Context(), `SELECT event_id, convert_from(key, 'UTF8'), convert_from(payload, 'UTF8') FROM idem_outbox
		WHERE topic = 'orders' AND event_type = 'order.paid' ORDER BY seq LIMIT 1`).Scan(&id, &key, &payload))
	require.Equal(t, "1", key)
	require.JSONEq(t, `{"payment_id":"pay-1","order_id":1,"customer_id":"ada","amount":12.50,"currency":"EUR"}`, payload)
	entry := outbox.Entry{Topic: "orders", Key: "1", Type: "order.paid"}
	require.Equal(t, outbox.ID(dedup.Key{Scope: "orderstatus", Type: "payment.completed", ID: "pay-1"}, &entry), id)

	// The store is lost and the order is not. The handler makes no change and emits no event.
	s.exec(`DELETE FROM processed_events`)
	s.deliver(m)
	require.Equal(t, 2, s.count(`SELECT count(*) FROM idem_outbox`))
}

func TestAmounts(t *testing.T) {
	eachDatabase(t, 4, func(t *testing.T, s *shop) {
		for order, amount := range map[int64]any{1: 5, 2: "7.10", 3: json.Number("0.30"), 4: nil} {
			m := s.message("", order)
			value, err := json.Marshal(map[string]any{
				"type": "payment.completed", "payment_id": fmt.Sprint("pay-", order), "order_id": order, "amount": amount,
			})
			require.NoError(t, err)
			m.Value = value
			s.deliver(m)
		}
		require.Equal(t, 1, s.count(`SELECT count(*) FROM orders WHERE id = 1 AND amount = 5`))
		require.Equal(t, 1, s.count(`SELECT count(*) FROM orders WHERE id = 2 AND amount = 7.10`))
		require.Equal(t, 1, s.count(`SELECT count(*) FROM orders WHERE id = 3 AND amount = 0.30`))
		require.Equal(t, 1, s.count(`SELECT count(*) FROM orders WHERE id = 4 AND amount IS NULL AND status = 'paid'`))
	})
}
