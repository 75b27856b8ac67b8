package engine

import (
	"math"
	"slices"
	"sync"
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/idemtype"
)

const (
	// progressEvery is the shortest interval between two records of the progress.
	progressEvery = 10 * time.Second
	// progressLimit limits the time of one record. A call of HandleBatch waits for that record.
	progressLimit = time.Second
	// maxUnsettled limits the unsettled offsets of a partition that are kept one by one.
	maxUnsettled = 4096
)

// ownProgress has the progress of all partitions. The pointer is nil if no store records progress.
type ownProgress struct {
	mu      sync.Mutex
	parts   map[partitionID]*consumed
	used    bool      // a loop of the user calls the processor
	next    time.Time // earliest time of the next record
	writing bool
	failed  bool // the failure was logged
}

type partitionID struct {
	topic     string
	partition int32
}

// consumed is the progress of one partition.
type consumed struct {
	active   []int64 // the lowest offset of each call under way
	left     []int64 // unsettled offsets of ended calls, ascending
	more     span    // range of further such offsets, beyond maxUnsettled
	top      point   // the settled message with the highest offset
	soon     point   // settled before top; reported when all offsets below are settled
	reported dedup.Progress
	wrote    int64 // the last recorded Next
	begun    bool  // a message has come
	change   bool  // reported must be written

	assigned bool // assigned, without a message and without a record in the store
}

// point is a settled message.
type point struct {
	known  bool
	offset int64
	at     time.Time
}

// span is a range of offsets, both included.
type span struct {
	known    bool
	from, to int64
}

func newOwnProgress(stores []dedup.Store) *ownProgress {
	for _, s := range stores {
		if _, ok := s.(dedup.ProgressRecorder); ok {
			return &ownProgress{parts: make(map[partitionID]*consumed)}
		}
	}
	return nil
}

func (g *ownProgress) of(topic string, partition int32) *consumed {
	id := partitionID{topic, partition}
	c := g.parts[id]
	if c == nil {
		c = &consumed{reported: dedup.Progress{Topic: topic, Partition: partition}}
		g.parts[id] = c
	}
	return c
}

// stretches yields the parts of a batch that belong to one partition each, with their lowest and
// highest offsets. Messages without a known place have no progress.
func stretches(msgs []*idemtype.Message, yield func(from, to int, low, high int64)) {
	for from := 0; from < len(msgs); {
		if msgs[from] == nil || msgs[from].Offset < 0 {
			from++
			continue
		}
		first, to := msgs[from], from+1
		low, high := first.Offset, first.Offset
		for ; to < len(msgs) && msgs[to] != nil && msgs[to].Offset >= 0 &&
			msgs[to].Partition == first.Partition && msgs[to].Topic == first.Topic; to++ {
			low, high = min(low, msgs[to].Offset), max(high, msgs[to].Offset)
		}
		yield(from, to, low, high)
		from = to
	}
}

// begin notes the messages of a call. first is true for a new partition. The progress of such a
// partition must be recorded before a handler runs. The store then deletes no event until a message
// of the partition is settled.
func (g *ownProgress) begin(msgs []*idemtype.Message) (first bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.used = true
	stretches(msgs, func(from, _ int, low, _ int64) {
		c := g.of(msgs[from].Topic, msgs[from].Partition)
		c.active = append(c.active, low)
		switch {
		case !c.begun:
			c.begun, c.assigned, first = true, false, true
			c.report(low, time.Time{})
		case low < c.reported.Next:
			c.setBack(low)
		}
	})
	return first
}

// end notes the result of a call. due is true if the progress must be written now.
func (g *ownProgress) end(msgs []*idemtype.Message, settled int) (due bool) {
	now := time.Now()
	g.mu.Lock()
	defer g.mu.Unlock()
	stretches(msgs, func(from, to int, low, high int64) {
		c := g.of(msgs[from].Topic, msgs[from].Partition)
		if i := slices.Index(c.active, low); i >= 0 {
			c.active = slices.Delete(c.active, i, i+1)
		}
		if c.more.known && low <= c.more.from && high >= c.more.to { // the whole range came again
			c.more = span{}
		}
		good := min(max(settled, from), to)
		for _, m := range msgs[from:good] {
			c.noteSettled(m)
		}
		for _, m := range msgs[good:to] {
			c.leave(m.Offset)
		}
		c.advance()
	})
	return !now.Before(g.next)
}

func (c *consumed) noteSettled(m *idemtype.Message) {
	if len(c.left) > 0 {
		if i, found := slices.BinarySearch(c.left, m.Offset); found {
			c.left = slices.Delete(c.left, i, i+1)
		}
	}
	if !c.top.known || m.Offset > c.top.offset {
		c.top = point{known: true, offset: m.Offset, at: m.Time}
	}
}

// leave notes an offset that must come again.
func (c *consumed) leave(offset int64) {
	i, found := slices.BinarySearch(c.left, offset)
	switch {
	case found:
	case len(c.left) < maxUnsettled:
		c.left = slices.Insert(c.left, i, offset)
	case !c.more.known:
		c.more = span{known: true, from: offset, to: offset}
	default:
		c.more.from, c.more.to = min(c.more.from, offset), max(c.more.to, offset)
	}
}

// open returns the lowest offset that was given to a call and is not settled.
func (c *consumed) open() int64 {
	low := int64(math.MaxInt64)
	for _, offset := range c.active {
		low = min(low, offset)
	}
	if len(c.left) > 0 {
		low = min(low, c.left[0])
	}
	if c.more.known {
		low = min(low, c.more.from)
	}
	return low
}

// advance reports the last offset below which all messages are settled. With many concurrent calls,
// an offset below top is nearly always open. So an earlier top is kept as soon, and reported.
func (c *consumed) advance() {
	open := c.open()
	switch {
	case c.top.known && c.top.offset < open:
		c.reportPoint(c.top)
		c.soon = c.top
	case !c.soon.known:
		c.soon = c.top
	case c.soon.offset < open:
		c.reportPoint(c.soon)
		c.soon = c.top
	}
}

func (c *consumed) reportPoint(p point) {
	if p.known && p.offset >= c.reported.Next {
		c.report(p.offset+1, p.at)
	}
}

func (c *consumed) report(next int64, at time.Time) {
	if at.Unix() <= 0 { // the record has no time
		at = time.Time{}
	}
	c.reported.Next, c.reported.Time, c.reported.CaughtUp, c.change = next, at, false, true
}

// setBack handles a settled message that comes again because its loop was set back. The progress in
// the store goes back too.
func (c *consumed) setBack(to int64) {
	c.top, c.soon = point{}, point{}
	if to < c.wrote {
		c.report(to, time.Time{})
		return
	}
	c.reported.Next, c.reported.Time, c.change = c.wrote, time.Time{}, false // as recorded
}

// reset forgets the progress of a partition that was assigned, perhaps again. The next offset of
// such a partition is not known yet.
func (g *ownProgress) reset(topic string, partition int32) {
	if g == nil {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	c := g.of(topic, partition)
	*c = consumed{
		active: c.active, reported: dedup.Progress{Topic: topic, Partition: partition},
		assigned: true,
	}
}

// take returns the progress to write: partitions with changes, and assigned partitions without
// messages.
func (g *ownProgress) take(now bool) (changed, unseen []dedup.Progress) {
	began := time.Now()
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.used || g.writing || !now && began.Before(g.next) {
		return nil, nil
	}
	for _, c := range g.parts {
		switch {
		case c.change:
			changed = append(changed, c.reported)
			c.change = false
		case c.assigned:
			unseen = append(unseen, c.reported)
		}
	}
	g.writing, g.next = len(changed)+len(unseen) > 0, began.Add(progressEvery)
	return changed, unseen
}

// wrote notes the result of a record. news is true if the result differs from the last one.
func (g *ownProgress) wrote(changed, unseen []dedup.Progress, err error) (news bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.writing = false
	news = g.failed != (err != nil)
	g.failed = err != nil
	for _, said := range changed {
		switch c := g.of(said.Topic, said.Partition); {
		case !c.begun: // the partition was assigned anew
		case err != nil:
			c.change = true
		default:
			c.wrote = said.Next
			c.change = c.change || c.reported.Next < said.Next // the loop was set back meanwhile
		}
	}
	for _, said := range unseen {
		if err == nil {
			g.of(said.Topic, said.Partition).assigned = false
		}
	}
	return news
}
