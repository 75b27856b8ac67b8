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
// does not read holds up the others (K-14). So a pump never stops reading: if the lane is full it stops the fetching,
// and keeps what was fetched already, which is in memory anyway.
func pump(ctx context.Context, claim sarama.ConsumerGroupClaim, l *lane.Partition, times *timeline) {
	p := &pumping{ctx: ctx, claim: claim, lane: l, times: times}
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
	flow    flow
	backlog []*idem.Message
}

func (p *pumping) take(m *sarama.ConsumerMessage) *idem.Message {
	p.times.note(m)
	return FromSarama(m)
}

// push reports false if the claim has ended.
func (p *pumping) push(m *idem.Message) bool {
	if p.lane.Offer(m) {
		return true
	}
	if p.flow == nil {
		return p.lane.Push(p.ctx, m) == nil
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
			return p.drain(m)
		case <-p.ctx.Done():
			return false
		case <-p.lane.Done():
			return false
		}
	}
}

// drain takes what was fetched until the lane has caught up. It reports false if the claim has ended.
func (p *pumping) drain(m *idem.Message) bool {
	p.backlog = append(p.backlog[:0], m)
	if !p.flow.IsPaused() { // else somebody else did, who will resume it
		p.flow.Pause()
		defer p.flow.Resume()
	}
	for len(p.backlog) > 0 {
		if p.ctx.Err() != nil {
			return false
		}
		select {
		case m, ok := <-p.claim.Messages():
			if !ok {
				return false
			}
			p.backlog = append(p.backlog, p.take(m))
		case <-p.lane.Room():
			p.refill()
		case <-p.ctx.Done():
			return false
		case <-p.lane.Done():
			return false
		}
	}
	p.backlog = nil
	return true
}

func (p *pumping) refill() {
	n := 0
	for n < len(p.backlog) && p.lane.Offer(p.backlog[n]) {
		p.backlog[n] = nil
		n++
	}
	p.backlog = p.backlog[n:]
}
