package engine

import (
	"context"
	"errors"
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/idemtype"
	"github.com/idem-go/idem/internal/decoded"
	"github.com/idem-go/idem/internal/lazyctx"
	"github.com/idem-go/idem/internal/throttle"
	"github.com/idem-go/idem/observe"
)

// stopContext returns the context of work that has begun. hard outlives ctx by the rest of the
// grace (rule 13). Without grace, and on a lost partition (K-11), hard ends with ctx: a transaction
// is rolled back. release must be called.
func (p *Processor) stopContext(
	ctx context.Context, grace bool,
) (hard context.Context, release func()) {
	hard, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	var timer *time.Timer
	armed := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(armed)
		cause := stopCause(ctx)
		if !grace || errors.Is(cause, idemtype.ErrPartitionLost) {
			cancel(cause)
			return
		}
		timer = time.AfterFunc(max(p.cfg.Grace-abandonAfter, 0), func() { cancel(cause) })
	})
	return hard, func() {
		if !stop() { // the function has begun: wait until timer is set
			<-armed
			if timer != nil {
				timer.Stop()
			}
		}
		cancel(context.Canceled)
	}
}

// run calls the handler in a goroutine of its own. A runtime.Goexit of the handler then ends only
// that goroutine. A handler that hangs must not block the revocation of a partition (K-07, K-23).
//
// run returns when the handler returns. A handler that goes on after the end of hard is abandoned,
// and counted until its return. t is one event of the call, for reports. claims returns the
// completions for a success.
func (p *Processor) run(
	hard context.Context, t *task, in []Input, tx any, claims func() []dedup.Completion,
) outcome {
	ctx := lazyctx.WithTimeoutCause(hard, t.route.Timeout, idemtype.ErrHandlerTimeout)
	defer ctx.Cancel()
	done := make(chan error, 1)
	go p.start(ctx, t.route, tx, in, done)

	timer := t.budget.callTimer(t.route.Timeout)
	defer timer.Stop()
	select {
	case err := <-done:
		return classify(context.Cause(ctx), err)
	case <-hard.Done():
	case <-timer.C:
	}
	ctx.Expire()
	return p.overdue(ctx, hard, t, done, claims)
}

// overdue waits for a handler after the end of ctx, and reports a stall once per lease. After the
// end of hard, overdue waits for abandonAfter, then abandons the handler. A time-out ends ctx
// alone, so a claimed handler may run on. A second run beside the first would help no user. For a
// handler in a transaction, hard ends txSlack after the time-out.
func (p *Processor) overdue(
	ctx, hard context.Context, t *task, done <-chan error, claims func() []dedup.Completion,
) outcome {
	stall := time.NewTimer(p.cfg.Lease)
	defer stall.Stop()
	left := time.NewTimer(abandonAfter)
	left.Stop()
	defer left.Stop()
	for stopped := hard.Done(); ; {
		select {
		case err := <-done:
			return classify(context.Cause(ctx), err)
		case <-stall.C:
			p.notifyStall(hard, t)
			stall.Reset(p.cfg.Lease)
		case <-stopped:
			stopped = nil
			left.Reset(abandonAfter)
		case <-left.C:
			p.abandon(t, done, claims())
			// After the loss of the claim, another worker has the event.
			if cause := context.Cause(hard); errors.Is(cause, dedup.ErrClaimLost) {
				return outcome{meaning: claimLost, err: cause}
			}
			return outcome{
				meaning: abandoned, class: idemtype.ClassTimeout, err: idemtype.ErrAbandoned,
			}
		}
	}
}

// abandon counts an abandoned handler until it returns. Late successes are then recorded. The store
// accepts them if no worker has claimed the events meanwhile (rule 13). claims has all events of
// the call, in order.
func (p *Processor) abandon(t *task, done <-chan error, claims []dedup.Completion) {
	access, attrs := t.access, taskAttrs(t) // of the first event of a call
	p.abandonedNow.Add(1)
	p.abandoned.Go(func() {
		err := <-done
		p.abandonedNow.Add(-1)
		good := lateSuccesses(err, claims)
		if len(good) == 0 {
			p.log.Info(
				"a handler that was left behind has ended",
				append(attrs, "error", p.errorText(err))...)
			return
		}
		recorded, why := p.completeLate(access, good)
		attrs = append(attrs, "succeeded", len(good), "recorded", recorded)
		if why != nil {
			attrs = append(attrs, "error", p.errorText(why))
		}
		p.log.Info("a handler that was left behind has succeeded", attrs...)
	})
}

// lateSuccesses returns the completions of the events that succeeded: all without an error, or
// those that a BatchError does not name.
func lateSuccesses(err error, claims []dedup.Completion) []dedup.Completion {
	if err == nil {
		return claims
	}
	named := namedIn(err, len(claims))
	if named == nil {
		return nil
	}
	var good []dedup.Completion
	for i, c := range claims {
		if named[i] == nil {
			good = append(good, c)
		}
	}
	return good
}

// lateFor limits the time to record a late success. [Processor.Close] ends that time early.
const lateFor = 10 * time.Second

// completeLate records late successes and returns the number of recorded ones. The claims of the
// others were lost. After an error the store gave no answer.
func (p *Processor) completeLate(
	access *storeAccess, done []dedup.Completion,
) (recorded int, err error) {
	until := time.Now().Add(lateFor)
	for try := 1; ; try++ {
		err = within(
			context.Background(), abandonAfter,
			func(ctx context.Context) error { return access.store.Complete(ctx, done) },
		)
		var lost *dedup.LostError
		switch {
		case err == nil:
			return len(done), nil
		case errors.As(err, &lost):
			return len(done) - len(lost.Claims), nil
		case p.closing.Err() != nil || passed(until):
			return 0, err
		}
		_ = sleep(p.closing, outageWait(try)) // once more after Close has begun
	}
}

// start runs the handler and sends the result to done: an error, a panic or runtime.Goexit. done is
// buffered.
func (p *Processor) start(ctx context.Context, b *bound, tx any, in []Input, done chan<- error) {
	var err error
	finished := false
	var watched observedCall
	defer func() { // also if an observer ends the goroutine
		if !finished {
			err = panicked(recover())
		}
		err = userErr(err)
		watched.end(err)
		done <- err
	}()
	watched = p.observeCall(ctx, b, in)
	err = b.Call(watched.ctx, tx, in)
	finished = true
}

// timedRun runs the handler on one event and reports the result.
func (p *Processor) timedRun(ctx context.Context, t *task, tx any) outcome {
	began := time.Now()
	t.retryPaid = false
	o := p.run(ctx, t, []Input{t.input()}, tx, t.completions)
	if named := namedIn(o.err, 1); named != nil { // a batch handler names its only event
		o = outcome{}
		if err := named[0]; err != nil {
			o = classify(context.Cause(ctx), err)
		}
	}
	if t.claimed && !t.route.Batch {
		t.route.ahead.Note(time.Since(began))
	}
	p.noteRun(ctx, t.route, &outcomes{all: o}, []*task{t})
	p.notifyHandled(ctx, t, time.Since(began), o.err)
	return o
}

// callMany calls a handler and reports each of the events.
func (p *Processor) callMany(ctx context.Context, c *handlerCall, tx any) outcomes {
	began := time.Now()
	in := make([]Input, len(c.tasks))
	for i, t := range c.tasks {
		in[i], t.retryPaid = t.input(), false
	}
	o := newOutcomes(ctx, p.run(ctx, c.tasks[0], in, tx, c.completions), c.tasks)
	took := time.Since(began)
	p.noteRun(ctx, c.route, &o, c.tasks)
	for _, t := range c.tasks {
		p.notifyHandled(ctx, t, took, o.of(t).err)
	}
	return o
}

func (t *task) input() Input {
	data := t.data
	if t.dataUsed { // an earlier run may have changed the data
		data = t.again()
	}
	t.dataUsed = true
	key := t.request.Key
	if key.ID == "" {
		key = recordKey(key, t.message)
	}
	return Input{
		Key: key, Name: t.route.Name, Fence: t.claim.Fence,
		ID: t.id, Attempt: t.attempt, Uncertain: t.uncertain, Message: t.message, Payload: data,
	}
}

// again decodes the value once more. After an error the earlier result is used.
func (t *task) again() any {
	data := t.data
	_ = guard(func() error {
		fresh, err := t.route.Decode(decoded.Known(nil), t.message)
		if err == nil {
			data = fresh
		}
		return err
	})
	return data
}

// handlerCall is one call of a handler, with one event or, for a batch handler, several.
type handlerCall struct {
	route *bound
	tasks []*task
	held  *dedup.HeldClaims // nil for a transactional handler
	// permit of the handler's limits, for a call of single events in a group of several
	permit throttle.Permit
}

// outcomes has the outcome of each event of one call of a handler.
type outcomes struct {
	all   outcome
	many  bool              // the call was about more than one event
	named map[*task]outcome // of the events that a BatchError names; the others have succeeded
}

func newOutcomes(ctx context.Context, all outcome, tasks []*task) outcomes {
	named := namedIn(all.err, len(tasks))
	if named == nil || all.meaning == abandoned {
		return outcomes{all: all, many: len(tasks) > 1}
	}
	o := outcomes{many: len(tasks) > 1, named: make(map[*task]outcome, len(named))}
	cause := context.Cause(ctx)
	if all.class == idemtype.ClassTimeout { // of a context that has ended with the run
		cause = idemtype.ErrHandlerTimeout
	}
	for i, err := range named {
		if err != nil {
			o.named[tasks[i]] = classify(cause, err)
		}
	}
	return o
}

func (o *outcomes) of(t *task) outcome {
	if o.named == nil {
		return o.all
	}
	return o.named[t] // zero, succeeded, for an event that is not named
}

// split separates the events that succeeded from the others.
func (o *outcomes) split(tasks []*task) (good, bad []*task) {
	if o.named == nil && o.all.meaning == succeeded {
		return tasks, nil
	}
	for _, t := range tasks {
		if o.of(t).meaning == succeeded {
			good = append(good, t)
		} else {
			bad = append(bad, t)
		}
	}
	return good, bad
}

// completions returns the completions for a successful call.
func completions(tasks []*task) []dedup.Completion {
	done := make([]dedup.Completion, len(tasks))
	for i, t := range tasks {
		done[i] = dedup.Completion{Claim: t.claim, Retention: t.route.Retention}
	}
	return done
}

func (c *handlerCall) completions() []dedup.Completion { return completions(c.tasks) }

func noClaims() []dedup.Completion { return nil }

func (t *task) completions() []dedup.Completion {
	if !t.claimed || t.claim.Key.ID == "" {
		return nil
	}
	return []dedup.Completion{{Claim: t.claim, Retention: t.route.Retention}}
}

// observedCall is a call of a handler. Without observers only the context is set.
type observedCall struct {
	ctx      context.Context
	r        *reporter
	call     *observe.Call // nil: no observers, or the end was reported
	contexts []context.Context
}

func (r *reporter) observeCall(ctx context.Context, b *bound, in []Input) observedCall {
	w := observedCall{ctx: ctx, r: r}
	if len(r.obs.Call) == 0 || len(in) == 0 {
		return w
	}
	w.call = &observe.Call{
		Events: inputs(in), Group: r.group, Type: b.Type, Batch: b.Batch,
		Transactional: b.tx != nil, Began: time.Now(),
	}
	w.contexts = make([]context.Context, len(r.obs.Call))
	for i, o := range r.obs.Call {
		begin := func() { w.ctx = o.BeginCall(w.ctx, w.call) } //nolint:fatcontext // as below
		r.protect("BeginCall", begin)
		w.contexts[i] = w.ctx //nolint:fatcontext // one for each observer
	}
	return w
}

// end reports the end of a call, once.
func (w *observedCall) end(err error) {
	if w.call == nil {
		return
	}
	c := w.call
	w.call = nil
	c.Took, c.Err = time.Since(c.Began), err
	for i := len(w.contexts) - 1; i >= 0; i-- {
		w.r.protect("EndCall", func() { w.r.obs.Call[i].EndCall(w.contexts[i], c) })
	}
}

// protect catches a panic of an observer, which would otherwise count as a panic of the handler.
func (r *reporter) protect(what string, callback func()) {
	defer func() {
		if v := recover(); v != nil {
			r.log.Error("an observer panicked", "in", what, "panic", v)
		}
	}()
	callback()
}

// inputs implements [observe.Events].
type inputs []Input

func (l inputs) Len() int { return len(l) }

func (l inputs) Message(i int) *idemtype.Message { return l[i].Message }

func (l inputs) Key(i int) dedup.Key { return l[i].Key }

func (l inputs) Attempt(i int) int { return l[i].Attempt }
