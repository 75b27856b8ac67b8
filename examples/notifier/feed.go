package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// plan lists the records that the producer of the demonstration writes, in order.
type plan struct {
	records []*kgo.Record
	events  []event
	copies  int
	poison  []string // values of records that cannot be handled
}

// newPlan makes events, each once, and a number of copies of random events. A copy has the same
// Kafka key, another key or no key, and so may be in another partition. That happens if a producer
// got no answer and wrote again, or was restarted with other settings. The same seed makes the same
// plan.
func newPlan(topic string, events, copies int, seed uint64) plan {
	poisonAt := [...]float64{0.15, 0.35, 0.8}
	rnd := rand.New(rand.NewPCG(seed, seed))
	p := plan{copies: copies, poison: []string{
		`{"event_id":"evt-broken","type":"email"`,
		`{"type":"sms","user_id":"user-1","template":"welcome","data":{}}`,
		`{"event_id":"evt-birthday","type":"push","user_id":"user-2","template":"birthday","data":{}}`,
	}}
	type placed struct {
		at     float64
		record *kgo.Record
	}
	var all []placed
	for _, e := range planEvents(events) {
		r := eventRecord(topic, e, rnd.IntN(50))
		all = append(all, placed{float64(len(p.events)), r})
		p.events = append(p.events, e)
	}
	for i := range copies {
		first := all[rnd.IntN(events)] // all[:events] are the originals
		r := *first.record
		switch i % 3 {
		case 1:
			r.Key = fmt.Appendf(nil, "retry-%d", rnd.IntN(50))
		case 2:
			r.Key = nil
		}
		all = append(all, placed{first.at + rnd.Float64()*float64(events)/4, &r})
	}
	for i, value := range p.poison {
		r := &kgo.Record{Topic: topic, Key: []byte("poison"), Value: []byte(value)}
		all = append(all, placed{float64(events) * poisonAt[i], r})
	}
	slices.SortStableFunc(all, func(a, b placed) int {
		return cmp.Compare(a.at, b.at)
	})
	for _, x := range all {
		p.records = append(p.records, x.record)
	}
	return p
}

// planEvents names n events. Every fifth ID goes out on all three channels and makes three events.
func planEvents(n int) []event {
	channels := [...]string{"email", "sms", "push"}
	var list []event
	for i := 0; len(list) < n; i++ {
		id := fmt.Sprintf("evt-%04d", i)
		if i%5 != 0 {
			list = append(list, event{channels[i%3], id})
			continue
		}
		for _, c := range channels {
			list = append(list, event{c, id})
		}
	}
	return list[:n]
}

func eventRecord(topic string, e event, user int) *kgo.Record {
	templates := [...]string{"welcome", "order_confirmation", "order_shipped", "payment_received"}
	n := notification{
		EventID: e.id, Type: e.channel, UserID: fmt.Sprintf("user-%d", user),
		Template: templates[user%len(templates)],
		Data:     map[string]any{"name": fmt.Sprintf("Customer %d", user), "order_id": e.id},
	}
	value, err := json.Marshal(n)
	if err != nil {
		panic(err) // strings only
	}
	return &kgo.Record{Topic: topic, Key: []byte(n.UserID), Value: value}
}

// feed writes a plan to Kafka, evenly over a time.
type feed struct {
	client  *kgo.Client
	records []*kgo.Record
	over    time.Duration
	written atomic.Int64
}

// run returns after all records are acknowledged.
func (f *feed) run(ctx context.Context) error {
	begin, next := time.Now(), 0
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for next < len(f.records) {
		due := len(f.records)
		if past := time.Since(begin); past < f.over {
			due = int(float64(len(f.records)) * float64(past) / float64(f.over))
		}
		if due > next {
			if err := f.client.ProduceSync(ctx, f.records[next:due]...).FirstErr(); err != nil {
				return fmt.Errorf("produce: %w", err)
			}
			f.written.Add(int64(due - next))
			next = due
			continue
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// share returns the written part of the plan, from 0 to 1.
func (f *feed) share() float64 { return float64(f.written.Load()) / float64(len(f.records)) }
