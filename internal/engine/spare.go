package engine

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/idemtype"
	"github.com/idem-go/idem/observe"
)

// This file runs events of handlers with WhenUnavailable while their store is down.

// errWithoutStore ends a claim of an event that runs without the store next.
var errWithoutStore = fmt.Errorf("%w: the handler runs without the store", dedup.ErrUnavailable)

const (
	// defaultAfter is the default of UnavailablePolicy.After.
	defaultAfter = 5 * time.Second
	// probeEvery is the interval of claims that ask a store while other events run without it.
	probeEvery = 2 * time.Second
)

// allowance counts the events of a handler that ran without the store.
type allowance struct {
	first, last time.Time // begin of the first and the last run; zero: none
	used        int
}

// outage is an outage in which events may run without the store.
type outage struct {
	since time.Time // its begin
	// first is the begin of the first outage since the store last took a change. A store that is
	// read-only answers in between.
	first time.Time
}

// take asks for a run at now, in an outage. again is true for an event that failed without the
// store: it is counted already. The allowance begins anew in an outage after the store has taken a
// change, at least RunFor after the last event. So a store that comes and goes, or only reads, lets
// no more events run than one that stays away.
func (a allowance) take(
	p idemtype.UnavailablePolicy, o outage, now time.Time, again bool,
) (allowance, bool) {
	if now.Sub(o.since) < p.After {
		return a, false
	}
	if a.used > 0 && o.first.After(a.last) && now.Sub(a.last) >= p.RunFor {
		a, again = allowance{}, false
	}
	if a.used == 0 {
		a.first = now
	}
	if !again && a.used >= p.MaxEvents || now.Sub(a.first) >= p.RunFor {
		return a, false
	}
	a.last = now
	if !again {
		a.used++
	}
	return a, true
}

// spare is the state of a handler that may run while the store is down.
type spare struct {
	mu        sync.Mutex
	allowance allowance
	running   bool // the begin is logged
	spent     bool // the end of the allowance is logged
	events    int  // of this outage
}

// take asks the allowance for a run and logs its begin and its end. again is true for an event that
// is counted already.
func (s *spare) take(
	ctx context.Context, r *reporter, b *bound, o outage, again bool,
) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	var ok bool
	s.allowance, ok = s.allowance.take(b.Unavailable, o, time.Now(), again)
	switch {
	case ok:
		if !again {
			s.events++
		}
		if !s.running {
			s.running = true
			r.log.ErrorContext(
				ctx,
				b.access.name+" unavailable: events run without protection against duplicates",
				"handler", b.Name, "type", b.Type,
				"at_most", b.Unavailable.MaxEvents, "for", b.Unavailable.RunFor,
			)
		}
	default:
		s.noteEnd(ctx, r, b, o.since)
	}
	return ok
}

// allows reports whether take would allow a run, and logs the end of the allowance.
func (s *spare) allows(
	ctx context.Context, r *reporter, b *bound, o outage, again bool,
) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, ok := s.allowance.take(b.Unavailable, o, time.Now(), again)
	if !ok {
		s.noteEnd(ctx, r, b, o.since)
	}
	return ok
}

// noteEnd logs, once for each outage, that a bound is reached. s.mu is held.
func (s *spare) noteEnd(ctx context.Context, r *reporter, b *bound, since time.Time) {
	if !s.running || s.spent || time.Since(since) < b.Unavailable.After {
		return
	}
	s.spent = true
	r.log.ErrorContext(
		ctx,
		b.access.name+
			" unavailable: the bound of WhenUnavailable is reached, events wait for the store",
		"handler", b.Name, "type", b.Type, "events", s.events,
	)
}

// back notes that the store answers.
func (s *spare) back(ctx context.Context, r *reporter, b *bound) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.running {
		return
	}
	r.log.WarnContext(
		ctx, b.access.name+" is back: events ran without protection against duplicates",
		"handler", b.Name, "type", b.Type, "events", s.events,
	)
	s.running, s.spent, s.events = false, false, 0
}

// outage returns the outage in which events may run without the store.
func (h *health) outage() (o outage, ok bool) {
	if !h.isDown.Load() {
		return outage{}, false
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	return outage{h.since, h.first}, h.isDown.Load() && h.absent
}

// probe reports whether the caller should ask the store. One caller does so in each probeEvery.
func (h *health) probe() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := time.Now()
	if !h.probed.IsZero() && h.probed.After(h.since) && now.Sub(h.probed) < probeEvery {
		return false
	}
	h.probed = now
	return true
}

// noteProbe notes that the store has just been asked, perhaps for long.
func (h *health) noteProbe() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.probed = time.Now()
}

// runsWithoutStore reports whether the event runs without the store now. Such an event counts
// against the allowance. A copy that the store waits for must wait, and so must an event that only
// its record can end.
func (b *batch) runsWithoutStore(t *task) bool {
	o, down := t.access.outage()
	switch {
	case !t.access.isDown.Load():
		t.route.spare.back(b.ctx, b.p.reporter, t.route)
		return false
	case !down || t.awaited() || t.refusal.err != nil || t.access.probe():
		return false
	}
	return t.route.spare.take(b.ctx, b.p.reporter, t.route, o, t.unprotected)
}

// settleWithoutStore runs an event without the store, once, after the pause that its last attempt
// has set. The next attempt of an event that failed is claimed if the store is back. An event that
// cannot be decoded is left to the usual path.
func (b *batch) settleWithoutStore(t *task) error {
	if at := t.pending.notBefore; !at.IsZero() {
		t.pending = attemptResult{}
		if err := t.pauseUntil(b.ctx, at); err != nil {
			return err
		}
	}
	if t.data == nil {
		if err := t.decode(b.p.readingContext(b.ctx, t)); err != nil {
			t.unread(idemtype.ClassUndecodable, err)
			return nil
		}
	}
	err := b.p.attemptUnprotected(b.ctx, t)
	if err == nil && t.settled {
		b.advance()
	}
	return err
}

// beginsWithoutStore reports whether a counted event may still run without the store. The first run
// is reported.
func (p *Processor) beginsWithoutStore(ctx context.Context, t *task) bool {
	o, down := t.access.outage()
	if !down || !t.route.spare.allows(ctx, p.reporter, t.route, o, true) {
		return false
	}
	if !t.unprotected {
		t.unprotected, t.isolated = true, true
		p.notifyUnprotected(ctx, t, observe.StoreUnavailable)
	}
	return true
}

// leave returns a function that reports whether to stop asking for the claims of the group. The
// result is nil unless the first event may run without the store. The store does not answer, so no
// claim is released: a granted one ends with its lease.
func (g *eventGroup) leave() func(since time.Time, err error) bool {
	t := g.tasks[0]
	if t.route.spare == nil || t.awaited() || t.refusal.err != nil {
		return nil
	}
	return func(began time.Time, err error) bool {
		if errors.Is(err, errLate) {
			return false
		}
		g.access.down(g.ctx, began, err)
		g.access.noteProbe()
		o, down := g.access.outage()
		if !down {
			return false
		}
		return t.route.spare.allows(
			g.ctx, g.batch.p.reporter, t.route, o, t.unprotected,
		)
	}
}
