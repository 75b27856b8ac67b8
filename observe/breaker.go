package observe

import (
	"context"
	"time"
)

// BreakerObserver gets every change of the circuit breaker of a handler. Each event that is not
// [BreakerClosed] is followed by one that is: when the dependency answers, or when the processor is
// closed.
type BreakerObserver interface {
	ObserveBreaker(context.Context, BreakerEvent)
}

// BreakerEvent is a change of the circuit breaker of a handler, see CircuitBreaker of package idem.
type BreakerEvent struct {
	Group   string
	Handler string // name of the handler
	Type    string // event type of the handler
	State   BreakerState
	For     time.Duration // since the breaker has opened first; zero for that event
	Ended   bool          // the processor was closed while the breaker was not
	Err     error         // of the run that opened the breaker
}

// BreakerState is the state of a circuit breaker.
type BreakerState uint8

const (
	// BreakerClosed means that events run.
	BreakerClosed BreakerState = iota
	// BreakerOpen means that the events of the handler wait.
	BreakerOpen
	// BreakerHalfOpen means that one event tries, and that the others wait.
	BreakerHalfOpen
)

// String returns the name of the state, which may be used as a metric label.
func (s BreakerState) String() string {
	switch s {
	case BreakerClosed:
		return "closed"
	case BreakerOpen:
		return "open"
	case BreakerHalfOpen:
		return "half_open"
	}
	return "unknown"
}
