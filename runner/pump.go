package runner

import (
	"context"
	"time"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/lane"
)

// roomWait is how long a pump waits for room before the fetching pauses. While handlers are quick,
// waiting is cheaper.
const roomWait = 20 * time.Millisecond

// Flow is a [Claim] that can pause the fetching.
type Flow interface {
	Pause()
	Resume()
	IsPaused() bool
}

// Feed has the records of an assignment, of the type that the client has.
type Feed[R any] struct {
	// Records has the fetched records in order, and is closed when the partition is taken away.
	Records <-chan R
	// Message turns a record into a message.
	Message func(R) *idem.Message
}

// pump moves messages into the lane until the assignment ends.
//
// A pump never stops reading, for two reasons. In a cooperative rebalance only the end of the
// records may report the revoke, and buffered records hide the end (K-10). And a client may feed a
// broker's partitions in turn, so a pump that does not read delays the others (K-14). The pump
// pauses the fetching if the lane is full, or if the next message is a copy that is not due. The
// fetched messages are kept, since they are in memory anyway.
func pump[R any](a *Assignment, feed Feed[R], due func(*idem.Message) time.Duration) {
	ctx, l := a.ctx, a.lane
	p := &pumping[R]{ctx: ctx, feed: feed, lane: l, times: a.times, due: due}
	p.flow, _ = a.claim.(Flow)
	for {
		if ctx.Err() != nil { // while messages wait, select might never choose Done (K-09)
			return
		}
		select {
		case m, ok := <-feed.Records:
			if !ok || !p.push(p.take(m)) {
				return
			}
		case <-ctx.Done():
			return
		case <-l.Done():
			return
		}
	}
}

type pumping[R any] struct {
	ctx     context.Context
	feed    Feed[R]
	lane    *lane.Partition
	times   *timeline
	due     func(*idem.Message) time.Duration // how long a message must wait
	flow    Flow                              // nil if the claim cannot be paused
	backlog []*idem.Message
}

func (p *pumping[R]) take(r R) *idem.Message {
	m := p.feed.Message(r)
	p.times.note(m.Offset, m.Time)
	return m
}

// push reports false if the assignment has ended.
func (p *pumping[R]) push(m *idem.Message) bool {
	if p.due(m) > 0 {
		return p.hold(m)
	}
	if p.lane.Offer(m) {
		return true
	}
	timer := time.NewTimer(roomWait)
	defer timer.Stop()
	for {
		select {
		case <-p.lane.Room():
			if p.lane.Offer(m) {
				return true
			}
		case <-timer.C:
			return p.hold(m)
		case <-p.ctx.Done():
			return false
		case <-p.lane.Done():
			return false
		}
	}
}

// recheck is how often the due time of a waiting copy is read again, because the wall clock may be
// set.
const recheck = 10 * time.Second

// maxKept bounds the messages kept of a claim that cannot be paused. A claim that can be paused has
// at most two answers of a broker.
const maxKept = 1024

// hold keeps fetched messages, m first, until the lane has taken all. The result is false if the
// assignment has ended.
//
// A copy for a delayed retry waits here. The partition is paused and the copy does not count as
// begun. So the member stays in the group for any delay, and a waiting retry topic is no stall. A
// revoke ends the wait at once (T-05). A retry topic has one delay, so no copy behind the first one
// is due earlier.
func (p *pumping[R]) hold(m *idem.Message) bool {
	p.backlog = append(p.backlog[:0], m)
	resumes := p.pause()
	defer func() {
		if resumes {
			p.flow.Resume()
		}
	}()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for len(p.backlog) > 0 {
		if p.ctx.Err() != nil {
			return false
		}
		room, messages := p.lane.Room(), p.feed.Records
		if p.flow == nil && len(p.backlog) >= maxKept {
			messages = nil
		}
		select {
		case m, ok := <-messages:
			if !ok {
				return false
			}
			p.backlog = append(p.backlog, p.take(m))
			// resumed by the program: the backlog must stay bounded
			resumes = p.pause() || resumes
		case <-room:
			p.refill(timer)
		case <-timer.C:
			p.refill(timer)
		case <-p.ctx.Done():
			return false
		case <-p.lane.Done():
			return false
		}
	}
	p.backlog = nil
	return true
}

// pause stops the fetching, and reports whether the pump must resume it. A program that has paused
// the partition before will resume it.
func (p *pumping[R]) pause() (resumes bool) {
	if p.flow == nil || p.flow.IsPaused() {
		return false
	}
	p.flow.Pause()
	return true
}

// refill gives the lane the due messages that it takes. The timer fires when the next may be due.
func (p *pumping[R]) refill(timer *time.Timer) {
	n := 0
	for n < len(p.backlog) {
		if wait := p.due(p.backlog[n]); wait > 0 {
			timer.Reset(min(wait, recheck))
			break
		}
		if !p.lane.Offer(p.backlog[n]) {
			break
		}
		p.backlog[n] = nil
		n++
	}
	p.backlog = p.backlog[n:]
}
