package main

import (
	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/outbox"
)

// This file derives the IDs that events must have. A random ID is detected even if no handler runs
// twice for it (rule 23).

// payment is a row of the first service.
type payment struct{ ID, Order, Charge string }

// paymentEvent returns the ID of payment.completed, which derives from the request of the client.
func (c *chain) paymentEvent(p payment) string {
	request := dedup.Key{Scope: "payments", Type: "http", ID: c.name + ":" + requestKey(p.Order)}
	return outbox.ID(request,
		&outbox.Entry{Topic: c.payments, Key: p.Order, Type: "payment.completed"})
}

// orderEvent returns the ID of order.paid, which derives from the payment.
func (c *chain) orderEvent(p payment) string {
	paid := dedup.Key{Scope: c.orderGroup, Type: "payment.completed", ID: p.ID}
	return outbox.ID(paid, &outbox.Entry{Topic: c.orders, Key: p.Order, Type: "order.paid"})
}

// foreign counts the events without an ID that derives from a payment.
func foreign(ids []string, payments []payment, id func(payment) string) (n int) {
	own := make(map[string]bool, len(payments))
	for _, p := range payments {
		own[id(p)] = true
	}
	for _, id := range ids {
		if !own[id] {
			n++
		}
	}
	return n
}
