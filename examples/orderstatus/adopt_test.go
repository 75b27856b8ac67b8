package main

import (
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/observe"
)

// A consumer without a store moves over in three steps. The import records its past effects. A run
// in shadow mode handles every event and counts the events it would have skipped. Then the consumer
// runs in earnest. Only the run in shadow mode applies parts of the backlog again; there the
// handler's own protection counts.
func TestMovedOver_Idempotent(t *testing.T) {
	s := newShop(t, 30)
	s.exec(`UPDATE orders SET status = 'paid', paid_by = 'old-' || lpad(id::text, 2, '0') WHERE id <= 10`)
	var events []dedup.Imported
	for i := range 10 {
		events = append(events, dedup.Imported{
			Key:       dedup.Key{Scope: "orderstatus", Type: "payment.completed", ID: paymentOf(i + 1)},
			Retention: time.Hour, Tx: true,
		})
	}
	store := s.processor.Stores()[0]
	added, err := store.(dedup.Operator).Import(t.Context(), events)
	require.NoError(t, err)
	require.Equal(t, 10, added)

	shadowed := &stats{}
	shadow, err := idem.NewProcessor(newRouter(options{instance: "shadow", audit: true}, s.tables.(pgOrders)), idem.Config{
		Store: store, Scope: "orderstatus", Producer: s, BusyWait: idem.Forever, Shadow: true,
		Observers: []observe.Observer{shadowed}, Logger: slog.New(slog.DiscardHandler),
	})
	require.NoError(t, err)
	defer shadow.Close()
	var backlog []*idem.Message // the end of the handled events, and new ones, some of them twice
	for i := range 30 {
		backlog = append(backlog, s.message(paymentOf(i+1), int64(i+1)))
		if i%3 == 0 {
			backlog = append(backlog, s.message(paymentOf(i+1), int64(i+1)))
		}
	}
	_, err = shadow.HandleBatch(t.Context(), backlog)
	require.NoError(t, err)
	require.EqualValues(t, 10+10, shadowed.duplicates.Load(), "imported ones, and copies")
	require.Equal(t, len(backlog), s.count(`SELECT count(*) FROM order_effects`), "all of it was handled")
	require.Zero(t, s.count(`SELECT count(*) FROM orders WHERE status <> 'paid'`))
	s.requireNoDeadLetters()

	for _, m := range backlog {
		s.deliver(m)
	}
	require.Equal(t, len(backlog), s.count(`SELECT count(*) FROM order_effects`), "nothing of it is handled again")
}

func paymentOf(order int) string { return fmt.Sprintf("old-%02d", order) }
