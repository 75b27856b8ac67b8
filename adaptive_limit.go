package idem

import (
	"sync/atomic"
	"time"
)

// claimAhead knows about how long one run of a handler takes, to say how many events may be claimed ahead of it: a crash
// leaves others waiting for the leases of what was claimed and not begun.
type claimAhead struct{ average atomic.Int64 } // nanoseconds; zero: not known

const (
	aheadTime  = time.Second // how much work may be claimed ahead
	firstAhead = 16          // events, as long as nothing is known of the handler
)

// note takes one run into account.
func (p *claimAhead) note(took time.Duration) {
	old := p.average.Load()
	if old == 0 {
		p.average.Store(max(1, int64(took)))
		return
	}
	p.average.Store(max(1, old+(int64(took)-old)/8)) // two lanes may overwrite each other: it is an estimate
}

// events is how many events may be claimed at once, at most n.
func (p *claimAhead) events(n int) int {
	average := p.average.Load()
	if average == 0 {
		return min(n, firstAhead)
	}
	return int(max(1, min(int64(n), int64(aheadTime)/average)))
}

// adaptiveLimit is how many events of a handler may share a transaction (rule 12). A failure costs what the group had done, and
// halves it; four times as many events as it has, without a failure, double it. That settles near what costs least: some 25
// where one event in a hundred fails, all there are where none does. Groups that met a lock begin anew with one. If they
// meet another one before they are what they were, they grow by one for every hundred events: handlers that meet on their
// rows meet again (rule 1), while a lock by itself may have been the server's own.
type adaptiveLimit struct {
	limit  atomic.Int32
	clean  atomic.Int32
	met    atomic.Bool // met a lock, and has not grown to its full size since
	locked atomic.Bool // met another one then: grow slowly
	off    atomic.Bool // the handler ends its transaction: it never shares one again
}

const (
	cleanEvents = 100 // for one more, after a lock
	cleanSizes  = 4   // for twice as many
)

func (g *adaptiveLimit) now() int { return int(g.limit.Load()) }

// shrink follows a rollback of n events.
func (g *adaptiveLimit) shrink(n int) {
	g.clean.Store(0)
	g.limit.Store(int32(max(1, min(n/2, g.now()))))
}

// startOver follows a lock that was not to be had. Lanes that meet at once count as two: they did meet.
func (g *adaptiveLimit) startOver() {
	if g.met.Swap(true) {
		g.locked.Store(true)
	}
	g.shrink(1)
}

// grow follows a commit of n events.
func (g *adaptiveLimit) grow(n, most int) {
	now := g.now()
	if now >= most {
		g.met.Store(false)
		g.locked.Store(false)
		return
	}
	c := int(g.clean.Add(int32(n)))
	switch locked := g.locked.Load(); {
	case locked && c >= cleanEvents:
		now += c / cleanEvents
	case !locked && c >= cleanSizes*now:
		now *= 2
	default:
		return
	}
	g.clean.Store(0)
	g.limit.Store(int32(min(most, now)))
}

// limit is of the groups that an event may share.
func (d *task) limit() *adaptiveLimit {
	if d.deferred != nil {
		return &d.route.deferredLimit
	}
	return &d.route.txLimit
}
