package engine

import (
	"context"

	"github.com/idem-go/idem/dedup"
)

// This file is shadow mode. The store records events as usual, and every event runs. An existing
// consumer starts in shadow mode. The mode ends when the store knows the events in the topics, and
// would skip only the expected ones.

// runIgnored runs an event that would have been skipped, without a claim. The retry policy applies
// to its failures.
func (p *Processor) runIgnored(
	ctx, hard context.Context, t *task, a dedup.Answer,
) (attemptResult, error) {
	if ctx.Err() != nil {
		return attemptResult{}, stopCause(ctx)
	}
	if !t.skipCounted { // once, however often the event fails
		t.skipCounted = true
		p.notifyKnown(ctx, t, a)
	}
	return p.runBare(ctx, hard, t)
}
