package idem

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/idem-go/idem/dedup"
)

// budget bounds how often a handler is run again, in this process: when everything fails, trying all of it again keeps
// down what just tries to come back (T-07). There may be a burst of retries, then ten a second and one for every five
// successes. Who must wait longer for that than his back-off holds nothing, and it is not taken off the time his retries may
// take: an outage costs no event its tries.
type budget struct {
	mu    sync.Mutex
	spent float64 // retries, less what was earned since
	at    time.Time
}

const (
	budgetBurst  = 100
	budgetRate   = 10 // a second
	budgetEarned = 0.2
)

// earn notes successes.
func (b *budget) earn(n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.spent = max(0, b.spent-float64(n)*budgetEarned)
}

// spend takes a retry and returns how long it must wait.
func (b *budget) spend() time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	if !b.at.IsZero() {
		b.spent = max(0, b.spent-now.Sub(b.at).Seconds()*budgetRate)
	}
	b.at = now
	b.spent++
	if b.spent <= budgetBurst {
		return 0
	}
	return time.Duration((b.spent - budgetBurst) / budgetRate * float64(time.Second))
}

// giveBack returns a retry that was not made.
func (b *budget) giveBack() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.spent = max(0, b.spent-1)
}

// afford pays for the delayed copies of a run. The run ends before the first one that must wait: that one pays by itself, in settle.
func (r *eventGroup) afford() {
	if len(r.tasks) == 1 {
		return
	}
	for i, e := range r.tasks {
		if e.request.Position.Retry == 0 || e.retryPaid {
			continue
		}
		if e.route.budget.spend() > 0 {
			e.route.budget.giveBack()
			r.cut(max(i, 1))
			return
		}
		e.retryPaid = true
	}
}

// afford waits until the event may be run again.
func (p *Processor) afford(ctx context.Context, d *task) error {
	wait := d.route.budget.spend()
	if wait <= 0 {
		return nil
	}
	tooMany := fmt.Errorf("%w: too many retries of %q", dedup.ErrUnavailable, d.route.typ)
	if d.budget.left != Forever && wait > d.budget.left {
		if d.request.Position.Retry > 0 { // it will ask again
			d.route.budget.giveBack()
		}
		return &WaitError{Err: tooMany, After: wait}
	}
	began := time.Now()
	defer func() { d.excludeWait(time.Since(began)) }()
	return d.budget.wait(ctx, wait, tooMany)
}
