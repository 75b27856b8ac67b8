package engine

import (
	"cmp"
	"context"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/idemtype"
)

// This file is about the progress of loops on other clients than package consumer. A store that forgets in consumed time (rule 8)
// deletes nothing of a scope until it knows how far the scope has consumed.
//
// HandleBatch sees messages and not offsets that were committed. What it records of a partition is the last settled message below
// which all messages are settled that this processor was given since the partition was assigned. A message that was given and is not
// settled, in this call or an earlier one, holds the progress of its partition back until it has come again and is settled.

const (
	// progressEvery is how often progress is recorded at most.
	progressEvery = 10 * time.Second
	// progressLimit bounds one record, and so what it adds to a call of HandleBatch.
	progressLimit = time.Second
	// maxUnsettled is how many offsets of a partition are remembered one by one that were given and not settled.
	maxUnsettled = 4096
)

// ownProgress is what is known of the progress of all partitions. Nil if no store wants to know.
type ownProgress struct {
	mu      sync.Mutex
	parts   map[partitionID]*consumed
	used    bool      // a loop of one's own is at work
	next    time.Time // nothing is written before
	writing bool
	failed  bool // was told
}

type partitionID struct {
	topic     string
	partition int32
}

// consumed is the progress of one partition.
type consumed struct {
	active   []int64 // of each call under way, the lowest offset that it was given
	left     []int64 // offsets that were given and are not settled, ascending
	more     span    // where further ones of these are, if they were too many
	top      point   // the highest that was settled
	soon     point   // settled before top: it is said as soon as nothing below is open
	reported dedup.Progress
	wrote    int64 // Next as it was recorded last
	begun    bool  // a message has come
	change   bool  // said is to be written

	assigned bool // and no message has come, nor is it on record
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

func newOwnProgress(ledgers []*storeAccess) *ownProgress {
	for _, l := range ledgers {
		if _, ok := l.store.(dedup.ProgressRecorder); ok {
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

// stretches yields the parts of a batch that are of one partition each: where each begins and ends, with its lowest and highest offset.
func stretches(msgs []*idemtype.Message, yield func(from, to int, low, high int64)) {
	for from := 0; from < len(msgs); {
		if msgs[from] == nil {
			from++
			continue
		}
		first, to := msgs[from], from+1
		low, high := first.Offset, first.Offset
		for ; to < len(msgs) && msgs[to] != nil && msgs[to].Partition == first.Partition && msgs[to].Topic == first.Topic; to++ {
			low, high = min(low, msgs[to].Offset), max(high, msgs[to].Offset)
		}
		yield(from, to, low, high)
		from = to
	}
}

// begin notes what a call is given. It reports whether that must be recorded before anything is handled: a partition that was never
// seen keeps the store from forgetting until something of it is settled.
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
			c.back(low)
		}
	})
	return first
}

// end notes what has become of it. It reports whether it is time to write.
func (g *ownProgress) end(msgs []*idemtype.Message, settled int) (due bool) {
	now := time.Now()
	g.mu.Lock()
	defer g.mu.Unlock()
	stretches(msgs, func(from, to int, low, high int64) {
		c := g.of(msgs[from].Topic, msgs[from].Partition)
		if i := slices.Index(c.active, low); i >= 0 {
			c.active = slices.Delete(c.active, i, i+1)
		}
		if c.more.known && low <= c.more.from && high >= c.more.to { // all of them were given again
			c.more = span{}
		}
		good := min(max(settled, from), to)
		for _, m := range msgs[from:good] {
			c.settled(m)
		}
		for _, m := range msgs[good:to] {
			c.leave(m.Offset)
		}
		c.advance()
	})
	return !now.Before(g.next)
}

func (c *consumed) settled(m *idemtype.Message) {
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

// open is the lowest offset that was given and is not settled.
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

// advance says what was settled below all that is open. With many calls at once something is open below the highest settled message
// nearly always, so one that was the highest before is waited for.
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
	if at.Unix() <= 0 { // the broker has none
		at = time.Time{}
	}
	c.reported.Next, c.reported.Time, c.reported.CaughtUp, c.change = next, at, false, true
}

// back is for a message that was settled before and comes again: its loop was set back, and so is what the store knows.
func (c *consumed) back(to int64) {
	c.top, c.soon = point{}, point{}
	if to < c.wrote {
		c.report(to, time.Time{})
		return
	}
	c.reported.Next, c.reported.Time, c.change = c.wrote, time.Time{}, false // as it is on record
}

// reset forgets a partition that has come (again): where it goes on is not known yet.
func (g *ownProgress) reset(topic string, partition int32) {
	if g == nil {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	c := g.of(topic, partition)
	*c = consumed{active: c.active, reported: dedup.Progress{Topic: topic, Partition: partition}, assigned: true}
}

// NoteProgress says how far a partition is settled, for loops that call [Processor.Settle]. Unlike [Processor.RecordProgress] it may be
// called for each message: the stores are told at most every 10 s, in a call that takes a second at most, by whoever comes then, and
// at [Processor.Close]. An error is logged and the record is repeated later. [Processor.HandleBatch] and package lane do so by themselves.
// Safe for concurrent use.
func (p *Processor) NoteProgress(ctx context.Context, progress dedup.Progress) {
	g := p.own
	if g == nil {
		return
	}
	now := time.Now()
	g.mu.Lock()
	g.used = true
	c := g.of(progress.Topic, progress.Partition)
	first := !c.begun
	c.change = c.change || c.reported != progress
	c.begun, c.assigned, c.reported = true, false, progress
	due := first || !now.Before(g.next)
	g.mu.Unlock()
	if due {
		p.writeProgress(ctx, first)
	}
}

// writeProgress records what has changed, unless it did so a moment ago. Another call that is at it does it for all.
func (p *Processor) writeProgress(ctx context.Context, now bool) {
	g := p.own
	changed, unseen := g.take(now)
	if len(changed)+len(unseen) == 0 {
		return
	}
	err := p.bounded(context.WithoutCancel(ctx), progressLimit, func(ctx context.Context) error {
		return cmp.Or(p.recordUnseen(ctx, unseen), p.RecordProgress(ctx, changed))
	})
	told := g.wrote(changed, unseen, err)
	switch {
	case told && err != nil:
		p.log.WarnContext(ctx, "progress cannot be recorded, the store forgets nothing meanwhile", "error", p.errorText(err))
	case told:
		p.log.InfoContext(ctx, "progress is recorded again")
	}
}

// take returns what is to be written: partitions that have moved on, and assigned ones of which no message has come.
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

// wrote notes what has become of it. It reports whether that is news.
func (g *ownProgress) wrote(changed, unseen []dedup.Progress, err error) (news bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.writing = false
	news = g.failed != (err != nil)
	g.failed = err != nil
	for _, said := range changed {
		switch c := g.of(said.Topic, said.Partition); {
		case !c.begun: // it was assigned anew
		case err != nil:
			c.change = true
		default:
			c.wrote = said.Next
			c.change = c.change || c.reported.Next < said.Next // it was set back meanwhile
		}
	}
	for _, said := range unseen {
		if err == nil {
			g.of(said.Topic, said.Partition).assigned = false
		}
	}
	return news
}

// recordUnseen records those partitions, without a time, of which a store knows nothing: it forgets nothing until their loop has said how
// far they are.
func (p *Processor) recordUnseen(ctx context.Context, all []dedup.Progress) error {
	if len(all) == 0 {
		return nil
	}
	topics := make([]string, 0, len(all))
	for i := range all {
		topics = append(topics, all[i].Topic)
	}
	slices.Sort(topics)
	topics = slices.Compact(topics)
	for _, place := range p.places() {
		recorder, ok := place.access.store.(dedup.ProgressRecorder)
		if !ok {
			continue
		}
		known, err := recorder.Progress(ctx, place.scope, topics...)
		if err != nil {
			return err
		}
		unknown := slices.DeleteFunc(slices.Clone(all), func(a dedup.Progress) bool {
			return slices.ContainsFunc(known, func(k dedup.Progress) bool { return k.Topic == a.Topic && k.Partition == a.Partition })
		})
		if err := recorder.RecordProgress(ctx, place.scope, unknown); err != nil {
			return err
		}
	}
	return nil
}
