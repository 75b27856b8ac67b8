package idem

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// limits bound the runs of one handler in this process. Only events that are run count: who finds a duplicate gives his
// permit back.
type limits struct {
	slots chan struct{} // a value in it is a run; nil: no bound
	every time.Duration // between the beginnings of two runs; zero: no bound

	mu   sync.Mutex
	free time.Time // when the next run may begin
}

func newLimits(s *settings) *limits {
	if s.concurrency <= 0 && s.rate <= 0 {
		return nil
	}
	l := &limits{}
	if s.concurrency > 0 {
		l.slots = make(chan struct{}, s.concurrency)
	}
	if s.rate > 0 {
		l.every = s.per / time.Duration(s.rate)
	}
	return l
}

// permit is the right to one run. The zero permit is one of a handler without limits.
type permit struct {
	of   *limits
	next time.Time // when the run after this one may begin
}

// end gives the permit back: after the run, or without one.
func (p *permit) end(ran bool) {
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

// acquire waits for a permit, holding nothing (rule 25).
func (l *limits) acquire(ctx context.Context, budget *waitBudget) (permit, error) {
	if l == nil {
		return permit{}, nil
	}
	if l.slots != nil {
		if err := l.slot(ctx, budget); err != nil {
			return permit{}, err
		}
	}
	p := permit{of: l}
	if l.every > 0 {
		if err := l.turn(ctx, budget, &p); err != nil {
			p.end(false)
			return permit{}, err
		}
	}
	return p, nil
}

func (l *limits) slot(ctx context.Context, budget *waitBudget) error {
	return budget.seat(ctx, l.slots, fmt.Errorf("%w: its handler runs as often as it may", ErrBusy))
}

// turn waits until the next run may begin. The turn is taken before the wait, so that those who wait come evenly.
func (l *limits) turn(ctx context.Context, budget *waitBudget, p *permit) error {
	wait := l.book(p)
	if wait <= 0 {
		return nil
	}
	if budget.left != Forever {
		if wait > budget.left {
			return &WaitError{Err: fmt.Errorf("%w: the rate limit of its handler", ErrBusy), After: wait}
		}
		budget.left -= wait
	}
	return sleep(ctx, wait)
}

// book takes the next turn and returns how far away it is.
func (l *limits) book(p *permit) time.Duration {
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

// try returns a permit if there is one at once.
func (l *limits) try() (p permit, ok bool) {
	if l == nil {
		return permit{}, true
	}
	if l.slots != nil {
		select {
		case l.slots <- struct{}{}:
		default:
			return permit{}, false
		}
	}
	p = permit{of: l}
	if l.every > 0 && l.book(&p) > 0 {
		p.end(false)
		return permit{}, false
	}
	return p, true
}

// ahead bounds how many events may be claimed before they are run: about a second of runs.
func (l *limits) ahead(n int) int {
	if l == nil || l.every == 0 {
		return n
	}
	return max(1, min(n, int(time.Second/l.every)))
}
