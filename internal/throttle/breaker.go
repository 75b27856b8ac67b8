package throttle

import (
	"sync"
	"sync/atomic"
	"time"
)

// Breaker stops the runs of one handler while a dependency of the handler is down. It opens after a
// number of runs in a row that found the dependency down. After a wait it is half-open: one run at
// a time tries the dependency. A success closes it, and a failure opens it again. A nil *Breaker is
// always closed.
type Breaker struct {
	after int
	wait  time.Duration
	state atomic.Int32 // of BreakerState, written under mu

	mu       sync.Mutex
	failures int           // in a row, while closed
	opened   time.Time     // the begin of the pause
	paused   time.Duration // the sum of earlier pauses
	retryAt  time.Time     // while open: when it is half-open
	trying   bool          // while half-open: a run tries
	turn     uint64        // number of that run
}

// BreakerState is the state of a [Breaker].
type BreakerState int32

// The states of a [Breaker].
const (
	BreakerClosed BreakerState = iota
	BreakerOpen
	BreakerHalfOpen
)

// RunEnd is the meaning of the end of a run for the dependency.
type RunEnd uint8

const (
	// RunUnsure means that the state of the dependency is not known.
	RunUnsure RunEnd = iota
	// RunSucceeded means that the dependency answers.
	RunSucceeded
	// RunUnavailable means that the dependency is down.
	RunUnavailable
)

// Change is a change of the state. The zero value means that the state is the same.
type Change struct {
	To      BreakerState
	Changed bool
	For     time.Duration // since the begin of the pause
}

// NewBreaker returns a breaker that opens after a number of runs in a row, for a time. Without a
// number the result is nil.
func NewBreaker(after int, wait time.Duration) *Breaker {
	if after <= 0 {
		return nil
	}
	return &Breaker{after: after, wait: wait}
}

// State returns the present state.
func (b *Breaker) State() BreakerState {
	if b == nil {
		return BreakerClosed
	}
	return BreakerState(b.state.Load())
}

// Trial is the right to one run. The zero Trial is one of a closed breaker.
type Trial struct {
	of   *Breaker
	turn uint64
}

// End ends the right, after the run or without one. Further calls have no effect.
func (t *Trial) End() {
	b := t.of
	if b == nil {
		return
	}
	t.of = nil
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.turn == t.turn { // else the run has changed the state, and another one tries
		b.trying = false
	}
}

// Begin asks for a run. If wait is positive, the caller must ask again after wait.
func (b *Breaker) Begin(now time.Time) (t Trial, wait time.Duration, c Change) {
	if b.State() == BreakerClosed {
		return t, 0, c
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	switch b.State() {
	case BreakerClosed:
		return t, 0, c
	case BreakerOpen:
		if wait = b.retryAt.Sub(now); wait > 0 {
			return t, wait, c
		}
		c = b.change(BreakerHalfOpen, now)
	case BreakerHalfOpen:
		if b.trying {
			return t, b.wait, c
		}
	}
	b.trying = true
	b.turn++
	return Trial{of: b, turn: b.turn}, 0, c
}

// Note notes the end of a run. A run that ends while the breaker is open has no effect: it began
// before the breaker opened. While the breaker is half-open, the end of such a run counts like that
// of the run that tries, because both show the state of the dependency.
func (b *Breaker) Note(now time.Time, end RunEnd) (c Change) {
	if b == nil || end == RunUnsure {
		return c
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	switch state := b.State(); {
	case state == BreakerOpen:
	case end == RunSucceeded:
		b.failures = 0
		if state == BreakerHalfOpen {
			b.paused += now.Sub(b.opened)
			c = b.change(BreakerClosed, now)
		}
	case state == BreakerHalfOpen:
		b.retryAt = now.Add(b.wait)
		c = b.change(BreakerOpen, now)
	default:
		if b.failures++; b.failures >= b.after {
			b.failures, b.opened, b.retryAt = 0, now, now.Add(b.wait)
			c = b.change(BreakerOpen, now)
		}
	}
	return c
}

// Paused returns for how long the breaker was open or half-open until now, in all.
func (b *Breaker) Paused(now time.Time) time.Duration {
	if b == nil {
		return 0
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.State() == BreakerClosed {
		return b.paused
	}
	return b.paused + now.Sub(b.opened)
}

func (b *Breaker) change(to BreakerState, now time.Time) Change {
	b.state.Store(int32(to))
	b.trying = false
	return Change{To: to, Changed: true, For: now.Sub(b.opened)}
}
