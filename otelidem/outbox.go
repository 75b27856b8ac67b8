package otelidem

import (
	"context"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/idem-go/idem/outbox"
)

// This file counts the events of relays and outboxes. Their spans are in outbox_spans.go.
var (
	_ outbox.RoundObserver   = (*Observer)(nil)
	_ outbox.PublishObserver = (*Observer)(nil)
	_ outbox.BacklogObserver = (*Observer)(nil)
	_ outbox.ShareObserver   = (*Observer)(nil)
	_ outbox.AddObserver     = (*Observer)(nil)
	_ outbox.WriteObserver   = (*Observer)(nil)
)

const (
	attrOutbox        = "idem.outbox.name"
	attrOutboxOutcome = "idem.outbox.outcome"
)

// delayBuckets reach from a relay that is woken to a broker that was down for a day.
var delayBuckets = []float64{0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800,
	7200, 86400}

var (
	mSent = Metric{
		Name: "messaging.client.sent.messages", Kind: Counter, Unit: "{message}",
		Description: "Events of outboxes that were passed to the producer. Every attempt counts.",
		Attributes:  []string{attrSystem, attrOperation, attrTopic, attrErrorType},
	}
	mOutboxDelay = Metric{
		Name: "idem.outbox.delay", Kind: Histogram, Unit: "s", Buckets: delayBuckets,
		Description: "Time from the addition of an event to the broker's acknowledgement, by the " +
			"clocks of the database and of this host.",
		Attributes: []string{attrSystem, attrTopic},
	}
	mOutboxAdded = Metric{
		Name: "idem.outbox.added", Kind: Counter, Unit: "{row}",
		Description: "Rows that were written, usually just before a commit. A row that is rolled " +
			"back counts too.",
		Attributes: []string{attrSystem, attrTopic, attrEventType},
	}
	mOutboxRows = Metric{
		Name: "idem.outbox.rows", Kind: Counter, Unit: "{row}",
		Description: "Rows by outcome: sent, failed (and tried again), parked, or blocked behind " +
			"a parked row.",
		Attributes: []string{attrOutbox, attrOutboxOutcome},
	}
	mOutboxErrors = Metric{
		Name: "idem.outbox.errors", Kind: Counter, Unit: "{batch}",
		Description: "Batches of relays with an error of the broker or of the database.",
		Attributes:  []string{attrOutbox, attrErrorType},
	}
	mOutboxBacklog = Metric{
		Name: "idem.outbox.backlog", Kind: Gauge, Unit: "{row}",
		Description: "Rows that wait for publication, up to 10,000.",
		Attributes:  []string{attrOutbox},
	}
	mOutboxAge = Metric{
		Name: "idem.outbox.backlog.age", Kind: Gauge, Unit: "s",
		Description: "Waiting time of the oldest of these rows when the relay last checked, " +
			"which happens about every ten seconds.",
		Attributes: []string{attrOutbox},
	}
	mOutboxParked = Metric{
		Name: "idem.outbox.parked", Kind: Gauge, Unit: "{row}",
		Description: "Rows that the relay has given up: an operator must decide.",
		Attributes:  []string{attrOutbox},
	}
	mOutboxBlocked = Metric{
		Name: "idem.outbox.blocked", Kind: Gauge, Unit: "{row}",
		Description: "Rows behind a parked one of their topic and key.",
		Attributes:  []string{attrOutbox},
	}
	mOutboxShards = Metric{
		Name: "idem.outbox.shards", Kind: Gauge, Unit: "{shard}",
		Description: "Parts of the outbox that the relays of this process publish, of 64.",
		Attributes:  []string{attrOutbox},
	}
)

// outboxMetrics are the metrics of outboxes and relays. The duration of a send is a
// messaging.client.operation.duration.
var outboxMetrics = []*Metric{
	&mSent, &mOutboxDelay, &mOutboxAdded, &mOutboxRows, &mOutboxErrors, &mOutboxBacklog,
	&mOutboxAge, &mOutboxParked, &mOutboxBlocked, &mOutboxShards,
}

// maxOutboxes bounds the outboxes that have gauges.
const maxOutboxes = 100

// outboxPart has the instruments of outboxes, and the last reports of relays.
type outboxPart struct {
	sent, added, rows, errs         metric.Int64Counter
	delay                           metric.Float64Histogram
	backlog, parked, blocked, share metric.Int64ObservableGauge
	age                             metric.Float64ObservableGauge

	sendSets  sets[sendLabels]
	delaySets sets[string] // by topic
	addedSets sets[addedLabels]
	rowSets   sets[rowLabels]

	mu    sync.Mutex
	boxes map[string]*boxState
}

// boxState is the last report on an outbox by the relays of this process.
type boxState struct {
	labels *labelSet
	shards map[string]int // by relay
	seen   bool           // the backlog is known
	last   outbox.Backlog
}

// sendLabels are the labels of sent messages; operation is set for the duration only.
type sendLabels struct {
	topic, err string
	operation  bool
}

func (l sendLabels) attributes() []attribute.KeyValue {
	kvs := []attribute.KeyValue{
		attribute.String(attrSystem, kafka), attribute.String(attrOperation, "send"),
		attribute.String(attrTopic, l.topic),
		attribute.String(attrErrorType, l.err),
	}
	if l.operation {
		kvs = append(kvs, attribute.String(attrOperationType, "send"))
	}
	return kvs
}

func (l sendLabels) bounded() sendLabels { l.topic = otherLabel; return l }

type addedLabels struct{ topic, typ string }

func (l addedLabels) attributes() []attribute.KeyValue {
	return []attribute.KeyValue{attribute.String(attrSystem, kafka),
		attribute.String(attrTopic, l.topic), attribute.String(attrEventType, l.typ)}
}

func (addedLabels) bounded() addedLabels { return addedLabels{otherLabel, otherLabel} }

// rowLabels are the labels of a whole outbox.
type rowLabels struct{ box, outcome, err string }

func (l rowLabels) attributes() []attribute.KeyValue {
	return []attribute.KeyValue{
		attribute.String(attrOutbox, l.box), attribute.String(attrOutboxOutcome, l.outcome),
		attribute.String(attrErrorType, l.err),
	}
}

func (l rowLabels) bounded() rowLabels { l.box = otherLabel; return l }

func (p *outboxPart) init(b *builder) {
	p.sent, p.added, p.rows, p.errs = b.counter(&mSent), b.counter(&mOutboxAdded),
		b.counter(&mOutboxRows), b.counter(&mOutboxErrors)
	p.delay = b.seconds(&mOutboxDelay)
	p.backlog, p.parked, p.blocked, p.share = b.gauge(&mOutboxBacklog), b.gauge(&mOutboxParked),
		b.gauge(&mOutboxBlocked), b.gauge(&mOutboxShards)
	p.age = b.gaugeFloat(&mOutboxAge)
	p.sendSets = sets[sendLabels]{build: sendLabels.attributes, other: sendLabels.bounded}
	p.delaySets = sets[string]{
		build: func(topic string) []attribute.KeyValue {
			return []attribute.KeyValue{attribute.String(attrSystem, kafka),
				attribute.String(attrTopic, topic)}
		},
		other: func(string) string { return otherLabel },
	}
	p.addedSets = sets[addedLabels]{build: addedLabels.attributes, other: addedLabels.bounded}
	p.rowSets = sets[rowLabels]{build: rowLabels.attributes, other: rowLabels.bounded}
	p.boxes = make(map[string]*boxState)
	b.watch(p.collect, p.backlog, p.age, p.parked, p.blocked, p.share)
}

// collect reports the gauges. An outbox without a relay in this process is not reported.
func (p *outboxPart) collect(_ context.Context, to metric.Observer) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range p.boxes {
		shards := 0
		for _, n := range s.shards {
			shards += n
		}
		to.ObserveInt64(p.share, int64(shards), s.labels.observe...)
		if s.seen {
			to.ObserveInt64(p.backlog, s.last.Waiting, s.labels.observe...)
			to.ObserveFloat64(p.age, s.last.Oldest.Seconds(), s.labels.observe...)
			to.ObserveInt64(p.parked, s.last.Parked, s.labels.observe...)
			to.ObserveInt64(p.blocked, s.last.Blocked, s.labels.observe...)
		}
	}
	return nil
}

// box returns the state of an outbox, or nil if there are too many. p.mu is held.
func (p *outboxPart) box(name string) *boxState {
	s := p.boxes[name]
	if s == nil && len(p.boxes) < maxOutboxes {
		s = &boxState{labels: p.rowSets.get(rowLabels{box: name}), shards: make(map[string]int)}
		p.boxes[name] = s
	}
	return s
}

// ObserveShare implements [outbox.ShareObserver].
func (o *Observer) ObserveShare(_ context.Context, e outbox.Share) {
	p := &o.outbox
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.box(e.Outbox)
	switch {
	case s == nil:
	case !e.Ended:
		s.shards[e.Relay] = e.Shards
	default:
		delete(s.shards, e.Relay)
		if len(s.shards) == 0 { // the last relay of this process ended
			delete(p.boxes, e.Outbox)
		}
	}
}

// ObserveBacklog implements [outbox.BacklogObserver].
func (o *Observer) ObserveBacklog(_ context.Context, b outbox.Backlog) {
	p := &o.outbox
	p.mu.Lock()
	defer p.mu.Unlock()
	if s := p.box(b.Outbox); s != nil {
		s.seen, s.last = true, b
	}
}

// ObserveRound implements [outbox.RoundObserver].
func (o *Observer) ObserveRound(ctx context.Context, r outbox.Round) {
	p := &o.outbox
	count := func(outcome string, n int) {
		if n > 0 {
			p.rows.Add(ctx, int64(n),
				p.rowSets.get(rowLabels{box: r.Outbox, outcome: outcome}).add...)
		}
	}
	count("sent", r.Sent)
	count("failed", r.Failed)
	count("parked", r.Parked)
	count("blocked", r.Blocked)
	if r.Err != nil {
		p.errs.Add(ctx, 1, p.rowSets.get(rowLabels{box: r.Outbox, err: errorType(r.Err)}).add...)
	}
}

// ObserveWrite implements [outbox.WriteObserver].
func (o *Observer) ObserveWrite(ctx context.Context, w outbox.Write) {
	if w.Err != nil {
		return
	}
	p := &o.outbox
	for i := 0; i < len(w.Entries); {
		l, n := addedLabels{w.Entries[i].Topic, w.Entries[i].Type}, int64(0)
		for ; i < len(w.Entries) && l == (addedLabels{w.Entries[i].Topic, w.Entries[i].Type}); i++ {
			n++
		}
		p.added.Add(ctx, n, p.addedSets.get(l).add...)
	}
}

// BeginPublish implements [outbox.PublishObserver].
func (o *Observer) BeginPublish(ctx context.Context, p *outbox.Publish) context.Context {
	if !o.mayTrace {
		return ctx
	}
	return o.startSend(ctx, p)
}

// EndPublish implements [outbox.PublishObserver].
func (o *Observer) EndPublish(ctx context.Context, p *outbox.Publish) {
	first := o.countSent(ctx, p)
	l := sendLabels{topic: topicOf(p), err: first, operation: true}
	o.runner.operation.Record(ctx, p.Took.Seconds(), o.outbox.sendSets.get(l).record...)
	if o.mayTrace {
		endSend(ctx, p, first)
	}
}

// countSent counts the rows, and returns the kind of the first error.
func (o *Observer) countSent(ctx context.Context, p *outbox.Publish) (first string) {
	now := time.Now()
	var l sendLabels
	n := int64(0)
	count := func() {
		if n > 0 {
			o.outbox.sent.Add(ctx, n, o.outbox.sendSets.get(l).add...)
		}
	}
	for i := range p.Len() {
		row := p.Row(i)
		is := sendLabels{topic: row.Entry.Topic, err: errorType(p.Err(i))}
		if is != l {
			count()
			l, n = is, 0
		}
		n++
		switch {
		case is.err == "":
			age := max(0, now.Sub(row.Added)) // two different clocks
			o.outbox.delay.Record(ctx, age.Seconds(), o.outbox.delaySets.get(is.topic).record...)
		case first == "":
			first = is.err
		}
	}
	count()
	return first
}

// topicOf returns the topic of all rows, or empty text if they have several.
func topicOf(p *outbox.Publish) string {
	topic := p.Row(0).Entry.Topic
	for i := 1; i < p.Len(); i++ {
		if p.Row(i).Entry.Topic != topic {
			return ""
		}
	}
	return topic
}
