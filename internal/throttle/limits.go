package throttle

import (
	"context"
	"time"
)

// Limits bound the runs of one handler in one process. Only runs count: a duplicate gives the
// permit back. A nil *Limits has no bound, and neither has the zero value.
type Limits struct {
	slots chan struct{} // a value in it is a run; nil: no bound
	turns turns
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
		l.turns.every, l.turns.late = pace(rate, per), min(lateTimer, per/10)
	}
	return l
}

// Waiter waits as long as the caller can, and returns an error with the reason if that is not
// long enough.
type Waiter interface {
	// Seat waits until slots has room, and sends a value to slots.
	Seat(ctx context.Context, slots chan<- struct{}, reason string) error
	// Pause waits for d, or until wake has a value.
	Pause(ctx context.Context, d time.Duration, wake <-chan struct{}, reason string) error
}

// Permit is the right to one run. The zero Permit is one of a handler without limits.
type Permit struct {
	of   *Limits
	turn uint64
}

// End gives the permit back, after the run or without one. Further calls have no effect.
func (p *Permit) End(ran bool) {
	l := p.of
	if l == nil {
		return
	}
	p.of = nil
	l.leaveSlot()
	if !ran && l.turns.every > 0 {
		l.turns.giveBack(p.turn)
	}
}

// Acquire waits for a permit, in the order of the calls. The caller must hold no claim and no
// connection meanwhile.
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
	if l.turns.every > 0 {
		turn, err := l.turns.await(ctx, w, "the rate limit of its handler")
		if err != nil {
			l.leaveSlot()
			return Permit{}, err
		}
		p.turn = turn
	}
	return p, nil
}

// Try returns a permit if there is one at once, and no caller of Acquire waits for it.
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
	if l.turns.every > 0 {
		if p.turn, ok = l.turns.try(); !ok {
			l.leaveSlot()
			return Permit{}, false
		}
	}
	return p, true
}

func (l *Limits) leaveSlot() {
	if l.slots != nil {
		<-l.slots
	}
}

// Ahead bounds how many of n events may be claimed before their runs: about a second of runs.
func (l *Limits) Ahead(n int) int {
	if l == nil || l.turns.every == 0 {
		return n
	}
	return max(1, min(n, int(time.Second/l.turns.every)))
}
