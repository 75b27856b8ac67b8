package engine

import (
	"context"
	"fmt"

	"github.com/idem-go/idem/dedup"
)

// This file settles the former key of an event. An event has a former key if its identity has
// changed, with Tenant for example. A copy of such an event has the former key, and the store waits
// for the copy under that key.

// settleFormer settles the former key of an event that is settled under the present key.
func (p *Processor) settleFormer(ctx context.Context, d *task) error {
	key, ok := d.formerKey()
	operator, can := d.access.store.(dedup.Operator)
	if !ok || !can {
		return nil
	}
	what := fmt.Sprintf(
		"event %s had the key %s before, which could not be settled", d.request.Key, key,
	)
	return d.access.repeat(
		ctx, d.budget, what,
		func(ctx context.Context) error { return endFormer(ctx, operator, d, key) },
	)
}

// endFormer discards a key that waits for this copy. A key that waits for another copy, or that is
// unknown, stays unchanged.
func endFormer(ctx context.Context, operator dedup.Operator, d *task, key dedup.Key) error {
	records, err := operator.Inspect(ctx, key)
	if err != nil {
		return err
	}
	for _, r := range records {
		if r.State == dedup.Waiting && r.Position == d.copied.Position {
			became := "goes on as"
			if d.ending == endDone {
				became = "handled as"
			}
			return operator.Discard(
				ctx, key, d.route.Retention,
				fmt.Sprintf("its identity has changed, %s %s", became, d.request.Key),
			)
		}
	}
	return nil
}
