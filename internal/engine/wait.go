package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/idemtype"
)

// waitBudget is what is left of the time that one call of HandleBatch may spend waiting for others.
type waitBudget struct{ left time.Duration }

// wait sleeps for d. It returns a WaitError with the reason if the wait budget is spent, and the cause of ctx if that ended.
func (budget *waitBudget) wait(ctx context.Context, d time.Duration, reason error) error {
	if budget.left != idemtype.Forever {
		if budget.left <= 0 && ctx.Err() == nil {
			return &idemtype.WaitError{Err: reason, After: d}
		}
		d = min(d, budget.left)
		budget.left -= d
	}
	return sleep(ctx, d)
}

func sleep(ctx context.Context, d time.Duration) error {
	if ctx.Err() != nil {
		return stopCause(ctx)
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return stopCause(ctx)
	}
}

// outageWait is how long to wait before something that is down is asked again: up to 2 s, so that work resumes soon
// after its return.
func outageWait(try int) time.Duration {
	return jitter(ceiling(100*time.Millisecond, 2*time.Second, try))
}

// await waits for a signal, as long as the wait budget lasts. It returns a WaitError with the reason if that has run out, and
// the cause of ctx if that ended.
func (budget *waitBudget) await(ctx context.Context, signal <-chan struct{}, reason error) error {
	out, stop := budget.expired()
	defer stop()
	select {
	case <-signal:
		return nil
	case <-ctx.Done():
		return stopCause(ctx)
	case <-out:
		return &idemtype.WaitError{Err: reason, After: 50 * time.Millisecond}
	}
}

// acquireSlot waits for a place in slots in the same way.
func (budget *waitBudget) acquireSlot(ctx context.Context, slots chan<- struct{}, reason error) error {
	select {
	case slots <- struct{}{}:
		return nil
	default:
	}
	out, stop := budget.expired()
	defer stop()
	select {
	case slots <- struct{}{}:
		return nil
	case <-ctx.Done():
		return stopCause(ctx)
	case <-out:
		return &idemtype.WaitError{Err: reason, After: 50 * time.Millisecond}
	}
}

// expired fires when the wait budget is spent. stop takes the time off that was used.
func (budget *waitBudget) expired() (out <-chan time.Time, stop func()) {
	if budget.left == idemtype.Forever {
		return nil, func() {}
	}
	began := time.Now()
	timer := time.NewTimer(max(budget.left, 0))
	return timer.C, func() {
		timer.Stop()
		budget.left -= min(time.Since(began), budget.left)
	}
}

// passed reports whether t lies in the past, by the monotonic or the wall clock (rule 49).
func passed(t time.Time) bool {
	now := time.Now()
	return !now.Before(t) || !now.Round(0).Before(t.Round(0))
}

// bounded calls fn with a context that ends after at most limit.
func (p *Processor) bounded(ctx context.Context, limit time.Duration, fn func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return fn(ctx)
}

// insist asks until the answer is nil, or final, or the wait budget or ctx ends. A final error is returned as it is; [ErrBusy] says that
// the dependency h is there.
func (p *Processor) insist(ctx context.Context, budget *waitBudget, h *health, what string, ask func() (final bool, err error)) error {
	for try := 1; ; try++ {
		began := time.Now()
		final, err := ask()
		switch {
		case err == nil:
			h.up(ctx, p, began)
			return nil
		case final:
			return err
		}
		if stop := p.pause(ctx, budget, h, what, try, began, err); stop != nil {
			return stop
		}
	}
}

// pause waits before a question that failed is asked again. The error says why it is not to be asked again.
func (p *Processor) pause(ctx context.Context, budget *waitBudget, h *health, what string, try int, began time.Time, err error) error {
	if !errors.Is(err, idemtype.ErrBusy) {
		h.down(ctx, p, began, err)
	}
	return budget.wait(ctx, outageWait(try), fmt.Errorf("%w: %s: %w", dedup.ErrUnavailable, what, err))
}

// change repeats a change of a store until it succeeds.
func (p *Processor) change(ctx context.Context, budget *waitBudget, access *storeAccess, what string, fn func(context.Context) error) error {
	return p.insist(ctx, budget, &access.health, what, func() (bool, error) {
		return false, p.bounded(context.WithoutCancel(ctx), txSlack, fn)
	})
}

// Seat implements [throttle.Waiter].
func (budget *waitBudget) Seat(ctx context.Context, slots chan<- struct{}, reason string) error {
	return budget.acquireSlot(ctx, slots, fmt.Errorf("%w: %s", idemtype.ErrBusy, reason))
}

// Pause implements [throttle.Waiter]. A wait that is longer than the budget does not begin.
func (budget *waitBudget) Pause(ctx context.Context, d time.Duration, reason string) error {
	if budget.left != idemtype.Forever {
		if d > budget.left {
			return &idemtype.WaitError{Err: fmt.Errorf("%w: %s", idemtype.ErrBusy, reason), After: d}
		}
		budget.left -= d
	}
	return sleep(ctx, d)
}
