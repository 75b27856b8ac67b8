package idem

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/idem-go/idem/dedup"
)

// ledger is a store with what the engine keeps about it.
type ledger struct {
	store  dedup.Store
	keeper *dedup.Keeper
	health
}

// health knows whether something the engine depends on is there, so that its going and coming are told once each and not once per
// event.
type health struct {
	name   string
	isDown atomic.Bool // quick look without the lock
	mu     sync.Mutex
	since  time.Time // down since
	back   time.Time // last return
}

// down notes a failure of a call that began at the given time. One that began before the last return says nothing new.
func (h *health) down(ctx context.Context, p *Processor, began time.Time, err error) {
	h.mu.Lock()
	first := !began.Before(h.back) && h.isDown.CompareAndSwap(false, true)
	if first {
		h.since = time.Now()
	}
	h.mu.Unlock()
	if !first {
		return
	}
	p.log.WarnContext(ctx, h.name+" unavailable, pausing", "error", cutText(err.Error(), maxErrorText))
	for _, o := range p.obs.ledger {
		o.ObserveLedger(ctx, LedgerEvent{Name: h.name, Down: true, Err: err})
	}
}

func (h *health) up(ctx context.Context, p *Processor) {
	if !h.isDown.Load() {
		return
	}
	h.mu.Lock()
	first, away := h.isDown.CompareAndSwap(true, false), time.Since(h.since)
	if first {
		h.back = time.Now()
	}
	h.mu.Unlock()
	if !first {
		return
	}
	p.log.InfoContext(ctx, h.name+" is back", "after", away.Round(time.Millisecond))
	for _, o := range p.obs.ledger {
		o.ObserveLedger(ctx, LedgerEvent{Name: h.name, For: away})
	}
}

// patience is what is left of the time that one call of HandleBatch may spend waiting for others.
type patience struct{ left time.Duration }

// wait sleeps for d. It returns a WaitError with the reason if patience has run out, and the cause of ctx if that ended.
func (pat *patience) wait(ctx context.Context, d time.Duration, reason error) error {
	if pat.left != Forever {
		if pat.left <= 0 && ctx.Err() == nil {
			return &WaitError{Err: reason, After: d}
		}
		d = min(d, pat.left)
		pat.left -= d
	}
	return sleep(ctx, d)
}

func sleep(ctx context.Context, d time.Duration) error {
	if ctx.Err() != nil {
		return stopCause(ctx)
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return stopCause(ctx)
	}
}

// outageWait is how long to wait before something that is down is asked again: up to 2 s, so that work resumes soon
// after its return.
func outageWait(try int) time.Duration {
	return jitter(ceiling(100*time.Millisecond, 2*time.Second, try))
}

// claim asks until the ledger answers. Whatever the error is, there is no answer: nothing runs and nothing is marked
// . The token stays the same, so that a claim whose reply was lost is recognised.
func (p *Processor) claim(ctx context.Context, d *delivery, t dedup.Token) (a dedup.Answer, since time.Time, err error) {
	var answers [1]dedup.Answer
	reqs := [1]dedup.Request{d.req}
	asked := time.Now()
	defer func() { d.excuse(time.Since(asked)) }()
	for try := 1; ; try++ {
		since = time.Now()
		err := p.bounded(ctx, p.cfg.Lease, func(ctx context.Context) error {
			return d.ledger.store.Claim(ctx, t, p.cfg.Lease, reqs[:], answers[:])
		})
		p.observeClaim(ctx, d, answers[0].Verdict, since, err)
		if err == nil && answers[0].Verdict == 0 {
			err = errors.New("store returned no verdict")
		}
		if err == nil {
			d.ledger.up(ctx, p)
			return answers[0], since, nil
		}
		if ctx.Err() == nil {
			d.ledger.down(ctx, p, since, err)
		}
		if stop := d.pat.wait(ctx, outageWait(try), fmt.Errorf("%w: claim: %w", dedup.ErrUnavailable, err)); stop != nil {
			p.releaseGhost(ctx, d, t)
			return dedup.Answer{}, since, stop
		}
	}
}

// bounded calls fn with a context that ends after at most limit.
func (p *Processor) bounded(ctx context.Context, limit time.Duration, fn func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return fn(ctx)
}

// releaseGhost gives back a claim that may have been granted although no answer came, before the delivery is left to
// others: they would wait for its lease otherwise, and under DeadLetter give up an event that never ran (rule 32). If the
// ledger is down for longer than a stop allows, the claim stays a ghost until its lease ends.
func (p *Processor) releaseGhost(ctx context.Context, d *delivery, t dedup.Token) {
	d.claim = dedup.Claim{Key: d.req.Key, Token: t}
	p.giveBack(ctx, d, dedup.Unstarted)
}

// giveBack releases the claim. It works on after a stop, for a moment; a failure leaves the claim to its lease.
func (p *Processor) giveBack(ctx context.Context, d *delivery, o dedup.Outcome) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), min(abandonAfter, p.cfg.Lease))
	defer cancel()
	for try := 1; ; try++ {
		began := time.Now()
		err := d.ledger.store.Release(ctx, []dedup.Release{{Claim: d.claim, Outcome: o, Retention: d.route.retention}})
		if err == nil || errors.Is(err, dedup.ErrClaimLost) {
			return
		}
		if sleep(ctx, outageWait(try)) != nil {
			d.ledger.down(ctx, p, began, err)
			return
		}
	}
}

// complete records the end of an event until the ledger answers, since an effect that happened must be remembered. It
// reports whether the claim was lost. It gives up when hard, the context of work that was begun, has ended, or after
// the longer of a lease and the patience of the call.
func (p *Processor) complete(hard context.Context, d *delivery, c dedup.Completion) (lost bool, err error) {
	c.Claim, c.Retention = d.claim, d.route.retention
	pat := patience{left: max(d.pat.left, p.cfg.Lease)}
	for try := 1; ; try++ {
		began := time.Now()
		err := p.bounded(context.WithoutCancel(hard), max(abandonAfter, p.cfg.Lease/2), func(ctx context.Context) error {
			return d.ledger.keeper.Complete(ctx, c)
		})
		switch {
		case err == nil:
			d.ledger.up(hard, p)
			return false, nil
		case errors.Is(err, dedup.ErrClaimLost):
			return true, nil
		}
		d.ledger.down(hard, p, began, err)
		if stop := pat.wait(hard, outageWait(try), fmt.Errorf("%w: complete: %w", dedup.ErrUnavailable, err)); stop != nil {
			return false, fmt.Errorf("event %s took effect, but this could not be recorded: %w", d.req.Key, stop)
		}
	}
}

// probe reports whether the ledger can be reached, as far as it can say.
func (p *Processor) probe(ctx context.Context, d *delivery) bool {
	pinger, ok := d.ledger.store.(dedup.Pinger)
	return !ok || p.bounded(ctx, 2*time.Second, pinger.Ping) == nil
}
