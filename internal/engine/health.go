package engine

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/idemtype"
	"github.com/idem-go/idem/observe"
)

// health is the state of a dependency: a store or the producer. Each outage and each return is
// reported once, not once per event.
type health struct {
	name     string
	report   *reporter
	isDown   atomic.Bool // read without the lock
	doubtful atomic.Bool // first is set; read without the lock
	mu       sync.Mutex
	since    time.Time // begin of the outage
	back     time.Time // last return
	logged   time.Time // last log line about a missing set-up
	absent   bool      // the last error was an outage, not a missing set-up or an odd answer
	probed   time.Time // the last probe beside events that run without the store
	met      time.Time // last failure in the outage, but for looks; zero: only looks have met it
	first    time.Time // begin of the first outage since the last change; zero: none
}

// setupEvery is the interval of log lines about a store that is not set up. Only a person can
// change that.
const setupEvery = time.Minute

// down notes the failure of a call that began at the given time. A call that began before the last
// return has no effect.
func (h *health) down(ctx context.Context, began time.Time, err error) {
	h.failed(ctx, began, err, callAsk)
}

// failed is down for a kind of calls.
func (h *health) failed(ctx context.Context, began time.Time, err error, kind callKind) {
	r := h.report
	var setup *dedup.SetupError
	missing := errors.As(err, &setup)
	h.mu.Lock()
	late := began.Before(h.back)
	h.absent = errors.Is(err, dedup.ErrUnavailable) && !missing
	first := !late && h.isDown.CompareAndSwap(false, true)
	if first {
		h.since, h.logged, h.met = time.Now(), time.Time{}, time.Time{}
		if h.first.IsZero() {
			h.first = h.since
			h.doubtful.Store(true)
		}
	}
	if !late && kind != callLook {
		h.met = time.Now()
	}
	downFor := time.Since(h.since)
	again := missing && !late &&
		(first || h.logged.IsZero() || time.Since(h.logged) >= setupEvery)
	if again {
		h.logged = time.Now()
	}
	h.mu.Unlock()
	if again && !first {
		r.log.WarnContext(ctx, h.name+" is still not set up, pausing",
			"for", downFor.Round(time.Second), "error", r.errorText(err))
	}
	if !first {
		return
	}
	r.log.WarnContext(ctx, h.name+" unavailable, pausing", "error", r.errorText(err))
	h.notify(ctx, observe.StoreEvent{Down: true, Err: err})
}

// up notes the success of a call that began at the given time. A call that began before the outage
// has no effect: a server that stops may still finish some of its work.
func (h *health) up(ctx context.Context, began time.Time) { h.succeeded(ctx, began, callChange) }

// callKind is the kind of a call of a store.
type callKind int

const (
	// callLook only reads. A read-only store answers looks too, so a look ends only an outage that no
	// other call has met for a while. A partition without traffic makes only looks.
	callLook callKind = iota
	// callAsk has changed nothing: a claim of known events, for example. It ends an outage.
	callAsk
	// callChange has changed the store, and ends an outage.
	callChange
)

// succeeded is up for a kind of calls.
func (h *health) succeeded(ctx context.Context, began time.Time, kind callKind) {
	if kind == callChange && h.doubtful.Load() {
		h.changed(began)
	}
	if !h.isDown.Load() {
		return
	}
	h.mu.Lock()
	ends := !began.Before(h.since) &&
		(kind != callLook || h.met.IsZero() || began.Sub(h.met) >= h.lookAfter())
	first := ends && h.isDown.CompareAndSwap(true, false)
	downFor := time.Since(h.since)
	if first {
		h.back = time.Now()
	}
	h.mu.Unlock()
	if !first {
		return
	}
	h.report.log.InfoContext(ctx, h.name+" is back", "after", downFor.Round(time.Millisecond))
	h.notify(ctx, observe.StoreEvent{For: downFor})
}

// changed notes that the store took a change that began after the outages before.
func (h *health) changed(began time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !began.Before(h.since) {
		h.first = time.Time{}
		h.doubtful.Store(false)
	}
}

// lookAfter is the time after the last failure of other calls. By then a lane that still waits for
// the store has failed again, as a rule.
func (h *health) lookAfter() time.Duration { return max(time.Minute, 2*h.report.lease) }

// close reports the end of an outage that lasts until the processor is closed.
func (h *health) close() {
	h.mu.Lock()
	was, downFor := h.isDown.CompareAndSwap(true, false), time.Since(h.since)
	h.mu.Unlock()
	if was {
		h.notify(context.Background(), observe.StoreEvent{Ended: true, For: downFor})
	}
}

func (h *health) notify(ctx context.Context, e observe.StoreEvent) {
	e.Group, e.Name = h.report.group, h.name
	for _, o := range h.report.obs.Store {
		o.ObserveStore(ctx, e)
	}
}

// insist repeats ask until the call succeeds or its error is final. ctx and the wait budget end the
// repetitions. A final error is returned unchanged. An error that matches [idemtype.ErrBusy] is no
// outage.
func (h *health) insist(
	ctx context.Context, budget *waitBudget, what string, ask func() (final bool, err error),
) error {
	return h.insistOn(ctx, budget, callChange, what, ask)
}

// insistOn is insist for a kind of calls.
func (h *health) insistOn(
	ctx context.Context, budget *waitBudget, kind callKind, what string,
	ask func() (final bool, err error),
) error {
	for try := 1; ; try++ {
		began := time.Now()
		final, err := ask()
		switch {
		case err == nil:
			h.succeeded(ctx, began, kind)
			return nil
		case final:
			return err
		}
		if stop := h.pause(ctx, budget, kind, what, try, began, err); stop != nil {
			return stop
		}
	}
}

// pause waits before a failed call is repeated. An error is the reason not to repeat the call.
func (h *health) pause(
	ctx context.Context, budget *waitBudget, kind callKind, what string, try int, began time.Time,
	err error,
) error {
	if !errors.Is(err, idemtype.ErrBusy) {
		h.failed(ctx, began, err, kind)
	}
	return budget.wait(ctx, outageWait(try),
		fmt.Errorf("%w: %s: %w", dedup.ErrUnavailable, what, err))
}
