package runner

import (
	"math"
	"sync"
	"time"
)

// Position is how far a partition was fetched. It is the part of a [Claim] that is the same for all
// clients that pass on, or count, the markers of transactions. Embed it in the claim of the client.
// Create a Position with [NewPosition]. Safe for concurrent use.
type Position struct {
	at    TopicPartition
	place Place

	mu      sync.Mutex
	next    int64 // the offset behind the last record of any kind
	visible int64 // the offset behind the last record that is handled
}

// NewPosition returns the position of a partition before the first fetch.
func NewPosition(at TopicPartition, place Place) *Position {
	return &Position{at: at, place: place, next: place.Offset, visible: place.Offset}
}

// At names the partition.
func (p *Position) At() TopicPartition { return p.at }

// Topic implements [Claim].
func (p *Position) Topic() string { return p.at.Topic }

// Partition implements [Claim].
func (p *Position) Partition() int32 { return p.at.Partition }

// InitialOffset implements [Claim].
func (p *Position) InitialOffset() int64 { return p.place.InitialOffset() }

// HighWaterMarkOffset implements [Claim]: the offset behind the last fetched record of any kind.
func (p *Position) HighWaterMarkOffset() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.next
}

// Advance notes fetched records. next is the offset behind the last record of any kind. visible is
// the offset behind the last record that is handled, or zero. The result is false, and the position
// stays, if all of these records were fetched before.
func (p *Position) Advance(next, visible int64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if next <= p.next {
		return false
	}
	p.next, p.visible = next, max(p.visible, visible)
	return true
}

// position marks a claim that has a Position.
func (p *Position) position() *Position { return p }

// look returns the content of the log behind an offset, as far as records were fetched. ok is false
// if a visible record lies there. newest is the end of the log.
func (p *Position) look(offset, newest int64) (found Look, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.visible > offset {
		return Look{}, false
	}
	clear := max(offset, p.next)
	return Look{Clear: clear, End: clear >= newest}, true
}

// learn notes in a tail that no visible record lies between the last visible one and the position.
// The offsets of markers there are then committed too (K-17).
func (p *Position) learn(t *Tail) {
	p.mu.Lock()
	visible, markers := p.visible, p.next > p.visible
	p.mu.Unlock()
	if !markers {
		return
	}
	now := time.Now()
	offset, _ := t.Ask(visible, now)
	const unknown = math.MaxInt64 // the end of the log is not asked for here
	if found, ok := p.look(offset, unknown); ok {
		t.Learn(now, offset, found)
	}
}

// positionOf returns the Position that a claim embeds, or nil.
func positionOf(c Claim) *Position {
	if own, ok := c.(interface{ position() *Position }); ok {
		return own.position()
	}
	return nil
}

// LearnPositions lets the next commit include the markers behind the last handled records, for
// claims that embed a [Position]. Call it in [Session].Commit.
func (g *Group) LearnPositions() {
	for _, a := range g.Assignments() {
		if p := positionOf(a.claim); p != nil {
			p.learn(a.tail)
		}
	}
}

// positionEnds is an [EndAsker]: it compares the positions of claims with the ends of the logs. A
// position lies behind the markers of transactions.
type positionEnds struct{ offsets Offsets }

// Ask implements [EndAsker].
func (e positionEnds) Ask(questions []EndQuestion, stop <-chan struct{}) {
	asked := time.Now()
	partitions := make(map[string][]int32)
	wanted := make(map[TopicPartition]int64)
	for _, q := range questions {
		if offset, ok := q.Tail.Ask(q.Next, asked); ok {
			wanted[q.TopicPartition] = offset
			partitions[q.Topic] = append(partitions[q.Topic], q.Partition)
		}
	}
	if len(wanted) == 0 {
		return
	}
	ctx, end := untilClosed(EndsWait, stop)
	defer end()
	newest, err := Answered(e.offsets.Newest(ctx, partitions)) // others have no leader
	if err != nil {
		return
	}
	for _, q := range questions {
		offset, ok := wanted[q.TopicPartition]
		p := positionOf(q.Claim)
		tail, known := newest[q.TopicPartition]
		if !ok || p == nil || !known {
			continue // without an end, nothing is learned
		}
		found, ok := p.look(offset, tail)
		if ok {
			q.Tail.Learn(asked, offset, found)
		}
		if !ok || !found.End {
			q.Tail.Forget()
		}
	}
}
