package engine

import (
	"context"
	"errors"
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/idemtype"
)

// stopContext returns the context for a run: it outlives ctx, whose end means "start nothing new", by the grace that is
// left for work that was begun (rule 13). A transaction gets none, since rolling it back is free; nor does a run on a
// partition that is lost already (K-11). release must be called.
func (p *Processor) stopContext(ctx context.Context, grace bool) (hard context.Context, release func()) {
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
		if !stop() { // it has begun: wait until timer is set
			<-armed
			if timer != nil {
				timer.Stop()
			}
		}
		cancel(context.Canceled)
	}
}

// run calls the handler in a goroutine of its own: runtime.Goexit would end ours whether we recover or not, and a
// handler that hangs must not keep a partition that is to be given back (K-07, K-23). It returns when the handler does, or when hard has
// ended and the handler goes on regardless; the handler is then abandoned and its goroutine counted until it ends. d is an
// event of the call, for what there is to tell; claims returns what its success completes.
func (p *Processor) run(hard context.Context, t *task, in []Input, tx any, claims func() []dedup.Completion) outcome {
	ctx, cancel := context.WithTimeoutCause(hard, t.route.Timeout, idemtype.ErrHandlerTimeout)
	defer cancel()
	done := make(chan error, 1)
	go p.start(ctx, t.route, tx, in, done)

	select {
	case err := <-done:
		return classify(context.Cause(ctx), err)
	case <-ctx.Done():
		return p.overdue(ctx, hard, t, done, claims)
	}
}

// overdue waits for a handler whose context has ended. After a time-out alone it waits as long as it takes, and says so:
// running the event again beside itself would help nobody. After a stop it waits a moment more.
func (p *Processor) overdue(ctx, hard context.Context, t *task, done <-chan error, claims func() []dedup.Completion) outcome {
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
			if cause := context.Cause(hard); errors.Is(cause, dedup.ErrClaimLost) { // the event is somebody else's by now
				return outcome{meaning: claimLost, err: cause}
			}
			return outcome{meaning: abandoned, class: idemtype.ClassTimeout, err: idemtype.ErrAbandoned}
		}
	}
}

// abandon counts a handler that was left behind, until it ends. The events that succeeded are recorded then. A store takes that if no
// worker has claimed them meanwhile (rule 13). claims are those of all events of the call, in their order.
func (p *Processor) abandon(t *task, done <-chan error, claims []dedup.Completion) {
	access, attrs := t.access, taskAttrs(t) // of the first event of a call
	p.abandonedNow.Add(1)
	p.abandoned.Go(func() {
		err := <-done
		p.abandonedNow.Add(-1)
		good := lateSuccesses(err, claims)
		if len(good) == 0 {
			p.log.Info("a handler that was left behind has ended", append(attrs, "error", p.errorText(err))...)
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

// lateSuccesses returns the completions of the events that succeeded, by the error of their call: all without an error, and those
// that a BatchError does not name.
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

// lateFor is how long it is tried to record the success of a handler that was left behind. [Processor.Close] cuts it short.
const lateFor = 10 * time.Second

// completeLate records late successes and returns how many were recorded. The claims of the others were lost, or err says why there is no
// answer.
func (p *Processor) completeLate(access *storeAccess, done []dedup.Completion) (recorded int, err error) {
	until := time.Now().Add(lateFor)
	for try := 1; ; try++ {
		err = within(context.Background(), abandonAfter, func(ctx context.Context) error { return access.store.Complete(ctx, done) })
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

// start runs the handler and sends what it came to, be it an error, a panic or runtime.Goexit, to done, which has room.
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

// timedRun runs the handler on one event and tells what came of it.
func (p *Processor) timedRun(ctx context.Context, t *task, tx any) outcome {
	began := time.Now()
	t.retryPaid = false
	o := p.run(ctx, t, []Input{t.input()}, tx, t.completions)
	if named := namedIn(o.err, 1); named != nil { // a batch handler that names its only event means its error
		o = outcome{}
		if err := named[0]; err != nil {
			o = classify(context.Cause(ctx), err)
		}
	}
	if t.claimed && !t.route.Batch {
		t.route.ahead.Note(time.Since(began))
	}
	p.notifyHandled(ctx, t, time.Since(began), o.err)
	return o
}

// callMany makes a call of a handler and tells of each of its events.
func (p *Processor) callMany(ctx context.Context, c *handlerCall, tx any) outcomes {
	began := time.Now()
	in := make([]Input, len(c.tasks))
	for i, t := range c.tasks {
		in[i], t.retryPaid = t.input(), false
	}
	o := newOutcomes(ctx, p.run(ctx, c.tasks[0], in, tx, c.completions), c.tasks)
	took := time.Since(began)
	for _, t := range c.tasks {
		p.notifyHandled(ctx, t, took, o.of(t).err)
	}
	return o
}

func (t *task) input() Input {
	data := t.data
	if t.dataUsed { // by a run that may have changed it, or is still at it
		data = t.again()
	}
	t.dataUsed = true
	return Input{
		Key: t.request.Key, Name: t.route.Name, Fence: t.claim.Fence,
		ID: t.id, Attempt: t.attempt, Uncertain: t.uncertain, Message: t.message, Payload: data,
	}
}

// again decodes once more what was decoded before. Should that fail now, what is there must do.
func (t *task) again() any {
	data := t.data
	_ = guard(func() error {
		fresh, err := t.route.Decode(t.message)
		if err == nil {
			data = fresh
		}
		return err
	})
	return data
}
