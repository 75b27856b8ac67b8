package consumer

import (
	"context"
	"time"

	"github.com/IBM/sarama"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/lane"
)

// patience is how long a pump waits for room before it stops fetching. Waiting is cheaper while handlers are quick.
const patience = 20 * time.Millisecond

// flow is what sarama's claims can do beside their interface.
type flow interface {
	Pause()
	Resume()
	IsPaused() bool
}

// pump moves messages into the lane until the claim ends. In a cooperative rebalance nothing but the end of Messages says
// so, and behind buffered messages it cannot be seen (K-10). And sarama feeds all partitions of a broker in turn: who
// does not read holds up the others (K-14). So a pump never stops reading: if the lane is full, or the next message is a
// copy whose time has not come, it stops the fetching, and keeps what was fetched already, which is in memory anyway.
func pump(ctx context.Context, claim sarama.ConsumerGroupClaim, l *lane.Partition, times *timeline, due func(*idem.Message) time.Duration) {
	p := &pumping{ctx: ctx, claim: claim, lane: l, times: times, due: due}
	p.flow, _ = claim.(flow)
	for {
		if ctx.Err() != nil { // with messages waiting, select might go on choosing them (K-09)
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
	ctx     context.Context
	claim   sarama.ConsumerGroupClaim
	lane    *lane.Partition
	times   *timeline
	due     func(*idem.Message) time.Duration // how long a message must wait
	flow    flow                              // nil if the claim cannot be paused
	backlog []*idem.Message
}

func (p *pumping) take(m *sarama.ConsumerMessage) *idem.Message {
	p.times.note(m)
	return FromSarama(m)
}

// push reports false if the claim has ended.
func (p *pumping) push(m *idem.Message) bool {
	if p.due(m) > 0 {
		return p.hold(m)
	}
	if p.lane.Offer(m) {
		return true
	}
	timer := time.NewTimer(patience)
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

// recheck is how often the time of a waiting copy is looked at again: it is a time of the wall clock, which may be set.
const recheck = 10 * time.Second

// maxKept bounds what is kept of a claim that cannot be paused. Of one that can it is what sarama has fetched by then: at
// most two answers of a broker.
const maxKept = 1024

// hold keeps what was fetched until the lane has taken all of it, m first. It reports false if the claim has ended.
//
// A copy for a later attempt waits here, with its partition paused and none of it counted as begun: so the member stays in
// its group however long that is, an idle tier is no stall, and a revoke ends the wait at once (T-05). The topic has one
// delay, so that nothing behind the first copy is due before it.
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
			if p.flow != nil && !p.flow.IsPaused() { // somebody else resumed it, and what is kept must have a bound
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

// pause stops the fetching, and returns what undoes it.
func (p *pumping) pause() (resume func()) {
	if p.flow == nil || p.flow.IsPaused() { // somebody else did, who will resume it
		return func() {}
	}
	p.flow.Pause()
	return p.flow.Resume
}

// refill gives the lane what it takes and what is due. The timer fires when the next may be.
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
