package engine

import (
	"context"
	"errors"
	"runtime/debug"
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/idemtype"
)

// abandonAfter is how long a handler may go on after its context was cancelled for a stop, before it is left behind.
const abandonAfter = 2 * time.Second

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

// stopCauseOf returns the cause if ctx has ended, else nil.
func stopCauseOf(ctx context.Context) error {
	if ctx.Err() == nil {
		return nil
	}
	return stopCause(ctx)
}

// stopCause is why ctx ended, in a form that tells a stop from anything a handler does itself.
func stopCause(ctx context.Context) error {
	cause := context.Cause(ctx)
	if errors.Is(cause, idemtype.ErrPartitionLost) || errors.Is(cause, idemtype.ErrStopping) {
		return cause
	}
	return errors.Join(idemtype.ErrStopping, cause)
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
	access, attrs := t.access, p.taskAttrs(t) // of the first event of a call
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
		err = p.bounded(context.Background(), abandonAfter, func(ctx context.Context) error { return access.store.Complete(ctx, done) })
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

// panicked is the error for a handler that did not return: it panicked, or ended its goroutine (value is nil).
func panicked(value any) error {
	stack := debug.Stack()
	return &idemtype.PanicError{Value: value, Stack: stack[:min(len(stack), 4<<10)]}
}
