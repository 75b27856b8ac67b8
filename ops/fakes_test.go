package ops

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/deadletter"
	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/outbox"
)

// fakeLetters is a dead-letter topic in memory.
type fakeDeadLetters struct {
	mu       sync.Mutex
	topic    string
	none     bool // topics returns no topic
	all      []deadLetterDetail
	replayed map[deadLetterPlace]int
	err      error
	hold     chan struct{}                 // replay waits for it
	judged   map[deadLetterPlace][2]string // verdict and action that differ from dead
}

const fakeTopic = "orders.billing.dlq"

func newFakeDeadLetters(all ...deadLetterDetail) *fakeDeadLetters {
	for i := range all {
		all[i].deadLetterPlace = deadLetterPlace{fakeTopic, int32(i % 2), int64(i)}
	}
	return &fakeDeadLetters{topic: fakeTopic, all: all, replayed: map[deadLetterPlace]int{}}
}

func (f *fakeDeadLetters) topics(context.Context) ([]string, error) {
	if f.none {
		return nil, f.err
	}
	return []string{f.topic}, f.err
}

func (f *fakeDeadLetters) newest(_ context.Context, q deadLetterFilter, limit int) (p deadLetterPage, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	p.Scanned, p.Size = len(f.all), int64(len(f.all))
	for _, l := range slices.Backward(f.all) {
		if q.Type != "" && l.Type != q.Type || q.Class != "" && string(l.Class) != q.Class || q.ID != "" && l.ID != q.ID ||
			!q.Since.IsZero() && l.Failed.Before(q.Since) || !q.Until.IsZero() && !l.Failed.Before(q.Until) {
			continue
		}
		if len(p.Rows) == limit {
			p.More = true
			break
		}
		p.Rows = append(p.Rows, l.deadLetterRow)
	}
	return p, f.err
}

func (f *fakeDeadLetters) get(_ context.Context, at deadLetterPlace) (deadLetterDetail, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, l := range f.all {
		if l.deadLetterPlace == at {
			return l, f.err
		}
	}
	return deadLetterDetail{}, errors.New("there is no such record")
}

func (f *fakeDeadLetters) plan(_ context.Context, _ string, at []deadLetterPlace, d decisions) (p deadLetterPlan, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, l := range f.all {
		if slices.Contains(at, l.deadLetterPlace) {
			p.Rows = append(p.Rows, f.judge(l.deadLetterRow, d))
		}
	}
	return p, f.err
}

func (f *fakeDeadLetters) judge(row deadLetterRow, d decisions) deadLetterRow {
	row.Verdict, row.Action = "dead", "reopen and publish"
	switch {
	case f.replayed[row.deadLetterPlace] > 0:
		row.Verdict, row.Action = "already done", actionSkip
	case row.Generation > 2 && !d.Again:
		row.Verdict, row.Action, row.Note = "reopened often", actionSkip, "it was reopened 3 times and came back each time"
	}
	if other, ok := f.judged[row.deadLetterPlace]; ok {
		row.Verdict, row.Action = other[0], other[1]
	}
	return row
}

func (f *fakeDeadLetters) replay(ctx context.Context, _ string, planned []deadLetterRow, d decisions, each func(deadLetterDone)) error {
	if f.hold != nil {
		select {
		case <-f.hold:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	for _, l := range f.all {
		at := slices.IndexFunc(planned, func(r deadLetterRow) bool { return r.deadLetterPlace == l.deadLetterPlace })
		if at < 0 {
			continue
		}
		f.mu.Lock()
		done := deadLetterDone{Row: f.judge(l.deadLetterRow, d)}
		if done.Changed = !done.Row.sameAs(&planned[at]); !done.Changed {
			f.replayed[l.deadLetterPlace]++
			done.Replayed = true
		}
		f.mu.Unlock()
		each(done)
	}
	return f.err
}

// fakeEvents knows some events.
type fakeEvents struct {
	answer      eventAnswer
	deadLetters eventDeadLetters
	err         error
}

func (f *fakeEvents) find(_ context.Context, q eventQuery) (a eventAnswer, err error) {
	for _, r := range f.answer.Records {
		if r.Key.ID == q.ID {
			a.Records = append(a.Records, r)
		}
	}
	if len(a.Records) == 0 {
		a.NotKnown = fmt.Sprintf("event %q is not known in scope %q: it was not claimed yet, or it was forgotten after its retention", q.ID, "billing")
	}
	return a, f.err
}

func (f *fakeEvents) deadLettersOf(_ context.Context, q eventQuery) (l eventDeadLetters, err error) {
	l.Scanned = f.deadLetters.Scanned
	for _, r := range f.deadLetters.DeadLetters {
		if r.ID == q.ID {
			l.DeadLetters = append(l.DeadLetters, r)
		}
	}
	return l, f.err
}

// fakeSource answers with a value, an error, or never.
type fakeSource[T any] struct {
	value T
	err   error
	hangs chan struct{} // calls hang until it is closed
	calls int
}

func (f *fakeSource[T]) read(context.Context) (T, error) {
	f.calls++
	if f.hangs != nil {
		<-f.hangs
	}
	return f.value, f.err
}

func (f *fakeSource[T]) stuck(ctx context.Context) (T, error) { return f.read(ctx) }
func (f *fakeSource[T]) list(ctx context.Context) (T, error)  { return f.read(ctx) }

// full are sources with something in each.
func full(now time.Time) (sources, *fakeDeadLetters) {
	ago := func(d time.Duration) time.Time { return now.Add(-d) }
	key := func(typ, id string) dedup.Key { return dedup.Key{Scope: "billing", Type: typ, ID: id} }
	origin := dedup.Origin{Topic: "orders", Partition: 3, Offset: 48113, Time: ago(4 * time.Minute)}
	var letters []deadLetterDetail
	for i := range 12 {
		class := classes[i%5]
		letters = append(letters, deadLetterDetail{
			deadLetterRow: deadLetterRow{
				Failed: ago(time.Duration(13-i) * 7 * time.Minute), Class: class, Scope: "billing", Type: []string{"order.paid", "order.created"}[i%2],
				ID: fmt.Sprintf("order-%d", 4700+i), Origin: fmt.Sprintf("orders/3/%d", 48000+i), Attempts: 1 + i%8, Generation: uint32(i % 4),
				Error: []string{"card declined: do not retry", "post https://pay.example/v1/charges: 503 Service Unavailable, after 8 attempts in 32 s"}[i%2],
			},
			First: ago(2 * time.Hour), Key: fmt.Appendf(nil, "customer-%d", i), Value: []byte(`{"order_id":"A-4711","amount":12.50,"items":[{"sku":"x","n":1}]}`),
			Headers: []idem.Header{{Key: "traceparent", Value: []byte("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")}, {Key: deadletter.HeaderErrorClass, Value: []byte(class)}, {Key: deadletter.HeaderEventID, Value: []byte("order-47")}},
		})
	}
	box := newFakeDeadLetters(letters...)
	var rows []deadLetterRow
	for _, l := range box.all {
		rows = append(rows, l.deadLetterRow)
	}
	committed := func(n int64) *int64 { return &n }
	s := sources{
		monitor:     NewMonitor(),
		deadLetters: box,
		events: &fakeEvents{
			answer: eventAnswer{Records: []eventRecord{
				{Record: dedup.Record{Key: key("order.paid", "order-4711"), State: dedup.Finished, Tx: true, First: origin, Created: ago(4*time.Minute - time.Second), Changed: ago(3 * time.Minute), Expires: now.Add(7 * 24 * time.Hour), Fence: 2, Failures: 1}, Store: "Postgres at db.example/idem", Next: "nothing: further deliveries are duplicates"},
				{Record: dedup.Record{Key: key("order.paid", "order-4700"), State: dedup.GivenUp, First: origin, Created: ago(2 * time.Hour), Changed: ago(91 * time.Minute), Expires: now.Add(7 * 24 * time.Hour), Fence: 8, Failures: 8, Takeovers: 1, Reason: "permanent: card declined: do not retry"}, Store: "Postgres at db.example/idem", Next: "a person: idem dlq replay lets it run again, idem event skip gives it up for good"},
				{Record: dedup.Record{Key: key("order.created", "order-99"), State: dedup.Claimed, First: origin, Changed: ago(3 * time.Minute), Lease: -2 * time.Minute, Fence: 1}, Store: "Redis", Next: "its holder has not spoken for 2m0s beyond its lease: the next delivery takes it over, as uncertain"},
			}},
			deadLetters: eventDeadLetters{Scanned: 12, DeadLetters: rows},
		},
		group: &fakeSource[groupState]{value: groupState{
			Members: []groupMember{{"idem-7f9c", "billing-0", []memberTopic{{"orders", []int32{0, 1, 2}}}}, {"idem-11aa", "", []memberTopic{{"orders", []int32{3, 4, 5}}, {"orders.billing.retry", []int32{0, 1}}}}},
			Partitions: []groupPartition{
				{"orders", 0, false, committed(48113), 0, 48113, 0, "billing-0", "", false}, {"orders", 1, false, committed(51000), 0, 51220, 220, "billing-0", "", false},
				{"orders", 2, false, committed(1204), 0, 18204, 17000, "billing-0", "", false}, {"orders", 3, false, nil, 0, 12, 12, "", "", false},
				{"orders.billing.retry", 0, true, committed(4), 0, 4, 0, "idem-11aa", "", false}, {"orders.billing.retry", 1, true, nil, 0, 0, 0, "", "the partition has no leader", false},
			},
			DeadLetters: []deadLetterTopic{{Topic: fakeTopic, Records: 12, Ends: 12}},
		}},
		claims: &fakeSource[[]storeClaims]{value: []storeClaims{{Store: "Postgres at db.example/idem", Records: []stuckRecord{{dedup.Record{Key: key("order.created", "order-99"), Lease: -2 * time.Minute, First: origin}}}}, {Store: "Redis", Cannot: true}}},
		deferred: &fakeSource[deferredState]{value: deferredState{Queues: []deferredQueue{
			{Store: "pg", Topic: "orders", Partition: 2, Name: "kcustomer-7", Length: 4, Blocked: true, Head: &dedup.Deferred{Key: key("order.paid", "order-4700")}},
			{Store: "pg", Topic: "orders", Partition: 2, Name: "kcustomer-9", Length: 1, Wait: 41 * time.Second, Head: &dedup.Deferred{Key: key("order.paid", "order-4799")}},
		}}},
		outbox: &fakeSource[outboxState]{value: outboxState{Backlog: outbox.Backlog{Waiting: 14, Oldest: 900 * time.Millisecond, Parked: 1, Blocked: 3}, Parked: []outboxRow{{Seq: 991, Topic: "payments", Key: "order-12", Type: "payment.completed", ID: "01J9", Reason: "kafka server: Message was too large, server rejected it to avoid allocation error", At: ago(time.Hour), Behind: 3}}}},
		doctor: (&fakeSource[[]Finding]{value: []Finding{
			{"pg.fsync", "Postgres at db.example/idem", "Commits survive a crash", "bad", "fsync is off: what was committed may be gone after a crash of the machine", "ALTER SYSTEM SET fsync = on"},
			{"retention", "orders", "The store remembers for as long as the topic", "warn", "the store remembers for 24h, the topic keeps records for 7 days: a rewind by more than a day handles events again", "idem.Retention(8 * 24 * time.Hour)"},
			{"group.members", "billing", "The group has members", "ok", "2 members", ""}, {"redis", "", "Redis evicts nothing", "skipped", "no store in Redis", ""},
		}}).read,
	}
	return s, box
}
