package engine

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/observe"
)

// health knows whether something the engine depends on is there, so that its going and coming are told once each and not once per
// event.
type health struct {
	name   string
	isDown atomic.Bool // quick look without the lock
	mu     sync.Mutex
	since  time.Time // down since
	back   time.Time // last return
	logged time.Time // when this outage was last told to be of a set-up
}

// setupEvery is how often the log repeats that a store is not set up: only a person mends it.
const setupEvery = time.Minute

// down notes a failure of a call that began at the given time. One that began before the last return says nothing new.
func (h *health) down(ctx context.Context, p *Processor, began time.Time, err error) {
	var setup *dedup.SetupError
	h.mu.Lock()
	late := began.Before(h.back)
	first := !late && h.isDown.CompareAndSwap(false, true)
	if first {
		h.since, h.logged = time.Now(), time.Time{}
	}
	downFor := time.Since(h.since)
	again := errors.As(err, &setup) && !late && (first || h.logged.IsZero() || time.Since(h.logged) >= setupEvery)
	if again {
		h.logged = time.Now()
	}
	h.mu.Unlock()
	if again && !first {
		p.log.WarnContext(ctx, h.name+" is still not set up, pausing", "for", downFor.Round(time.Second), "error", p.errorText(err))
	}
	if !first {
		return
	}
	p.log.WarnContext(ctx, h.name+" unavailable, pausing", "error", p.errorText(err))
	for _, o := range p.obs.store {
		o.ObserveStore(ctx, observe.StoreEvent{Group: p.cfg.Group, Name: h.name, Down: true, Err: err})
	}
}

// up notes a success of a call that began at the given time. One that began before the outage says nothing of its end: a
// server that goes down lets some of its work finish.
func (h *health) up(ctx context.Context, p *Processor, began time.Time) {
	if !h.isDown.Load() {
		return
	}
	h.mu.Lock()
	first, downFor := !began.Before(h.since) && h.isDown.CompareAndSwap(true, false), time.Since(h.since)
	if first {
		h.back = time.Now()
	}
	h.mu.Unlock()
	if !first {
		return
	}
	p.log.InfoContext(ctx, h.name+" is back", "after", downFor.Round(time.Millisecond))
	for _, o := range p.obs.store {
		o.ObserveStore(ctx, observe.StoreEvent{Group: p.cfg.Group, Name: h.name, For: downFor})
	}
}

// end tells those who watch that an outage has nobody any longer who suffers from it, so that nothing stays down for ever.
func (h *health) end(p *Processor) {
	h.mu.Lock()
	was, downFor := h.isDown.CompareAndSwap(true, false), time.Since(h.since)
	h.mu.Unlock()
	if !was {
		return
	}
	for _, o := range p.obs.store {
		o.ObserveStore(context.Background(), observe.StoreEvent{Group: p.cfg.Group, Name: h.name, Ended: true, For: downFor})
	}
}
