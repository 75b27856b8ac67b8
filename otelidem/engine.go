package otelidem

import (
	"context"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/observe"
)

// This file counts the events of processors. On the path of a delivery, Observer implements only
// the interfaces that report many at once: neither observe.HandledObserver nor
// observe.ClaimObserver.
var (
	_ observe.ClaimGroupObserver = (*Observer)(nil)
	_ observe.CallObserver       = (*Observer)(nil)
	_ observe.StoreCallObserver  = (*Observer)(nil)
	_ observe.SettledObserver    = (*Observer)(nil)
	_ observe.DuplicateObserver  = (*Observer)(nil)
	_ observe.DeadLetterObserver = (*Observer)(nil)
	_ observe.RetryObserver      = (*Observer)(nil)
	_ observe.SkippedObserver    = (*Observer)(nil)
	_ observe.StoreObserver      = (*Observer)(nil)
	_ observe.StallObserver      = (*Observer)(nil)
	_ observe.LostObserver       = (*Observer)(nil)
	_ observe.ConflictObserver   = (*Observer)(nil)

	_ observe.UnprotectedObserver = (*Observer)(nil)
	_ observe.BreakerObserver     = (*Observer)(nil)
)

// enginePart has the instruments of processors.
type enginePart struct {
	consumed, deferred, claims, lost, takeovers             metric.Int64Counter
	outages, retries, deadLetters, omitted, skipped, stalls metric.Int64Counter
	conflicts, unprotected                                  metric.Int64Counter
	down, breakers                                          metric.Int64UpDownCounter
	process, age, storeCall                                 metric.Float64Histogram
	callSize, claimGroupSize                                metric.Int64Histogram

	settledSets   sets[settledLabels]
	callSets      sets[callLabels]
	sizeSets      sets[groupLabels]
	inFlightSets  sets[groupLabels]     // counts events in flight
	duplicateSets sets[duplicateLabels] // counts duplicates
	storeSets     sets[storeLabels]
	eventSets     sets[eventLabels]
}

func (p *enginePart) init(b *builder) {
	p.consumed, p.deferred = b.counter(&mConsumed), b.counter(&mDeferred)
	p.process, p.callSize, p.claimGroupSize, p.age = b.seconds(&mProcess), b.sizes(&mCallSize),
		b.sizes(&mClaimGroupSize), b.seconds(&mDuplicateAge)
	p.claims, p.lost, p.takeovers = b.counter(&mClaims), b.counter(&mClaimsLost),
		b.counter(&mTakeovers)
	p.storeCall, p.down, p.outages = b.seconds(&mStoreCall), b.upDown(&mStoreDown),
		b.counter(&mOutages)
	p.retries, p.deadLetters, p.skipped, p.stalls = b.counter(&mRetries), b.counter(&mDeadLetters),
		b.counter(&mSkipped), b.counter(&mHandlerStalls)
	p.omitted = b.counter(&mOmitted)
	p.conflicts, p.unprotected = b.counter(&mConflicts), b.counter(&mUnprotected)
	p.breakers = b.upDown(&mBreakers)

	inFlight, duplicates := b.countedUpDown(&mInFlight), b.counted(&mDuplicates)
	b.watch(func(_ context.Context, to metric.Observer) error {
		p.inFlightSets.collect(to, inFlight)
		p.duplicateSets.collect(to, duplicates)
		return nil
	}, inFlight, duplicates)
	p.initSets()
}

func (p *enginePart) initSets() {
	p.settledSets.build, p.settledSets.other = settledLabels.attributes, settledLabels.bounded
	p.callSets.build, p.callSets.other = callLabels.attributes, callLabels.bounded
	p.sizeSets.build, p.sizeSets.other = groupLabels.attributes, groupLabels.bounded
	p.inFlightSets.build, p.inFlightSets.other = groupLabels.attributes, groupLabels.bounded
	p.duplicateSets.build, p.duplicateSets.other = duplicateLabels.attributes,
		duplicateLabels.bounded
	p.storeSets.build = storeLabels.attributes
	p.eventSets.build, p.eventSets.other = eventLabels.attributes, eventLabels.bounded
}

// settledLabels are the labels of settled deliveries.
type settledLabels struct {
	group, topic string
	outcome      observe.Settlement
}

func (l settledLabels) attributes() []attribute.KeyValue {
	return []attribute.KeyValue{
		attribute.String(attrSystem, kafka), attribute.String(attrOperation, "process"),
		attribute.String(attrGroup, l.group),
		attribute.String(attrTopic, l.topic), attribute.String(attrOutcome, l.outcome.String()),
	}
}

func (l settledLabels) bounded() settledLabels { l.topic = otherLabel; return l }

// ObserveSettled counts deliveries by outcome.
func (o *Observer) ObserveSettled(ctx context.Context, e observe.SettledEvent) {
	counter := o.engine.consumed
	if e.Deferred {
		counter = o.engine.deferred
	}
	for i, n := range e.Counts {
		if n > 0 {
			l := settledLabels{e.Group, e.Topic, observe.Settlement(i)} //nolint:gosec // a small index
			set := o.engine.settledSets.get(l)
			counter.Add(ctx, int64(n), set.add...)
		}
	}
}

// callLabels are the labels of a call of a handler.
type callLabels struct{ group, topic, typ, err string }

func (l callLabels) attributes() []attribute.KeyValue {
	return []attribute.KeyValue{
		attribute.String(attrSystem, kafka), attribute.String(attrOperation, "process"),
		attribute.String(attrGroup, l.group),
		attribute.String(attrTopic, l.topic), attribute.String(attrEventType, l.typ),
		attribute.String(attrErrorType, l.err),
	}
}

func (l callLabels) bounded() callLabels { l.topic = otherLabel; return l }

// groupLabels are the labels of metrics without a topic.
type groupLabels struct{ group, typ, err string }

func (l groupLabels) attributes() []attribute.KeyValue {
	return []attribute.KeyValue{
		attribute.String(attrSystem, kafka), attribute.String(attrGroup, l.group),
		attribute.String(attrEventType, l.typ),
		attribute.String(attrErrorType, l.err),
	}
}

func (l groupLabels) bounded() groupLabels { l.typ = otherLabel; return l }

// BeginClaimGroup begins the span of a claim group.
func (o *Observer) BeginClaimGroup(ctx context.Context, r *observe.ClaimGroup) context.Context {
	if !o.mayTrace {
		return ctx
	}
	return o.startClaimGroup(ctx, r)
}

// EndClaimGroup counts the claim group and ends its span.
func (o *Observer) EndClaimGroup(ctx context.Context, r *observe.ClaimGroup) {
	kind := causeType(ctx, r.Err)
	o.engine.claimGroupSize.Record(ctx, int64(r.Len()),
		o.engine.sizeSets.get(groupLabels{group: r.Group, err: kind}).record...)
	if o.mayTrace {
		o.endClaimGroup(ctx, r, kind)
	}
}

// BeginCall counts events in flight, and begins the span of a call, if any.
func (o *Observer) BeginCall(ctx context.Context, c *observe.Call) context.Context {
	o.engine.inFlightSets.get(groupLabels{group: c.Group, typ: c.Type}).n.Add(int64(c.Len()))
	if !o.mayTrace {
		return ctx
	}
	return o.startCall(ctx, c)
}

// EndCall counts the call and ends the span.
func (o *Observer) EndCall(ctx context.Context, c *observe.Call) {
	kind, inFlight := causeType(ctx, c.Err),
		o.engine.inFlightSets.get(groupLabels{group: c.Group, typ: c.Type})
	inFlight.n.Add(-int64(c.Len()))
	if c.Batch {
		o.engine.callSize.Record(ctx, int64(c.Len()), inFlight.record...)
	}
	o.engine.process.Record(ctx, c.Took.Seconds(),
		o.engine.callSets.get(callLabels{c.Group, c.Message(0).Topic, c.Type, kind}).record...)
	if o.mayTrace {
		o.endCall(ctx, c, kind)
	}
}

// duplicateLabels are the labels of a duplicate.
type duplicateLabels struct {
	group, topic, typ string
	verdict           dedup.Verdict
	same, shadow      bool
}

func (l duplicateLabels) attributes() []attribute.KeyValue {
	cause := "copy"
	if l.same {
		cause = "same_record"
	}
	kvs := []attribute.KeyValue{
		attribute.String(attrSystem, kafka), attribute.String(attrGroup, l.group),
		attribute.String(attrTopic, l.topic),
		attribute.String(attrEventType, l.typ), attribute.String(attrCause, cause),
		attribute.String(attrVerdict, l.verdict.String()),
	}
	if l.shadow {
		kvs = append(kvs, attribute.Bool(attrShadow, true))
	}
	return kvs
}

func (l duplicateLabels) bounded() duplicateLabels { l.topic = otherLabel; return l }

// ObserveDuplicate counts a duplicate. The type is that of the handler for the event. Only another
// record with the event has an age, not a redelivery of the same record.
func (o *Observer) ObserveDuplicate(ctx context.Context, e observe.DuplicateEvent) {
	set := o.engine.duplicateSets.get(duplicateLabels{e.Group, e.Message.Topic, e.Key.Type,
		e.Verdict, e.SameRecord, e.Shadow})
	set.n.Add(1)
	if !e.SameRecord && e.Age != 0 {
		o.engine.age.Record(ctx, max(e.Age, 0).Seconds(), set.record...)
	}
	if o.spans.recording.Load() > 0 {
		o.recordDuplicate(ctx, e.Verdict)
	}
}

// ObserveConflict counts a copy with different content.
func (o *Observer) ObserveConflict(ctx context.Context, e observe.ConflictEvent) {
	known := e.Known.String()
	set := o.engine.eventSets.get(eventLabels{
		group: e.Group, topic: e.Message.Topic, typ: e.Key.Type, key: attrVerdict, value: known,
	})
	o.engine.conflicts.Add(ctx, 1, set.add...)
	o.addGroupEvent(ctx, "idem.conflict", attribute.String(attrVerdict, known))
}

// storeLabels are the labels of store calls. The program chooses groups and stores, so their number
// is not bounded here.
type storeLabels struct {
	group, store, verb, verdict, err string
}

func (l storeLabels) attributes() []attribute.KeyValue {
	return []attribute.KeyValue{
		attribute.String(attrGroup, l.group), attribute.String(attrStore, l.store),
		attribute.String(attrStoreCall, l.verb),
		attribute.String(attrVerdict, l.verdict), attribute.String(attrErrorType, l.err),
	}
}

// ObserveStoreCall counts the verdicts and measures the call.
func (o *Observer) ObserveStoreCall(ctx context.Context, e observe.StoreCallEvent) {
	kind := ""
	if e.Err != nil {
		kind = causeType(ctx, e.Err)
	}
	set := o.engine.storeSets.get(storeLabels{
		group: e.Group, store: e.Store, verb: e.Verb.String(), err: kind,
	})
	o.engine.storeCall.Record(ctx, e.Took.Seconds(), set.record...)
	if e.Verb == observe.VerbClaim || e.Verb == observe.VerbTransaction {
		o.countClaims(ctx, &e)
	}
	if o.spans.recording.Load() > 0 {
		o.recordStoreCall(ctx, &e)
	}
}

func (o *Observer) countClaims(ctx context.Context, e *observe.StoreCallEvent) {
	count := func(v dedup.Verdict, n int) {
		if n > 0 {
			set := o.engine.storeSets.get(storeLabels{
				group: e.Group, store: e.Store, verdict: v.String(),
			})
			o.engine.claims.Add(ctx, int64(n), set.add...)
		}
	}
	if e.Err != nil {
		count(0, e.Keys)
		return
	}
	for v := range e.Verdicts {
		count(dedup.Verdict(v), e.Verdict(dedup.Verdict(v))) //nolint:gosec // a small index
	}
	if e.Takeovers > 0 {
		o.engine.takeovers.Add(ctx, int64(e.Takeovers),
			o.engine.storeSets.get(storeLabels{group: e.Group, store: e.Store}).add...)
	}
}

// ObserveStore counts stores that are down.
func (o *Observer) ObserveStore(ctx context.Context, e observe.StoreEvent) {
	set := o.engine.storeSets.get(storeLabels{
		group: e.Group, store: strings.TrimPrefix(e.Name, "store "),
	})
	if e.Down {
		o.engine.down.Add(ctx, 1, set.add...)
		o.engine.outages.Add(ctx, 1, set.add...)
	} else {
		o.engine.down.Add(ctx, -1, set.add...)
	}
}

// eventLabels are the labels of rare events.
type eventLabels struct{ group, topic, typ, key, value, err string }

func (l eventLabels) attributes() []attribute.KeyValue {
	kvs := []attribute.KeyValue{
		attribute.String(attrSystem, kafka), attribute.String(attrGroup, l.group),
		attribute.String(attrTopic, l.topic),
		attribute.String(attrEventType, l.typ), attribute.String(attrErrorType, l.err),
	}
	if l.key != "" {
		kvs = append(kvs, attribute.String(l.key, l.value))
	}
	return kvs
}

func (l eventLabels) bounded() eventLabels { l.topic = otherLabel; return l }

// ObserveRetry counts a failure that will be tried again.
func (o *Observer) ObserveRetry(ctx context.Context, e observe.RetryEvent) {
	kind := "in_place"
	switch {
	case e.Deferred:
		kind = "behind"
	case e.Topic != "":
		kind = "topic"
	case e.Later:
		kind = "deferred"
	}
	set := o.engine.eventSets.get(eventLabels{e.Group, e.Message.Topic, e.Key.Type, attrRetryKind,
		kind, causeType(ctx, e.Err)})
	o.engine.retries.Add(ctx, 1, set.add...)
	o.addGroupEvent(ctx, "idem.retry", attribute.String(attrRetryKind, kind),
		attribute.String(attrErrorType, errorType(e.Err)),
		attribute.Float64("idem.retry.delay", e.Delay.Round(time.Millisecond).Seconds()))
}

// ObserveDeadLetter counts a dead letter, and one without its value once more (rule 45). There is
// no type label, since the type of such an event may be any text.
func (o *Observer) ObserveDeadLetter(ctx context.Context, e observe.DeadLetterEvent) {
	class := deadLetterClass(e.Class)
	set := o.engine.eventSets.get(eventLabels{
		group: e.Group, topic: e.Message.Topic, key: attrDeadLetterClass, value: class,
	})
	o.engine.deadLetters.Add(ctx, 1, set.add...)
	if e.Omitted {
		set := o.engine.eventSets.get(eventLabels{group: e.Group, topic: e.Message.Topic})
		o.engine.omitted.Add(ctx, 1, set.add...)
	}
	o.addGroupEvent(ctx, "idem.dead_letter", attribute.String(attrDeadLetterClass, class))
}

// deadLetterClass returns a known class, or _OTHER.
func deadLetterClass(c idem.Class) string {
	switch c {
	case idem.ClassPermanent, idem.ClassFailed, idem.ClassRetryAfter, idem.ClassPanic,
		idem.ClassTimeout, idem.ClassUncertain,
		idem.ClassCrashLoop, idem.ClassAlreadyDead, idem.ClassConflict, idem.ClassTooOld,
		idem.ClassUndecodable, idem.ClassNoID,
		idem.ClassAmbiguous, idem.ClassNoType, idem.ClassNotJSON, idem.ClassNotACopy:
		return string(c)
	}
	return otherLabel
}

// ObserveSkipped counts a message without a handler. The type is text of the producer, and no
// label.
func (o *Observer) ObserveSkipped(ctx context.Context, e observe.SkippedEvent) {
	reason := "no_handler"
	switch {
	case e.Tombstone:
		reason = "tombstone"
	case e.NoID:
		reason = "no_event_id"
	}
	o.engine.skipped.Add(ctx, 1, o.engine.eventSets.get(eventLabels{
		group: e.Group, topic: e.Message.Topic, key: attrSkipped, value: reason,
	}).add...)
}

// ObserveUnprotected counts a delivery with a handler that runs without the store.
func (o *Observer) ObserveUnprotected(ctx context.Context, e observe.UnprotectedEvent) {
	o.engine.unprotected.Add(ctx, 1, o.engine.eventSets.get(eventLabels{
		group: e.Group, topic: e.Message.Topic, typ: e.Key.Type, key: attrUnprotected,
		value: e.Reason.String(),
	}).add...)
}

// ObserveBreaker counts circuit breakers that are not closed: the first opening, and the end.
func (o *Observer) ObserveBreaker(ctx context.Context, e observe.BreakerEvent) {
	set := o.engine.eventSets.get(eventLabels{group: e.Group, typ: e.Type})
	switch {
	case e.State == observe.BreakerClosed:
		o.engine.breakers.Add(ctx, -1, set.add...)
	case e.State == observe.BreakerOpen && e.For == 0:
		o.engine.breakers.Add(ctx, 1, set.add...)
	}
}

// ObserveStall counts a stalled event.
func (o *Observer) ObserveStall(ctx context.Context, e observe.StallEvent) {
	kind := "hung"
	if e.Busy {
		kind = "busy"
	}
	o.engine.stalls.Add(ctx, 1, o.engine.eventSets.get(eventLabels{
		group: e.Group, typ: e.Key.Type, key: attrStallKind, value: kind,
	}).add...)
	o.addGroupEvent(ctx, "idem.stall", attribute.String(attrStallKind, kind))
}

// ObserveLost counts a lost claim.
func (o *Observer) ObserveLost(ctx context.Context, e observe.LostEvent) {
	o.engine.lost.Add(ctx, 1,
		o.engine.eventSets.get(eventLabels{group: e.Group, typ: e.Key.Type}).add...)
	o.addGroupEvent(ctx, "idem.claim.lost")
}
