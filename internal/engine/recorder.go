package engine

import (
	"context"
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/idemtype"
	"github.com/idem-go/idem/observe"
)

// recorder records the end of an event and releases the claim. The implementations differ by
// backend.
type recorder interface {
	// record reports whether the event is settled. If settled is false and err is nil, the event is
	// claimed again.
	record(ctx context.Context, d *task, c dedup.Completion) (settled bool, err error)
	// release gives the claim back, if the event has one.
	release(ctx context.Context, d *task, as dedup.Outcome)
}

// underClaim records ends under the claim of the event.
type underClaim struct {
	p           *Processor
	stopRenewal func()
	collect     *[]dedup.Release // if not nil, the caller releases these claims together
}

func (u underClaim) record(ctx context.Context, t *task, c dedup.Completion) (bool, error) {
	lost, err := u.p.complete(ctx, t, c)
	return err == nil && !lost, err
}

func (u underClaim) release(ctx context.Context, t *task, as dedup.Outcome) {
	u.stopRenewal()
	r := dedup.Release{Claim: t.claim, Outcome: as, Retention: t.route.Retention}
	if u.collect != nil {
		*u.collect = append(*u.collect, r)
		return
	}
	t.access.release(ctx, []dedup.Release{r})
}

// inOwnTx records ends in a new transaction, because the transaction of the handler was rolled
// back.
type inOwnTx struct{ p *Processor }

func (i inOwnTx) record(ctx context.Context, t *task, c dedup.Completion) (bool, error) {
	return i.p.recordTx(ctx, t, c)
}

func (inOwnTx) release(context.Context, *task, dedup.Outcome) {}

// unrecorded is the recorder of events without a record in the store: those of NotFound,
// unprotected runs, and duplicates in shadow mode.
type unrecorded struct{}

func (unrecorded) record(
	context.Context, *task, dedup.Completion,
) (bool, error) {
	return true, nil
}

func (unrecorded) release(context.Context, *task, dedup.Outcome) {}

// recordTx records the end of an event after its copy or dead letter was published. The call is
// repeated until the store answers. If the store knows another end, that end stands. An event that
// was handled meanwhile is not dead, and blocks no queue (rule 4).
func (p *Processor) recordTx(
	ctx context.Context, t *task, c dedup.Completion,
) (settled bool, err error) {
	c.Claim, c.Retention = t.request.Held(
		dedup.Token{}, dedup.Answer{First: t.request.Origin},
	), t.route.Retention
	var a dedup.Answer
	err = t.access.insist(ctx, t.budget, "published, not yet recorded", func() (bool, error) {
		began := time.Now()
		err := within(context.WithoutCancel(ctx), txSlack, func(ctx context.Context) (err error) {
			a, err = t.claimTx(
				ctx, txSlack,
				func(any) ([]dedup.Completion, error) { return []dedup.Completion{c}, nil },
			)
			if err == nil && a.Verdict == dedup.Busy {
				err = idemtype.ErrBusy
			}
			return err
		})
		t.access.called(ctx, observe.VerbTransaction, 1, nil, began, err)
		return false, err
	})
	if err != nil {
		return false, err
	}
	switch a.Verdict {
	case dedup.Done:
		t.ending = endDone
	case dedup.Rescheduled:
		t.ending = endRescheduled
	default: // recorded, or dead already; a copy in conflict, or too old, has the dead letter
	}
	return true, nil
}

// complete records the end of one event. A lost claim is reported.
func (p *Processor) complete(
	hard context.Context, t *task, c dedup.Completion,
) (lost bool, err error) {
	c.Claim, c.Retention = t.claim, t.route.Retention
	if c.Dead != "" { // so that other copies differ from the one with the dead letter (rule 6)
		c.First = t.request.Origin
	}
	gone, err := t.access.completeAll(hard, t.budget, []dedup.Completion{c})
	if len(gone) > 0 {
		p.notifyLost(hard, t)
	}
	return len(gone) > 0, err
}
