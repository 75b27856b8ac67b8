package engine

import (
	"context"
	"fmt"
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/idemtype"
	"github.com/idem-go/idem/observe"
)

// settleAnswer acts on a decision that runs no handler.
func (p *Processor) settleAnswer(
	ctx context.Context, t *task, a dedup.Answer, dec decision,
) (step, error) {
	t.permit.End(false)
	if dec.queue { // an earlier owner of the partition may have deferred it just now
		if err := p.deferredPartitions.refresh(ctx, p, t); err != nil {
			return step{outage: err}, nil //nolint:nilerr // it is waited for
		}
	}
	if dec.end != endNone {
		t.end = dec.end
	}
	switch dec.step {
	case stepSkip:
		p.notifyKnown(ctx, t, a)
		return step{settled: true}, nil
	case stepBusy:
		return step{}, p.waitBusy(ctx, t, a)
	case stepAskAgain:
		t.request.Fingerprint = dedup.Fingerprint{}
		return step{}, nil
	case stepDeadLetterCopy:
		s, err := p.deadLetterOnly(ctx, t, dec.class, dec.err)
		if err == nil && dec.class == idemtype.ClassConflict {
			p.notifyConflict(ctx, t, a, true)
		}
		return s, err
	case stepStop:
		return step{}, fmt.Errorf("event %s of %s: %w", t.request.Key,
			t.message.Time.UTC().Format(time.RFC3339), dec.err)
	case stepUnanswered, stepRun, stepRunIgnored, stepRefuse:
	}
	return step{outage: fmt.Errorf("%w: unexpected verdict %s", dedup.ErrUnavailable,
		a.Verdict)}, nil
}

// deadLetterConflict dead-letters a copy with a different content.
func (p *Processor) deadLetterConflict(ctx context.Context, t *task, a dedup.Answer) (step, error) {
	return p.settleAnswer(ctx, t, a, copyDeadLetter(idemtype.ClassConflict, conflictError(a), endNone))
}

// deadLetterOnly publishes a dead letter of this copy. The record of the event in the store stays
// as it is.
func (p *Processor) deadLetterOnly(
	ctx context.Context, t *task, class idemtype.Class, err error,
) (step, error) {
	o := outcome{class: class, err: err}
	f := p.failure(t, o)
	f.Attempts = 0
	if err := p.publishDeadLetter(ctx, t.budget, f); err != nil {
		return step{}, err
	}
	t.settlement = observe.SettledDeadLetter
	return step{settled: true}, nil
}

// waitBusy waits while another worker holds the claim. It holds no claim itself (rule 9). The event
// is not settled, because the other worker may still fail.
func (p *Processor) waitBusy(ctx context.Context, t *task, a dedup.Answer) error {
	now := time.Now()
	if t.busySince.IsZero() {
		t.busySince = now
	}
	if since := now.Sub(t.busySince); since > 2*p.cfg.Lease && !t.busyNotified {
		t.busyNotified = true
		p.log.WarnContext(ctx, "event is held elsewhere for long",
			append(p.taskAttrs(t), "for", since.Round(time.Millisecond))...)
		for _, o := range p.obs.stall {
			o.ObserveStall(ctx, observe.StallEvent{
				Group: p.cfg.Group, Message: t.message, Key: t.request.Key, For: since, Busy: true,
			})
		}
	}
	// The end of the lease is known. The other worker may finish earlier, so ask at least about
	// once a second.
	pause := min(max(a.Wait, 50*time.Millisecond), time.Second)
	err := t.budget.wait(ctx, pause-pause/4+jitter(pause/2), idemtype.ErrBusy)
	t.excludeWait(time.Since(now))
	return err
}
