package consumer

import (
	"context"
	"time"

	"github.com/IBM/sarama"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/lane"
)

// roomWait is how long a pump waits for room before the fetching pauses. While handlers are quick,
// waiting is cheaper.
const roomWait = 20 * time.Millisecond

// flow has the methods of sarama's claims beyond the interface.
type flow interface {
	Pause()
	Resume()
	IsPaused() bool
}

// pump moves messages into the lane until the assignment ends.
//
// A pump never stops reading, for two reasons. In a cooperative rebalance only the end of Messages
// reports the revoke, and buffered messages hide the end (K-10). And a broker's partitions are fed
// in turn, so a pump that does not read delays the others (K-14). If the lane is full, or the next
// message is a copy that is not due, the pump pauses the fetching. The fetched messages are kept,
// since they are in memory anyway.
func pump(
	ctx context.Context, claim sarama.ConsumerGroupClaim, l *lane.Partition, times *timeline,
	due func(*idem.Message) time.Duration,
) {
	p := &pumping{ctx: ctx, claim: claim, lane: l, times: times, due: due}
	p.flow, _ = claim.(flow)
	for {
		if ctx.Err() != nil { // while messages wait, select might never choose Done (K-09)
			return
		}
		select {
		case m, ok := <-claim.Messages():
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

type pumping struct {
	ctx       context.Context
	claim     sarama.ConsumerGroupClaim
	lane      *lane.Partition
	times     *timeline
	due       func(*idem.Message) time.Duration // how long a message must wait
	flow      flow                              // nil if the claim cannot be paused
	backlog   []*idem.Message
	converter converter
}

func (p *pumping) take(m *sarama.ConsumerMessage) *idem.Message {
	p.times.note(m)
	return p.converter.message(m)
}

// push reports false if the assignment has ended.
func (p *pumping) push(m *idem.Message) bool {
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
func (p *pumping) hold(m *idem.Message) bool {
	p.backlog = append(p.backlog[:0], m)
	resume := p.pause()
	defer resume()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for len(p.backlog) > 0 {
		if p.ctx.Err() != nil {
			return false
		}
		room, messages := p.lane.Room(), p.claim.Messages()
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
			if p.flow != nil && !p.flow.IsPaused() {
				p.flow.Pause()
			}
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

// pause stops the fetching, and returns the function that resumes it.
func (p *pumping) pause() (resume func()) {
	if p.flow == nil || p.flow.IsPaused() { // paused by the program, which will resume it
		return func() {}
	}
	p.flow.Pause()
	return p.flow.Resume
}

// refill gives the lane the due messages that it takes. The timer fires when the next may be due.
func (p *pumping) refill(timer *time.Timer) {
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
