package ops

import (
	"sync"
	"sync/atomic"
)

// kind is a counted kind of deliveries.
type kind uint8

const (
	kindDelivery   kind = iota // deliveries that were settled
	kindHandled                // events with a successful handler, deferred ones included
	kindDuplicate              // duplicates, all of them
	kindSame                   // duplicates: the same record again
	kindFailed                 // runs of a handler that failed, by event
	kindRetry                  // attempts that follow
	kindBehind                 // events that wait behind another one of their Kafka key
	kindDeadLetter             // dead letters that were acknowledged
	kindSkipped                // tombstones, and types without a handler
	kinds
)

// counts are numbers by kind.
type counts [kinds]uint64

// copies are duplicates in another record than the handled one.
func (c *counts) copies() uint64 { return c[kindDuplicate] - min(c[kindSame], c[kindDuplicate]) }

func (c *counts) add(o *counts) {
	for i := range c {
		c[i] += o[i]
	}
}

// slot is one second, or one minute, of a ring.
type slot struct {
	at  atomic.Int64 // index of the slot; 0 for an unused one
	n   [kinds]atomic.Uint64
	lag atomic.Int64 // the last lag in the slot, plus one; 0 without one
}

// ring counts by time. Adding takes no lock but for the first of each slot's time.
type ring struct {
	turn  sync.Mutex
	slots []slot
}

func newRing(n int) *ring { return &ring{slots: make([]slot, n)} }

// slot returns the slot of a time, counted from 1, or nil if the slot has a later time already.
func (r *ring) slot(at int64) *slot {
	s := &r.slots[at%int64(len(r.slots))]
	if have := s.at.Load(); have == at {
		return s
	} else if have > at {
		return nil
	}
	r.turn.Lock()
	defer r.turn.Unlock()
	if have := s.at.Load(); have >= at {
		if have > at {
			return nil
		}
		return s
	}
	for i := range s.n {
		s.n[i].Store(0)
	}
	s.lag.Store(0)
	s.at.Store(at)
	return s
}

func (r *ring) add(at int64, k kind, n uint64) {
	if s := r.slot(at); s != nil {
		s.n[k].Add(n)
	}
}

func (r *ring) setLag(at, lag int64) {
	if s := r.slot(at); s != nil {
		s.lag.Store(lag + 1)
	}
}

// sample has the counts of one slot.
type sample struct {
	counts
	lag   int64
	noLag bool
}

// last returns the n slots up to the present one, oldest first.
func (r *ring) last(now int64, n int) []sample {
	n = min(n, len(r.slots))
	all := make([]sample, n)
	for i := range all {
		at := now - int64(n-1-i)
		all[i].noLag = true
		if at < 1 {
			continue
		}
		s := &r.slots[at%int64(len(r.slots))]
		if s.at.Load() != at {
			continue
		}
		for k := range all[i].counts {
			all[i].counts[k] = s.n[k].Load()
		}
		if lag := s.lag.Load(); lag > 0 {
			all[i].lag, all[i].noLag = lag-1, false
		}
	}
	return all
}
