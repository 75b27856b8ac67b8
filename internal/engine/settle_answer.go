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
) (attemptResult, error) {
	t.endTurn(false)
	if dec.queue { // an earlier owner of the partition may have deferred the event just now
		outage, stop := p.deferredPartitionOf(t).refresh(ctx, t.budget, p.orderKeyOf(t))
		if outage != nil || stop != nil {
			return attemptResult{outage: outage}, stop
		}
	}
	if dec.ending != endNone {
		t.ending = dec.ending
	}
	switch dec.step {
	case stepSkip:
		p.notifyKnown(ctx, t, a)
		return attemptResult{settled: true}, nil
	case stepBusy:
		return attemptResult{}, p.waitBusy(ctx, t, a)
	case stepAskAgain:
		t.request.Fingerprint, t.request.SecondFingerprint = dedup.Fingerprint{}, dedup.Fingerprint{}
		return attemptResult{}, nil
	case stepDeadLetterCopy:
		if dec.class == idemtype.ClassConflict {
			return p.deadLetterConflict(ctx, t, a)
		}
		return p.deadLetterOnly(ctx, t, dec.class, dec.err)
	case stepStop:
		return attemptResult{}, fmt.Errorf("event %s of %s: %w", t.request.Key,
			t.message.Time.UTC().Format(time.RFC3339), dec.err)
	case stepUnanswered, stepRun, stepRunIgnored, stepRefuse:
	}
	return attemptResult{outage: fmt.Errorf("%w: unexpected verdict %s", dedup.ErrUnavailable,
		a.Verdict)}, nil
}

// waitBusy waits while another worker holds the claim. The waiting lane holds no claim (rule 9).
// The event is not settled, because the other worker may still fail.
func (p *Processor) waitBusy(ctx context.Context, t *task, a dedup.Answer) error {
	now := time.Now()
	if t.busySince.IsZero() {
		t.busySince = now
	}
	if since := now.Sub(t.busySince); since > 2*p.cfg.Lease && !t.busyNotified {
		t.busyNotified = true
		p.log.WarnContext(ctx, "event is held elsewhere for long",
			append(taskAttrs(t), "for", since.Round(time.Millisecond))...)
		for _, o := range p.obs.Stall {
			o.ObserveStall(ctx, observe.StallEvent{
				Group: p.cfg.Group, Message: t.message, Key: t.request.Key, For: since, Busy: true,
			})
		}
	}
	// The end of the lease is known. The other worker may finish earlier, so the pause is about a
	// second at most.
	pause := min(max(a.Wait, 50*time.Millisecond), time.Second)
	err := t.budget.wait(ctx, pause-pause/4+jitter(pause/2), idemtype.ErrBusy)
	t.excludeWait(time.Since(now))
	return err
}
