package engine

import (
	"context"
	"fmt"
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/idemtype"
)

// countStart records the start of a run, for the first events of a newly assigned partition. A
// transaction that dies with its process leaves no other trace (rule 18).
// starts is zero if the start is not watched.
func (p *Processor) countStart(
	ctx context.Context, t *task,
) (starts uint32, crashed, err error) {
	counter := t.access.counter
	if counter == nil || !p.guarded(t.message) {
		return 0, nil, nil
	}
	began := time.Now()
	err = within(ctx, p.cfg.Lease, func(ctx context.Context) (err error) {
		starts, err = counter.CountStart(ctx, t.request.Key, t.request.Origin)
		return err
	})
	if err != nil {
		if ctx.Err() == nil {
			t.access.down(ctx, began, err)
		}
		return 0, nil, fmt.Errorf("%w: count start: %w", dedup.ErrUnavailable, err)
	}
	if starts > maxStarts {
		t.attempt = t.failures + int(starts) - 1
		return 0, fmt.Errorf("%d runs were begun and none came to an end", starts-1), nil
	}
	return starts, nil, nil
}

// clearStarts forgets the starts of an event after the end of a run. After a failure, the next end
// clears them.
func (p *Processor) clearStarts(ctx context.Context, t *task) {
	counter := t.access.counter
	if counter == nil {
		return
	}
	_ = within(context.WithoutCancel(ctx), abandonAfter, func(ctx context.Context) error {
		return counter.ClearStarts(ctx, t.request.Key, t.request.Origin)
	})
}

// takeBackStart takes back the last of several starts: its run did not take place. The starts before
// it stay, because their runs have not ended. A store can only forget all starts and count again.
// If the store fails in between, a later crash counts anew.
func (p *Processor) takeBackStart(ctx context.Context, t *task, starts uint32) {
	counter := t.access.counter
	_ = within(context.WithoutCancel(ctx), abandonAfter, func(ctx context.Context) error {
		err := counter.ClearStarts(ctx, t.request.Key, t.request.Origin)
		for ; err == nil && starts > 1; starts-- {
			_, err = counter.CountStart(ctx, t.request.Key, t.request.Origin)
		}
		return err
	})
}

func (p *Processor) guarded(m *idemtype.Message) bool { return p.crashGuard.count(m, 0) > 0 }

func (p *Processor) noteEnd(m *idemtype.Message) { p.crashGuard.count(m, 1) }
