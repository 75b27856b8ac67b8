package engine

import (
	"context"
	"fmt"
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/idemtype"
	"github.com/idem-go/idem/internal/throttle"
)

// afford waits until the event may be run again.
func (t *task) afford(ctx context.Context) error {
	wait := t.route.budget.Spend()
	if wait <= 0 {
		return nil
	}
	tooMany := fmt.Errorf("%w: too many retries of %q", dedup.ErrUnavailable, t.route.Type)
	if t.budget.left != idemtype.Forever && wait > t.budget.left {
		if t.request.Position.Retry > 0 { // it will ask again
			t.route.budget.Refund()
		}
		return &idemtype.WaitError{Err: tooMany, After: wait}
	}
	began := time.Now()
	defer func() { t.excludeWait(time.Since(began)) }()
	return t.budget.wait(ctx, wait, tooMany)
}

// limit is how many events may share a transaction with this one.
func (t *task) limit() *throttle.AdaptiveLimit {
	if t.deferred != nil {
		return &t.route.deferredLimit
	}
	return &t.route.txLimit
}
