package throttle

import "sync/atomic"

// AdaptiveLimit is how many events of a handler may share a transaction. A rollback
// costs the work of the whole group, and halves the limit. Four times as many events as the
// limit, without a rollback, double the limit. The limit settles near the cheapest size: about
// 25 if one event in a hundred fails, the maximum without a failure.
//
// A group that met a lock begins again with one event. If groups meet a second lock before the
// limit is at its maximum again, the limit grows by one for every hundred events. Handlers that
// met on their rows meet again, while a single lock may have been the server's own.
//
// Reset must be called before the first use.
type AdaptiveLimit struct {
	limit  atomic.Int32
	clean  atomic.Int32
	met    atomic.Bool // met a lock, and was not at its maximum since
	locked atomic.Bool // met another one then: grow slowly
	off    atomic.Bool
}

const (
	cleanEvents = 100 // for one more, after a second lock
	cleanSizes  = 4   // for twice as many
)

// Reset sets the limit to most, the maximum.
func (l *AdaptiveLimit) Reset(most int) { l.limit.Store(int32(most)) }

// Now returns the limit.
func (l *AdaptiveLimit) Now() int { return int(l.limit.Load()) }

// Shrink follows a rollback of n events.
func (l *AdaptiveLimit) Shrink(n int) {
	l.clean.Store(0)
	l.limit.Store(int32(max(1, min(n/2, l.Now()))))
}

// StartOver follows a lock that was not available. Two lanes that meet one lock at once count as
// two locks.
func (l *AdaptiveLimit) StartOver() {
	if l.met.Swap(true) {
		l.locked.Store(true)
	}
	l.Shrink(1)
}

// Grow follows a commit of n events.
func (l *AdaptiveLimit) Grow(n, most int) {
	now := l.Now()
	if now >= most {
		l.met.Store(false)
		l.locked.Store(false)
		return
	}
	c := int(l.clean.Add(int32(n)))
	switch locked := l.locked.Load(); {
	case locked && c >= cleanEvents:
		now += c / cleanEvents
	case !locked && c >= cleanSizes*now:
		now *= 2
	default:
		return
	}
	l.clean.Store(0)
	l.limit.Store(int32(min(most, now)))
}

// TurnOff ends the sharing of transactions for the handler. The result is true at the first call
// only.
func (l *AdaptiveLimit) TurnOff() bool { return l.off.CompareAndSwap(false, true) }

// Off reports whether TurnOff was called.
func (l *AdaptiveLimit) Off() bool { return l.off.Load() }
