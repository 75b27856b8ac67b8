package idemtest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/deadletter"
)

// Consumer is a consumer of topics in memory. Its methods belong to one goroutine, the one of the
// test.
//
// # IDs
//
// The ID of an event is the one that the handler gets. Methods also take the ID of a [Record] that
// was delivered, for routers that read the identity elsewhere or make it of several parts. The
// counts are those of the event, whatever record had it: two records of one event have the same
// counts. Several events may share an ID, for example with different types. Counts are then sums.
//
// A record with an identity that cannot be read has only its Record.ID, and so has a record without
// a handler. An ID of no record and no event ends the test, so that no test passes because of a
// wrong ID.
type Consumer struct {
	t      testing.TB
	router *idem.Router
	set    settings
	topics topics
	seen   *journal
	stuck  map[place]error // partitions with a record that waits
	p      *idem.Processor
	end    func()      // ends the member
	assign func(place) // assigns a partition to the member

	delivered map[string]bool // topics
	poisons   int
}

// Run starts a consumer with the handlers of r. It ends with the test. A mistake in the handlers or
// the options ends the test at once.
func Run(t testing.TB, r *idem.Router, opts ...Option) *Consumer {
	t.Helper()
	if r == nil {
		t.Fatal("idemtest: Run: the router is nil: pass the router with the handlers")
	}
	c := &Consumer{
		t: t, router: r, seen: newJournal(),
		stuck: make(map[place]error), delivered: make(map[string]bool),
	}
	for _, o := range opts {
		if o == nil {
			t.Fatal("idemtest: Run: an option is nil: leave it out")
		}
		o(&c.set)
	}
	if all := c.set.mistakes; len(all) > 0 {
		t.Fatalf("idemtest: Run: %s", strings.Join(all, "\n"))
	}
	c.set.fill(t)
	c.begin()
	t.Cleanup(func() { c.end() })
	return c
}

// fill sets the defaults.
func (s *settings) fill(t testing.TB) {
	if s.store == nil {
		m := newMemory()
		s.store, s.down = m, m.set
	}
	if s.group == "" {
		s.group = "idemtest"
	}
	if s.within == 0 {
		s.within = 10 * time.Second
		if inBubble() {
			s.within = time.Hour
		}
	}
	if s.logger == nil {
		s.logger = slog.New(slog.NewTextHandler(t.Output(), nil))
	}
}

// inBubble reports whether the goroutine is in a bubble of testing/synctest. The clock of a bubble
// begins at the start of the year 2000.
func inBubble() bool { return time.Now().Year() < 2020 }

// begin starts a member of the group: a processor, and the goroutines that run deferred events.
func (c *Consumer) begin() {
	c.t.Helper()
	cfg := idem.Config{
		Store: c.set.store, Scope: c.set.group, Producer: &c.topics, Logger: c.set.logger,
		BusyWait: 10 * time.Millisecond,
	}
	for _, change := range c.set.change {
		change(&cfg)
	}
	cfg.Observers = append(slices.Clone(cfg.Observers), c.seen)
	p, err := idem.NewProcessor(c.router, cfg)
	if err != nil {
		c.t.Fatalf("idemtest: the handlers or the options have mistakes:\n%v", err)
	}
	c.p = p
	ctx, cancel := context.WithCancelCause(context.Background())
	m := &member{c: c, ctx: ctx, runs: make(map[place]bool)}
	for _, at := range c.topics.read(c.reads) {
		m.assign(at)
	}
	c.end = sync.OnceFunc(func() {
		cancel(idem.ErrStopping)
		m.running.Wait()
		if err := p.Close(); err != nil {
			c.t.Errorf("idemtest: the processor did not end: %v", err)
		}
	})
	c.assign = m.assign
}

// reads reports whether the consumer reads a topic: those of records that a test delivers, and the
// group's own retry topics.
func (c *Consumer) reads(topic string) bool {
	if c.delivered[topic] {
		return true
	}
	source, _, ok := deadletter.RetryTopicsOf(c.set.group).Source(topic)
	return ok && c.delivered[source]
}

// Deliver writes records to their topics, and returns when each record of the topics is settled or
// waits. An error of a handler does not end the test: see [Consumer.DeadLetters] and
// [Consumer.Waiting]. A call without records ends the test.
func (c *Consumer) Deliver(records ...Record) {
	c.t.Helper()
	if len(records) == 0 {
		c.t.Fatal("idemtest: Deliver: there are no records: pass some, or use Advance to settle those " +
			"that wait")
	}
	c.topics.commit()
	now := time.Now()
	for _, r := range records {
		m, err := r.message(now)
		if err != nil {
			c.t.Fatalf("idemtest: %v", err)
		}
		c.write(r.ID, m)
	}
	c.settle()
}

// Reorder is [Consumer.Deliver] in another order that Kafka allows: records of different keys
// change places, and records of one key stay in order. So the keys come in reverse order, each with
// all its records. A record without a key is alone. Topics and partitions stay those of the
// records.
//
// A producer that retries without idempotence may write records of one key in another order, too.
// Use Deliver for that.
func (c *Consumer) Reorder(records ...Record) {
	c.t.Helper()
	c.Deliver(reordered(records)...)
}

// write appends a record with a Record.ID.
func (c *Consumer) write(id string, m *idem.Message) {
	c.delivered[m.Topic] = true
	c.topics.append(m)
	c.seen.delivered(m, id)
	c.assign(place{m.Topic, m.Partition})
}

// latest returns the latest record of each event with an ID, in the order of the topics.
func (c *Consumer) latest(id string) (found []*idem.Message) {
	c.t.Helper()
	seen := make(map[subject]bool)
	all := c.topics.all(func(topic string) bool { return c.delivered[topic] })
	for _, m := range slices.Backward(all) {
		if s, ok := c.seen.event(m, id); ok && !seen[s] {
			seen[s] = true
			found = append(found, m)
		}
	}
	if len(found) == 0 {
		c.unknown(id)
	}
	slices.Reverse(found)
	return found
}

// unknown ends the test because of an ID.
func (c *Consumer) unknown(id string) {
	c.t.Helper()
	const most = 10
	known := c.seen.known()
	text := fmt.Sprintf("the IDs are %q", known)
	switch {
	case len(known) == 0:
		text = "no record with an ID was delivered"
	case len(known) > most:
		text = fmt.Sprintf("the first IDs are %q", known[:most])
	}
	c.t.Fatalf("idemtest: no delivered record and no event has the ID %q: %s", id, text)
}

// Duplicate delivers the latest records of the events again, each as a new record with another
// offset, as a retrying producer does. If several events share an ID, each of them comes again.
func (c *Consumer) Duplicate(ids ...string) {
	c.t.Helper()
	if len(ids) == 0 {
		c.t.Fatal("idemtest: Duplicate: pass the IDs of the events that come again")
	}
	c.topics.commit()
	for _, id := range ids {
		for _, m := range c.latest(id) {
			c.write(c.seen.record(m), copyOf(m))
		}
	}
	c.settle()
}

// Conflict delivers the latest record of an event again, with another value. If the identity is in
// the value, the other value must have it too.
func (c *Consumer) Conflict(id string, value any) {
	c.t.Helper()
	c.topics.commit()
	m, err := Record{Value: value}.message(time.Now())
	if err != nil {
		c.t.Fatalf("idemtest: %v", err)
	}
	all := c.latest(id)
	last := all[len(all)-1]
	other := copyOf(last)
	other.Value = m.Value
	c.write(c.seen.record(last), other)
	c.settle()
}

// Poison delivers a record of a type, with a value that is no JSON. It returns the ID of the event.
func (c *Consumer) Poison(typ string) (id string) {
	c.t.Helper()
	c.poisons++
	id = fmt.Sprintf("poison-%d", c.poisons)
	c.Deliver(Record{ID: id, Type: typ, Value: []byte("\xff{")})
	return id
}

// Rebalance moves the partitions to another member of the group, as if the offsets of the last step
// had not been committed. The records of the last step are delivered again.
func (c *Consumer) Rebalance() {
	c.t.Helper()
	c.end()
	c.topics.rewind()
	c.begin()
	c.settle()
}

// StoreDown runs a part of the test while no call of the store succeeds. Then the store answers
// again, and the records that waited are settled. A store of the option [Store] needs the option
// [Down].
func (c *Consumer) StoreDown(part func()) {
	c.t.Helper()
	if part == nil {
		c.t.Fatal("idemtest: StoreDown(nil): pass the part of the test that runs without the store")
	}
	if c.set.down == nil {
		c.t.Fatal("idemtest: StoreDown cannot stop this store: pass the option idemtest.Down beside " +
			"idemtest.Store")
	}
	func() {
		c.set.down(true)
		defer c.set.down(false)
		part()
	}()
	c.settle()
}

// Advance lets time pass, and settles the records that have become due. In a bubble of
// testing/synctest the time passes at once; elsewhere Advance sleeps. A negative d fails the test.
func (c *Consumer) Advance(d time.Duration) {
	c.t.Helper()
	if d < 0 {
		c.t.Fatalf("idemtest: Advance(%s): time does not go back", d)
	}
	c.topics.commit()
	pause(c.t.Context(), d)
	c.settle()
}

// settle passes open records to the processor until no partition makes progress.
func (c *Consumer) settle() {
	c.t.Helper()
	ctx, cancel := context.WithTimeoutCause(context.Background(), c.set.within,
		fmt.Errorf("%w: a step of the test took more than %s", idem.ErrStopping, c.set.within))
	defer cancel()
	clear(c.stuck)
	for progress := true; progress; {
		progress = false
		for _, at := range c.topics.read(c.reads) {
			n, err := c.settlePart(ctx, at)
			if c.stuck[at] = err; err == nil {
				delete(c.stuck, at)
			}
			progress = progress || n > 0
		}
		if inBubble() {
			synctest.Wait() // for the goroutines that run deferred events
		}
	}
	if ctx.Err() != nil {
		c.t.Fatalf("idemtest: %v (retries wait in real time: use testing/synctest)", context.Cause(ctx))
	}
}

// settlePart passes the due records of a partition to the processor.
func (c *Consumer) settlePart(ctx context.Context, at place) (settled int, err error) {
	msgs := c.topics.open(at)
	for i, m := range msgs {
		if c.p.Due(m) > 0 {
			msgs, err = msgs[:i], idem.ErrNotDue
			break
		}
	}
	if len(msgs) == 0 {
		return 0, err
	}
	settled, failed := c.p.HandleBatch(ctx, msgs)
	for _, m := range msgs[:settled] {
		c.seen.settled(original(m))
	}
	if settled > 0 {
		c.topics.settle(msgs[settled-1])
	}
	return settled, errors.Join(failed, err)
}

// original returns the record that observers see for m: for a copy in a retry topic, the original
// record.
func original(m *idem.Message) *idem.Message {
	if e, err := deadletter.ParseCopy(m); err == nil {
		return e.Message
	}
	return m
}
