package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/idem-go/idem/deadletter"
	"github.com/idem-go/idem/examples/payments/provider"
)

// This file measures the ends of the chain: databases, provider, topics, and the output of the
// notifiers.

// found is the state of the ends. Two states are equal by == if no figure has changed.
type found struct {
	payments, charges, charged int // rows; charges at the provider; payments with a charge
	// payments with exactly one charge, a paid order and a notification
	matched                int
	ordersPaid, effects    int // orders; committed runs of their handler
	notified, sent, mixups int // notified orders, sent notifications, repeats under another key
	// answered payments without the rest; notifications without a payment
	lost, strangers            int
	paymentRecords, paymentIDs int // in the topic, and the number of different events
	orderRecords, orderIDs     int
	foreignIDs                 int // events without an ID that derives from their cause
	waiting, deadLetters       int // rows in both outboxes, records in dead-letter topics
}

// measure fills in the state of the ends and the counts of clients and workers.
func (c *chain) measure(s *summary) error {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	var err error
	if s.found, s.events, err = c.look(ctx); err != nil {
		return fmt.Errorf("measure: %w", err)
	}
	s.answered, s.wrong = int(c.clients.answered.Load()), c.clients.wrong
	s.requests, s.impatient = int(c.clients.requests.Load()), int(c.clients.impatient.Load())
	s.replays, s.asked = int(c.clients.replays.Load()), c.clients.payments
	s.processes, s.lanes, s.kills = c.all, c.lanes, 0
	for _, p := range c.programs {
		s.kills += p.kills
	}
	if s.orders, err = c.counted("orders", 0); err == nil {
		s.notifier, err = c.counted("notifier", 0)
	}
	return err
}

// counted adds up the counts of the workers of a kind, from a run on.
func (c *chain) counted(kind string, from int) (map[string]int, error) {
	total := make(map[string]int)
	for _, p := range c.programs {
		if !strings.HasPrefix(p.name, kind) {
			continue
		}
		counts, err := p.counts(from)
		if err != nil {
			return nil, err
		}
		for name, n := range counts {
			total[name] += n
		}
	}
	return total, nil
}

// look reads the ends. events are the IDs in the second topic.
func (c *chain) look(ctx context.Context) (f found, events []string, err error) {
	payments, err := c.lookAtOrders(ctx, &f)
	if err != nil {
		return f, nil, err
	}
	ids, records, err := c.read(ctx, c.payments)
	if err != nil {
		return f, nil, err
	}
	f.paymentIDs, f.paymentRecords = len(ids), records
	f.foreignIDs = foreign(ids, payments, c.paymentEvent)
	if ids, records, err = c.read(ctx, c.orders); err != nil {
		return f, nil, err
	}
	f.orderIDs, f.orderRecords = len(ids), records
	f.foreignIDs += foreign(ids, payments, c.orderEvent)
	for _, t := range []string{
		deadletter.Topic(c.orderGroup)(c.payments),
		deadletter.Topic(c.notifierGroup)(c.orders),
	} {
		_, n, err := c.read(ctx, t)
		if err != nil {
			return f, nil, err
		}
		f.deadLetters += n
	}
	f.waiting, err = c.count(ctx,
		`SELECT (SELECT count(*) FROM {p}.idem_outbox) + (SELECT count(*) FROM {o}.idem_outbox)`)
	return f, ids, err
}

// lookAtOrders follows every payment from its answer to the notification.
func (c *chain) lookAtOrders(ctx context.Context, f *found) ([]payment, error) {
	payments, err := rows[payment](ctx, c.place,
		`SELECT id, order_id, coalesce(charge_id, '') FROM {p}.payments`)
	if err != nil {
		return nil, err
	}
	type order struct{ ID, PaidBy string }
	orders, err := rows[order](ctx, c.place,
		`SELECT id::text, paid_by FROM {o}.orders WHERE status = 'paid'`)
	if err != nil {
		return nil, err
	}
	if f.effects, err = c.count(ctx, `SELECT count(*) FROM {o}.order_effects`); err != nil {
		return nil, err
	}
	charges, err := c.charges(ctx)
	if err != nil {
		return nil, err
	}
	lines, err := c.notifications()
	if err != nil {
		return nil, err
	}
	f.payments, f.charges = len(payments), len(charges)
	f.ordersPaid, f.sent = len(orders), len(lines)

	charged, paidBy := make(map[string][]string), make(map[string]string)
	told := make(map[string]notification)
	for _, ch := range charges {
		charged[ch.Reference] = append(charged[ch.Reference], ch.ID)
	}
	for _, o := range orders {
		paidBy[o.ID] = o.PaidBy
	}
	for _, l := range lines {
		if first, again := told[l.OrderID]; again && first != l {
			f.mixups++
		}
		told[l.OrderID] = l
	}
	f.charged, f.notified = len(charged), len(told)
	whole := make(map[string]bool) // complete payments
	known := make(map[string]bool)
	for _, p := range payments {
		ch := charged[p.ID]
		_, ok := told[p.Order]
		whole[p.ID] = ok && len(ch) == 1 && ch[0] == p.Charge && paidBy[p.Order] == p.ID
		known[p.Order] = true
		if whole[p.ID] {
			f.matched++
		}
	}
	for order, id := range c.clients.ids {
		if order > 0 && id != "" && !whole[id] {
			f.lost++
		}
	}
	for order := range told {
		if !known[order] {
			f.strangers++
		}
	}
	return payments, nil
}

// charges returns all charges of the provider.
func (c *chain) charges(ctx context.Context) ([]provider.Charge, error) {
	_, body, err := get(ctx, c.provider+"/charges?last="+strconv.Itoa(10*maxPayments))
	if err != nil {
		return nil, err
	}
	var list struct{ Charges []provider.Charge }
	err = json.Unmarshal(body, &list)
	return list.Charges, err
}

// notification is a line of a notifier.
type notification struct {
	EventID        string `json:"event_id"`
	OrderID        string `json:"order_id"`
	IdempotencyKey string `json:"idempotency_key"`
}

// notifications returns the lines of all notifiers, killed ones included.
func (c *chain) notifications() (lines []notification, err error) {
	for _, p := range c.programs {
		if !strings.HasPrefix(p.name, "notifier") {
			continue
		}
		for run := 1; run <= p.runs; run++ {
			if lines, err = readLines(lines, p.file(run, "out")); err != nil {
				return nil, err
			}
		}
	}
	return lines, nil
}

func readLines(lines []notification, path string) ([]notification, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	in := bufio.NewScanner(f)
	for in.Scan() {
		var l notification
		if err := json.Unmarshal(in.Bytes(), &l); err != nil {
			return nil, fmt.Errorf("%s: %w: %.200q", path, err, in.Text())
		}
		lines = append(lines, l)
	}
	return lines, in.Err()
}

// read reads a topic from beginning to end. The results are the IDs of the events and the number of
// records. A missing topic has no events.
func (c *chain) read(ctx context.Context, topic string) (ids []string, records int, err error) {
	ends, err := c.admin.ListEndOffsets(ctx, topic)
	if err == nil {
		err = ends.Error()
	}
	switch {
	case errors.Is(err, kerr.UnknownTopicOrPartition):
		return nil, 0, nil
	case err != nil:
		return nil, 0, err
	}
	written, from := int64(0), make(map[int32]kgo.Offset)
	ends.Each(func(end kadm.ListedOffset) {
		if end.Offset > 0 {
			written += end.Offset
			from[end.Partition] = kgo.NewOffset().At(0)
		}
	})
	client, err := kgo.NewClient(kgo.SeedBrokers(c.o.brokers...),
		kgo.FetchMaxWait(100*time.Millisecond),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: from}))
	if err != nil {
		return nil, 0, err
	}
	defer client.Close()
	seen := make(map[string]bool)
	for int64(records) < written {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return nil, 0, err
		}
		fetches.EachRecord(func(r *kgo.Record) {
			records++
			if id := eventID(r); !seen[id] {
				seen[id] = true
				ids = append(ids, id)
			}
		})
	}
	return ids, records, nil
}

func eventID(r *kgo.Record) string {
	for _, h := range r.Headers {
		if h.Key == "event-id" {
			return string(h.Value)
		}
	}
	return ""
}
