package engine

import (
	"context"
	"fmt"
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/idemtype"
	"github.com/idem-go/idem/internal/throttle"
)

// afford pays for the delayed copies of a run. The run ends before the first one that must wait: that one pays by itself, in settle.
func (g *eventGroup) afford() {
	if len(g.tasks) == 1 {
		return
	}
	for i, e := range g.tasks {
		if e.request.Position.Retry == 0 || e.retryPaid {
			continue
		}
		if e.route.budget.Spend() > 0 {
			e.route.budget.Refund()
			g.cut(max(i, 1))
			return
		}
		e.retryPaid = true
	}
}

// afford waits until the event may be run again.
func (p *Processor) afford(ctx context.Context, d *task) error {
	wait := d.route.budget.Spend()
	if wait <= 0 {
		return nil
	}
	tooMany := fmt.Errorf("%w: too many retries of %q", dedup.ErrUnavailable, d.route.Type)
	if d.budget.left != idemtype.Forever && wait > d.budget.left {
		if d.request.Position.Retry > 0 { // it will ask again
			d.route.budget.Refund()
		}
		return &idemtype.WaitError{Err: tooMany, After: wait}
	}
	began := time.Now()
	defer func() { d.excludeWait(time.Since(began)) }()
	return d.budget.wait(ctx, wait, tooMany)
}

// limit is how many events may share a transaction with this one.
func (t *task) limit() *throttle.AdaptiveLimit {
	if t.deferred != nil {
		return &t.route.deferredLimit
	}
	return &t.route.txLimit
}
