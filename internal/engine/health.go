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
	name   string
	report *reporter
	isDown atomic.Bool // read without the lock
	mu     sync.Mutex
	since  time.Time // begin of the outage
	back   time.Time // last return
	logged time.Time // last log line about a missing set-up
	absent bool      // the last error was an outage, not a missing set-up or an odd answer
	probed time.Time // the last probe beside events that run without the store
	looks  bool      // only looks for deferred events have met the outage
}

// setupEvery is the interval of log lines about a store that is not set up. Only a person can
// change that.
const setupEvery = time.Minute

// down notes the failure of a call that began at the given time. A call that began before the last
// return has no effect.
func (h *health) down(ctx context.Context, began time.Time, err error) {
	h.failed(ctx, began, err, false)
}

// lookFailed is down for a look for deferred events.
func (h *health) lookFailed(ctx context.Context, began time.Time, err error) {
	h.failed(ctx, began, err, true)
}

func (h *health) failed(ctx context.Context, began time.Time, err error, look bool) {
	r := h.report
	var setup *dedup.SetupError
	missing := errors.As(err, &setup)
	h.mu.Lock()
	late := began.Before(h.back)
	h.absent = errors.Is(err, dedup.ErrUnavailable) && !missing
	first := !late && h.isDown.CompareAndSwap(false, true)
	if first {
		h.since, h.logged, h.looks = time.Now(), time.Time{}, true
	}
	if !late && !look {
		h.looks = false
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
func (h *health) up(ctx context.Context, began time.Time) { h.succeeded(ctx, began, false) }

// lookSucceeded is up for a look for deferred events. A store that is read-only answers a look too,
// so a look ends only an outage that no other call has met. A partition without traffic makes no
// other call.
func (h *health) lookSucceeded(ctx context.Context, began time.Time) {
	h.succeeded(ctx, began, true)
}

func (h *health) succeeded(ctx context.Context, began time.Time, look bool) {
	if !h.isDown.Load() {
		return
	}
	h.mu.Lock()
	ends := !began.Before(h.since) && (h.looks || !look)
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
	for try := 1; ; try++ {
		began := time.Now()
		final, err := ask()
		switch {
		case err == nil:
			h.up(ctx, began)
			return nil
		case final:
			return err
		}
		if stop := h.pause(ctx, budget, what, try, began, err); stop != nil {
			return stop
		}
	}
}

// pause waits before a failed call is repeated. An error is the reason not to repeat the call.
func (h *health) pause(
	ctx context.Context, budget *waitBudget, what string, try int, began time.Time, err error,
) error {
	if !errors.Is(err, idemtype.ErrBusy) {
		h.down(ctx, began, err)
	}
	return budget.wait(ctx, outageWait(try),
		fmt.Errorf("%w: %s: %w", dedup.ErrUnavailable, what, err))
}
