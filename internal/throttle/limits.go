package throttle

import (
	"context"
	"sync"
	"time"
)

// Limits bound the runs of one handler in one process. Only runs count: a duplicate gives the
// permit back. A nil *Limits has no bound.
type Limits struct {
	slots chan struct{} // a value in it is a run; nil: no bound
	every time.Duration // between the beginnings of two runs; zero: no bound

	mu   sync.Mutex
	free time.Time // when the next run may begin
}

// NewLimits returns limits for a number of runs at once and a number of runs in a time. Zero is
// no bound. Without any bound the result is nil.
func NewLimits(concurrency, rate int, per time.Duration) *Limits {
	if concurrency <= 0 && rate <= 0 {
		return nil
	}
	l := &Limits{}
	if concurrency > 0 {
		l.slots = make(chan struct{}, concurrency)
	}
	if rate > 0 {
		l.every = per / time.Duration(rate)
	}
	return l
}

// Waiter waits as long as the caller can, and returns an error with the reason if that is not
// long enough.
type Waiter interface {
	// Seat waits until slots has room, and sends a value to slots.
	Seat(ctx context.Context, slots chan<- struct{}, reason string) error
	// Pause waits for d.
	Pause(ctx context.Context, d time.Duration, reason string) error
}

// Permit is the right to one run. The zero Permit is one of a handler without limits.
type Permit struct {
	of   *Limits
	next time.Time // when the run after this one may begin
}

// End gives the permit back, after the run or without one. Further calls have no effect.
func (p *Permit) End(ran bool) {
	l := p.of
	if l == nil {
		return
	}
	p.of = nil
	if l.slots != nil {
		<-l.slots
	}
	if !ran && l.every > 0 {
		l.mu.Lock()
		if l.free.Equal(p.next) { // else others have turns behind this one: it is lost
			l.free = l.free.Add(-l.every)
		}
		l.mu.Unlock()
	}
}

// Acquire waits for a permit. The caller must hold no claim and no connection meanwhile.
func (l *Limits) Acquire(ctx context.Context, w Waiter) (Permit, error) {
	if l == nil {
		return Permit{}, nil
	}
	if l.slots != nil {
		if err := w.Seat(ctx, l.slots, "its handler runs as often as it may"); err != nil {
			return Permit{}, err
		}
	}
	p := Permit{of: l}
	// The turn is taken before the wait, so that waiting runs begin at even distances.
	if l.every > 0 {
		if wait := l.book(&p); wait > 0 {
			if err := w.Pause(ctx, wait, "the rate limit of its handler"); err != nil {
				p.End(false)
				return Permit{}, err
			}
		}
	}
	return p, nil
}

// book takes the next turn and returns the time until that turn.
func (l *Limits) book(p *Permit) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	if l.free.Before(now) {
		l.free = now
	}
	wait := l.free.Sub(now)
	l.free = l.free.Add(l.every)
	p.next = l.free
	return wait
}

// Try returns a permit if there is one at once.
func (l *Limits) Try() (p Permit, ok bool) {
	if l == nil {
		return Permit{}, true
	}
	if l.slots != nil {
		select {
		case l.slots <- struct{}{}:
		default:
			return Permit{}, false
		}
	}
	p = Permit{of: l}
	if l.every > 0 && l.book(&p) > 0 {
		p.End(false)
		return Permit{}, false
	}
	return p, true
}

// Ahead bounds how many of n events may be claimed before their runs: about a second of runs.
func (l *Limits) Ahead(n int) int {
	if l == nil || l.every == 0 {
		return n
	}
	return max(1, min(n, int(time.Second/l.every)))
}
