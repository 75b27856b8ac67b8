package dedup

import (
	"fmt"
	"sync"
	"time"
)

// The settings of a breaker.
const (
	breakAfter = 3           // failures without an answer between them
	breakSpan  = time.Second // the least time between the first and the last of them
	breakFor   = time.Second // until the next probe
)

// breaker refuses calls while a store does not answer, so that callers do not wait one by one.
// The breaker opens after breakAfter failures in a row that span breakSpan. A cluster with one
// node down still answers, and the breaker stays closed. An open breaker lets one call through
// every breakFor; an answer closes the breaker. The zero value is closed. A breaker is safe for
// concurrent use.
type breaker struct {
	mu       sync.Mutex
	failures int       // since the last answer
	since    time.Time // when the first of them began
	answered time.Time // the last answer
	retryAt  time.Time // when the next probe may begin; zero: closed
	probing  bool
}

// callEnd is the meaning of a call's end for the state of the store.
type callEnd uint8

const (
	callUnknown  callEnd = iota // no evidence, as when the caller left
	callAnswered                // a refusal is an answer too
	callFailed
)

// callPass is the right to make one call.
type callPass struct {
	began time.Time
	probe bool
}

// begin asks for the right to make a call. If ok, p must be given to end, once.
func (b *breaker) begin(now time.Time) (p callPass, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	p.began = now
	if b.retryAt.IsZero() {
		return p, true
	}
	if b.probing || now.Before(b.retryAt) {
		return p, false
	}
	b.probing, p.probe = true, true
	return p, true
}

// end notes how a call ended.
func (b *breaker) end(p callPass, now time.Time, e callEnd) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if p.probe {
		b.probing = false
	}
	switch {
	case e == callAnswered:
		b.failures, b.answered, b.retryAt = 0, now, time.Time{}
	case e != callFailed, p.began.Before(b.answered): // the last answer is newer than this call
	case p.probe:
		b.retryAt = now.Add(breakFor)
	default:
		if b.failures == 0 || p.began.Before(b.since) {
			b.since = p.began
		}
		b.failures++
		if b.retryAt.IsZero() && b.failures >= breakAfter && now.Sub(b.since) >= breakSpan {
			b.retryAt = now.Add(breakFor)
		}
	}
}

// open reports whether calls are refused.
func (b *breaker) open() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return !b.retryAt.IsZero()
}

// errOpen means that the store was not asked.
var errOpen = fmt.Errorf("%w: circuit breaker open, next call within a second", ErrUnavailable)
