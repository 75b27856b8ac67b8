package engine

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/idem-go/idem/deadletter"
	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/idemtype"
	"github.com/idem-go/idem/internal/decoded"
	"github.com/idem-go/idem/internal/throttle"
	"github.com/idem-go/idem/observe"
)

// task is the processing of one delivery, from the record to the settlement.
type task struct {
	message *idemtype.Message
	copied  *copied // history of a copy or of a deferred event; nil for an original record
	index   int     // index in the batch
	budget  *waitBudget
	reading
	attempts
	claimState
	busy

	deferred *deferredEvent // the queue in the store, if the event was deferred
	// first task of the same event in the group; its settlement settles this task too
	leader    *task
	isolated  bool            // shares no group with other events
	pending   attemptResult   // step of the last attempt, carried out before the next one
	restUntil time.Time       // no group with the event begins earlier, after a shared failure
	permit    throttle.Permit // permit of the handler's limits for the next run
	trial     throttle.Trial  // right to the next run, from the handler's breaker
	paused    time.Duration   // pauses of that breaker that downSince excludes, and earlier ones
	retryPaid bool            // the group has paid the retry budget for the next run
	dataUsed  bool            // an earlier run may have changed data
	askedFor  time.Time       // the last run asked for no run before; the event is not deferred yet
	action    action          // the last decision about a failure
	settlement

	shadow      bool // the handler runs regardless of the store's answer
	skipCounted bool // shadow mode has counted the delivery as a duplicate

	unprotected      bool // the event counts as one that ran while the store was down
	unprotectedWaits int  // waits for a dependency of its handler, without the store
}

// reading is the result of resolving a record: handler, identity and data, or the first error.
type reading struct {
	destination destination
	route       *bound
	access      *storeAccess
	tx          TxStore // nil for a claimed handler
	claimed     bool    // the handler runs under a claim, not in a transaction
	typ         string  // the type of a message without a handler
	id          string
	data        any  // nil if not decoded
	undecodable bool // the decoder has failed
	lookUp      bool // a Decoder must ask another service, while no claim is held
	memo        *decoded.Memo
	reader      *health // health of the decoder that the event waits for
	request     dedup.Request
	class       idemtype.Class // class of the dead letter, together with err
	err         error
	refusal     outcome             // permanent failure of the reading, recorded as a failed run
	noID        idemtype.NoIDPolicy // policy for a record without an ID; zero also with an ID
}

// claimState is the claim of an event, with the answer that granted it.
type claimState struct {
	answer   dedup.Answer // the last answer of the store
	decision decision     // the decision about the answer
	claim    dedup.Claim
	held     *dedup.HeldClaims // renews the claim
	heldAt   int               // index of the claim in held
	began    time.Time         // start of the current transaction
}

// settlement is the end of a delivery.
type settlement struct {
	settled bool               // the offset may be committed
	kind    observe.Settlement // for observers
	ending  ending             // end of the event, for the queue
	handled bool               // the event is handled, by this task or before
	seen    dedup.Origin       // the record that was handled, if handled
}

// handledHere returns the settlement of an event that this task has handled.
func (t *task) handledHere() settlement {
	return settlement{
		settled: true, kind: observe.SettledHandled, ending: endDone,
		handled: true, seen: t.request.Origin,
	}
}

// busy has the time since which another worker has held the claim of the event.
type busy struct {
	busySince    time.Time
	busyNotified bool
}

// attemptResult is the result of one attempt.
type attemptResult struct {
	settled   bool
	notBefore time.Time // earliest time of the next attempt, within the retry policy; may be zero
	outage    error     // before the next attempt, wait until this outage is over
}

// destination is the further path of a message, chosen without the store.
type destination uint8

const (
	destHandler destination = iota + 1
	destUnhandled
	destFallback
	destDeadLetter
	destNoMessage   // the message is nil
	destReread      // the record was not readable, or is not due: resolve it again
	destNoID        // skipped, because the record has no ID
	destUnprotected // the handler runs without the store
)

// passive reports whether the message is settled by a report to observers alone.
func (t *task) passive() bool { return t.settled || t.destination == destUnhandled }

func (t *task) facts(a dedup.Answer) facts {
	return facts{
		now: time.Now(), notBefore: t.earliest(), shadow: t.shadow, tx: t.tx != nil,
		deferred: t.deferred != nil,
		own:      t.message.SameRecord(a.First),
		compared: t.request.Fingerprint != dedup.Fingerprint{},
		refusal:  t.refusal,
	}
}

// awaited reports whether the store waits for this delivery.
func (t *task) awaited() bool {
	c := t.copied
	return t.deferred != nil || c != nil && (c.Key.ID != "" || c.Position != dedup.Position{})
}

// earliest returns the time before which the event must not run, beside the delay of a topic.
func (t *task) earliest() time.Time {
	if t.copied == nil || t.askedFor.After(t.copied.NotBefore) {
		return t.askedFor
	}
	return t.copied.NotBefore
}

// due returns how long a copy must still wait.
func (t *task) due() time.Duration {
	if t.copied == nil {
		return 0
	}
	return t.copied.wait()
}

// remember adds the history of a copy.
func (t *task) remember(c *copied) {
	if c == nil {
		return
	}
	t.request.Position = c.Position
	if c.Position.Retry > 0 { // a reopened event begins anew
		t.earlier, t.failures = c.Attempts, c.Attempts
		t.firstFailure, t.lastFailure = c.FirstFailure, c.LastFailure
	}
}

func (t *task) moment(now time.Time, unnamed bool) moment {
	at := moment{
		now: now, draw: rand.Float64(), claimed: t.claimed, unnamed: unnamed,
		retry: uint64(t.request.Position.Retry), notBefore: t.earliest(),
	}
	if c := t.copied; c != nil {
		at.from = c.delay
	}
	return at
}

// failure is an event that is given up, with the last error.
type failure struct {
	deadletter.Event
	err error
}

// excludeWait excludes a wait for others from the time of retries in place. So an outage costs no
// event an attempt.
func (t *task) excludeWait(waited time.Duration) {
	if !t.blockedSince.IsZero() {
		t.blockedSince = t.blockedSince.Add(waited)
	}
}

// behindOthers returns how long the event has waited for earlier events since its last failure. The
// event's own pause is no such wait, although it passed at the same time.
func (t *task) behindOthers(now time.Time) time.Duration {
	since := t.lastFailure
	for _, pause := range []time.Time{t.pending.notBefore, t.restUntil} {
		if pause.After(since) {
			since = pause
		}
	}
	return max(0, now.Sub(since))
}

// deferredEvent is the place of a deferred event in its queue.
type deferredEvent struct {
	part *deferredPartition
	head dedup.Deferred
}

// waitOut waits before a dependency is tried again. The wait does not count as time of the event.
func (t *task) waitOut(ctx context.Context, try int, reason error) error {
	began := time.Now()
	err := t.budget.wait(ctx, outageWait(try), reason)
	t.excludeWait(time.Since(began))
	return err
}

// endTurn gives the rights to the next run back, after the run or without one. Another event may run
// while this one is recorded, or waits.
func (t *task) endTurn(ran bool) {
	t.trial.End()
	t.permit.End(ran)
}

func (t *task) stopRenewal() {
	if t.held != nil {
		t.held.Stop(t.heldAt)
		t.held = nil
	}
}

// formerKey returns the key of a copy, if the event has another key now. Headers of copies count
// only in topics of the group, and never reach another scope.
func (t *task) formerKey() (dedup.Key, bool) {
	c := t.copied
	if c == nil || c.topic == "" || t.shadow || c.Position == (dedup.Position{}) {
		return dedup.Key{}, false
	}
	return c.Key, c.Key.ID != "" && c.Key != t.request.Key && c.Key.Scope == t.request.Key.Scope &&
		c.Key.Validate() == nil
}

// afford waits until the retry budget allows another run of the event.
func (t *task) afford(ctx context.Context) error {
	wait := t.route.budget.Spend()
	if wait <= 0 {
		return nil
	}
	tooMany := fmt.Errorf("%w: too many retries of %q", dedup.ErrUnavailable, t.route.Type)
	if t.budget.left != idemtype.Forever && wait > t.budget.left {
		if t.request.Position.Retry > 0 { // the copy will ask again
			t.route.budget.Refund()
		}
		return &idemtype.WaitError{Err: tooMany, After: wait}
	}
	began := time.Now()
	defer func() { t.excludeWait(time.Since(began)) }()
	return t.budget.wait(ctx, wait, tooMany)
}

// limit returns the limit of the events that share a transaction with this one.
func (t *task) limit() *throttle.AdaptiveLimit {
	if t.deferred != nil {
		return &t.route.deferredLimit
	}
	return &t.route.txLimit
}
