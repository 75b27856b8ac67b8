package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/idem-go/idem/idemtype"
)

// waitBudget is the remaining time that one call of HandleBatch may wait for others.
type waitBudget struct {
	left  time.Duration
	timer *time.Timer // for the time-outs of handler calls, which follow one another
}

// callTimer returns a timer that fires after timeout. The caller stops the timer before the next
// call of callTimer.
func (budget *waitBudget) callTimer(timeout time.Duration) *time.Timer {
	if budget.timer == nil {
		budget.timer = time.NewTimer(timeout)
	} else {
		budget.timer.Reset(timeout)
	}
	return budget.timer
}

// wait sleeps for d. If the budget is used up, the error is a WaitError with the reason. If ctx
// ended, the error is the cause of ctx.
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

// sleepUntil is sleep until a time, which may have passed.
func sleepUntil(ctx context.Context, t time.Time) error { return sleep(ctx, time.Until(t)) }

// outageWait returns the pause before a failed dependency is tried again. Pauses grow to 2 s, so
// that work resumes soon after an outage.
func outageWait(try int) time.Duration {
	return jitter(ceiling(100*time.Millisecond, 2*time.Second, try))
}

// await waits for a signal within the budget. The errors are those of wait.
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

// acquireSlot waits for a place in slots within the budget. The errors are those of await.
func (budget *waitBudget) acquireSlot(
	ctx context.Context, slots chan<- struct{}, reason error,
) error {
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

// expired returns a channel that fires when the wait budget is spent. stop subtracts the used time
// from the budget.
func (budget *waitBudget) expired() (out <-chan time.Time, stop func()) {
	if budget.left == idemtype.Forever {
		return nil, func() {}
	}
	began := time.Now()
	timer := time.NewTimer(max(budget.left, 0))
	return timer.C, func() {
		timer.Stop()
		budget.spend(began)
	}
}

// spend subtracts the time of a wait from the budget.
func (budget *waitBudget) spend(began time.Time) {
	if budget.left != idemtype.Forever {
		budget.left -= min(time.Since(began), budget.left)
	}
}

// passed reports whether t lies in the past, by the monotonic or the wall clock (rule 49).
func passed(t time.Time) bool {
	now := time.Now()
	return !now.Before(t) || !now.Round(0).Before(t.Round(0))
}

// within calls fn with a context that ends after limit at the latest.
func within(ctx context.Context, limit time.Duration, fn func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return fn(ctx)
}

// Seat implements [throttle.Waiter].
func (budget *waitBudget) Seat(ctx context.Context, slots chan<- struct{}, reason string) error {
	return budget.acquireSlot(ctx, slots, fmt.Errorf("%w: %s", idemtype.ErrBusy, reason))
}

// Pause implements [throttle.Waiter]. A wait that is longer than the budget does not begin.
func (budget *waitBudget) Pause(
	ctx context.Context, d time.Duration, wake <-chan struct{}, reason string,
) error {
	if budget.left != idemtype.Forever && d > budget.left {
		return &idemtype.WaitError{
			Err: fmt.Errorf("%w: %s", idemtype.ErrBusy, reason), After: d,
		}
	}
	if ctx.Err() != nil {
		return stopCause(ctx)
	}
	defer budget.spend(time.Now())
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-wake:
		return nil
	case <-ctx.Done():
		return stopCause(ctx)
	}
}

// stopCause returns the reason for the end of ctx. The result matches ErrPartitionLost or
// ErrStopping, so that no error of a handler looks like a stop.
func stopCause(ctx context.Context) error {
	cause := context.Cause(ctx)
	if errors.Is(cause, idemtype.ErrPartitionLost) || errors.Is(cause, idemtype.ErrStopping) {
		return cause
	}
	return errors.Join(idemtype.ErrStopping, cause)
}

// stopCauseOf returns the cause if ctx has ended, else nil.
func stopCauseOf(ctx context.Context) error {
	if ctx.Err() == nil {
		return nil
	}
	return stopCause(ctx)
}

// abandonAfter is the time between the cancellation of a handler's context by a stop and the
// abandonment of that handler.
const abandonAfter = 2 * time.Second

// txSlack is the time that a transaction may take beside the handler: to begin, to wait for a copy,
// to commit.
const txSlack = 10 * time.Second
