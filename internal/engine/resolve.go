package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/idemtype"
	"github.com/idem-go/idem/internal/decoded"
	"github.com/idem-go/idem/internal/identity"
	"github.com/idem-go/idem/internal/mark"
)

// resolve finds the handler and the identity. A failure here never touches the store (rule 6).
// resolve may be called again for an event that could not be read.
func (p *Processor) resolve(ctx context.Context, t *task) {
	if t.message == nil {
		t.destination, t.err = destNoMessage, errors.New("message is nil")
		return
	}
	if t.copied == nil {
		m, c, err := p.copies.open(t.message)
		if err != nil {
			t.toDeadLetter(idemtype.ClassNotACopy, err)
			return
		}
		t.message, t.copied = m, c
	}
	m := t.message
	t.destination, t.err, t.route, t.request = 0, nil, nil, dedup.Request{}
	t.data, t.undecodable, t.noID = nil, false, idemtype.DeadLetterNoID
	ctx = p.readingContext(ctx, t)
	var b *bound
	err := guard(func() (err error) { b, t.typ, err = p.routes.find(ctx, m); return err })
	moved := t.copied != nil && t.copied.topic != ""
	awaited := moved || t.copied != nil && b != nil // the store waits for this delivery
	tombstone := m.Value == nil && (b == nil || !b.Tombstones)
	switch {
	case tombstone && !awaited &&
		(err == nil || errors.Is(err, idemtype.ErrNotFound) && mark.Label(err) == ""):
		t.destination = destUnhandled
	case err != nil:
		t.unread(classOfSource(err, idemtype.ClassNoType), fmt.Errorf("event type: %w", err))
	case b == nil && p.routes.notFound != nil && !tombstone:
		t.destination = destFallback
	case b == nil && moved:
		t.toDeadLetter(
			idemtype.ClassNoType,
			fmt.Errorf(
				"no handler is registered for the type %q, and the record is a copy for a later attempt",
				t.typ,
			),
		)
	case b == nil:
		t.destination = destUnhandled
	default:
		p.unhandled.note(false)
		t.destination, t.route, t.access, t.tx, t.claimed =
			destHandler, b, b.access, b.tx, b.tx == nil
		t.shadow = p.cfg.Shadow
		class := idemtype.ClassUndecodable
		if err := guard(func() (err error) {
			class, err = p.identify(ctx, t)
			return err
		}); err != nil {
			t.unread(class, err)
			return
		}
		if t.noID != idemtype.DeadLetterNoID {
			t.readWithoutID(ctx)
			return
		}
		t.read(ctx)
	}
}

// read decodes the value, if that must happen before the claim and is possible now.
func (t *task) read(ctx context.Context) {
	switch {
	case t.due() > 0:
		t.destination = destReread
	case time.Until(t.earliest()) > 0 && !t.shadow: // the attempt reschedules the event
		t.isolated = true
	case t.message.Value == nil && !t.route.Tombstones:
		t.giveUp(
			idemtype.ClassUndecodable,
			errors.New(
				"its handler takes no tombstones any longer, and this is a copy for a later attempt",
			),
		)
	case t.decodesEarly():
		known := !t.shadow && !t.lookUp && t.rereads == 0 && t.readerDown == 0
		if known { // a duplicate must not need another service
			ctx = decoded.Known(t.memo)
		}
		err := t.decode(ctx)
		if err != nil && (!known || !errors.Is(err, decoded.ErrLookUp)) {
			t.unread(idemtype.ClassUndecodable, err)
		}
	}
}

// decodesEarly reports whether the value is decoded before the claim. Normally the value is decoded
// after the store has granted the claim, so that duplicates cost no decoding.
//
// There are four exceptions. Shadow mode runs duplicates too. The claim of a handler at most once
// must directly precede the run. A function of the user that is not declared pure may ask other
// services, and no transaction should stay open meanwhile. After a failure of the decoder, and
// before a Decoder asks another service, the event is read without a claim.
func (t *task) decodesEarly() bool {
	return t.shadow || t.claimed && t.route.atMostOnce() || !t.claimed && t.route.ImpureDecode ||
		t.lookUp || t.rereads > 0 || t.readerDown > 0
}

func (t *task) decode(ctx context.Context) error {
	err := guard(func() (err error) { t.data, err = t.route.Decode(ctx, t.message); return err })
	if err != nil {
		t.data, t.undecodable = nil, !errors.Is(err, decoded.ErrLookUp)
	}
	return err
}

func (t *task) toDeadLetter(class idemtype.Class, err error) {
	t.destination, t.class, t.err = destDeadLetter, class, err
}

// identify makes the request to the store. A failure here never touches the store (rule 6).
func (p *Processor) identify(ctx context.Context, t *task) (idemtype.Class, error) {
	rt, m := t.route, t.message
	key, class, err := p.keyOf(ctx, t)
	switch {
	case err != nil:
		return class, err
	case t.noID != idemtype.DeadLetterNoID:
		t.request = dedup.Request{Key: key, Origin: m.Origin()}
		return idemtype.ClassNoID, recordKey(key, m).Validate()
	}
	if err := key.Validate(); err != nil {
		return idemtype.ClassNoID, err
	}
	if err := t.editedIdentity(key); err != nil {
		return idemtype.ClassAmbiguous, err
	}
	// The age of a deferred event was judged before the deferral. Such an event may wait for any
	// time.
	anyAge := rt.TooOld == idemtype.RunTooOld || t.deferred != nil
	t.request = dedup.Request{Key: key, Origin: m.Origin(), Retention: rt.Retention, AnyAge: anyAge}
	t.remember(t.copied)
	content, err := rt.fingerprintOf(ctx, m)
	if err != nil {
		return idemtype.ClassUndecodable, fmt.Errorf("fingerprint: %w", err)
	}
	t.request.Fingerprint, t.request.SecondFingerprint = content.First, content.Second
	return "", nil
}

// keyOf returns the key of the event. The key has no ID if the record has no ID and the policy of
// the handler takes such a record.
func (p *Processor) keyOf(
	ctx context.Context, t *task,
) (dedup.Key, idemtype.Class, error) {
	rt, m := t.route, t.message
	id, err := rt.ID.Find(ctx, m)
	switch {
	case err != nil:
		class := classOfSource(err, idemtype.ClassNoID)
		if t.noID = rt.withoutID(class, err, t.awaited()); t.noID == idemtype.DeadLetterNoID {
			return dedup.Key{}, class, fmt.Errorf("event ID: %w", err)
		}
		id = ""
	case rt.mixed:
		id = identity.Tagged(id, rt.form)
	}
	t.id = id
	key := dedup.Key{Scope: rt.Scope, Type: rt.Type, ID: id}
	if key.Scope == "" {
		key.Scope = p.cfg.Scope
	}
	if rt.Tenant.Find != nil && t.noID != idemtype.SkipNoID {
		if key.Tenant, err = rt.Tenant.Find(ctx, m); err != nil {
			return dedup.Key{}, classOfSource(err, idemtype.ClassNoID),
				fmt.Errorf("tenant: %w", err)
		}
	}
	return key, "", nil
}

func classOfSource(err error, otherwise idemtype.Class) idemtype.Class {
	var undecodable *decoded.Error
	switch {
	case errors.As(err, &undecodable):
		return idemtype.ClassUndecodable
	case errors.Is(err, idemtype.ErrAmbiguous):
		return idemtype.ClassAmbiguous
	case errors.Is(err, identity.ErrNotJSON):
		return idemtype.ClassNotJSON
	}
	return otherwise
}

// unread notes the reason why an event cannot be read.
func (t *task) unread(class idemtype.Class, err error) {
	if errors.Is(err, decoded.ErrLookUp) { // read again at once, unless the context has ended
		t.destination, t.class, t.err, t.lookUp = destReread, "", nil, true
		return
	}
	t.class, t.err = class, err
	if mark.Label(err) != "" {
		t.destination = destReread
		return
	}
	t.giveUp(class, err)
}

// giveUp lets the event be dead-lettered. The attempt records that if the store waits for the
// event. The attempt does so too if only the decoder has failed, because the key and the content
// are known then.
func (t *task) giveUp(class idemtype.Class, err error) {
	t.identifyAsDeferred()
	if !t.shadow && t.request.Key.ID != "" &&
		(t.request.Position != dedup.Position{} || t.deferred != nil || t.undecodable) {
		t.refuseInAttempt(outcome{meaning: permanent, class: class, err: err})
		return
	}
	t.toDeadLetter(class, err)
}

// refuseInAttempt lets the attempt end the event by o, instead of running the handler.
func (t *task) refuseInAttempt(o outcome) {
	t.destination, t.isolated, t.refusal = destHandler, true, o
}

// identifyAsDeferred gives an unreadable deferred event its former key and position. So the record
// of the event ends and the queue is blocked, as for any other dead event.
func (t *task) identifyAsDeferred() {
	if t.deferred == nil || t.route == nil || t.request.Key.ID != "" {
		return
	}
	key := t.deferred.head.Key
	t.id, t.request = key.ID, dedup.Request{
		Key: key, Origin: t.message.Origin(), Retention: t.route.Retention, AnyAge: true,
	}
	t.remember(t.copied)
}

// unhandledError returns the reason why a deferred event without a handler stays at the head of its
// queue.
func (t *task) unhandledError() error {
	switch {
	case t.deferred == nil:
	case t.destination == destFallback || t.destination == destUnhandled:
		return fmt.Errorf("no handler is registered for the type %q", t.deferred.head.Key.Type)
	case t.destination == destDeadLetter:
		return fmt.Errorf("no handler can be found: %w", t.err)
	}
	return nil
}

// readingOutcome returns the outcome of an error of a function that reads an event. No handler ran,
// so there is no doubt about an effect.
func readingOutcome(err error) outcome {
	if mark.Label(err) == "" {
		return outcome{meaning: permanent, class: idemtype.ClassUndecodable, err: err}
	}
	o := classify(nil, err)
	o.unbegun = true
	return o
}

// OrderKey returns the Kafka key, or the identity of an event without one.
func (p *Processor) OrderKey(m *idemtype.Message) string {
	if m.Key != nil {
		return "k" + string(m.Key)
	}
	key, ctx := "", decoded.Known(nil)
	_ = guard(func() error { // an invalid message is found when it is handled
		m, c, err := p.copies.open(m)
		if err != nil {
			return err
		}
		b, _, err := p.routes.find(ctx, m)
		if err != nil || b == nil {
			return err
		}
		d := &task{message: m, copied: c, reading: reading{route: b}}
		if _, err := p.identify(ctx, d); err == nil && d.request.Key.ID != "" {
			key = "e" + d.request.Key.String()
		}
		return nil
	})
	return key
}

// orderKeyOf returns the order key of an event. An identity that was decoded is not found again.
func (p *Processor) orderKeyOf(t *task) string {
	if t.message.Key == nil && t.request.Key.ID != "" && t.route.ID.Decodes {
		return "e" + t.request.Key.String()
	}
	return p.OrderKey(t.message)
}

// readingContext returns the context in which the event is read. The context has a new memo if a
// function calls a Decoder.
func (p *Processor) readingContext(ctx context.Context, t *task) context.Context {
	if !p.decodes {
		return ctx
	}
	t.memo = &decoded.Memo{Began: time.Now(), Answered: p.readerAnswered}
	return decoded.With(ctx, t.memo)
}

// decodeFresh decodes an event with a granted claim. After an error the outcome is marked as
// refused. After a passing error the event is read again, without a claim. The same holds if the
// Decoder must ask another service.
func (t *task) decodeFresh() outcome {
	if t.data != nil {
		return outcome{}
	}
	err := t.decode(decoded.Known(t.memo))
	if err == nil {
		return outcome{}
	}
	if mark.Label(err) != "" || errors.Is(err, decoded.ErrLookUp) {
		t.unread(idemtype.ClassUndecodable, err)
	}
	o := readingOutcome(err)
	o.refused = true
	return o
}
