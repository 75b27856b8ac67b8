package kgoidem

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/idem-go/idem/runner"
)

// place is where an assignment begins.
type place struct {
	offset    int64
	committed bool // offset is committed, or a policy has chosen it
	moved     bool // offset is to be committed: a policy has chosen it
	initial   int64
}

// claim is a partition that this member has at present. The poll loop adds records, and runner
// takes them.
type claim struct {
	partition
	at      place
	cl      *kgo.Client
	records chan *kgo.Record
	ctx     context.Context // ends when the partition is given back or lost
	end     context.CancelCauseFunc
	done    chan struct{} // closed when the assignment has ended and committed

	mu       sync.Mutex
	paused   bool
	position int64 // the offset behind the last record of any kind
	visible  int64 // the offset behind the last record that is no marker
}

// buffered is how many records wait for the assignment. Its lanes have a queue of their own.
const buffered = 64

// errRevoked is the cause of the end of a claim that is given back in order.
var errRevoked = errors.New("the partition is given back")

func newClaim(ctx context.Context, cl *kgo.Client, p partition, at place) *claim {
	c := &claim{
		partition: p, at: at, cl: cl, records: make(chan *kgo.Record, buffered),
		done: make(chan struct{}), position: at.offset, visible: at.offset,
	}
	c.ctx, c.end = context.WithCancelCause(ctx)
	return c
}

// Topic implements [runner.Claim].
func (c *claim) Topic() string { return c.partition.Topic }

// Partition implements [runner.Claim].
func (c *claim) Partition() int32 { return c.partition.Partition }

// InitialOffset implements [runner.Claim].
func (c *claim) InitialOffset() int64 {
	if c.at.committed {
		return c.at.offset
	}
	return c.at.initial
}

// HighWaterMarkOffset implements [runner.Claim].
func (c *claim) HighWaterMarkOffset() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.position
}

// Context implements [runner.ClaimContext].
func (c *claim) Context() context.Context { return c.ctx }

// Pause implements [runner.Flow].
func (c *claim) Pause() { c.setPaused(true) }

// Resume implements [runner.Flow].
func (c *claim) Resume() { c.setPaused(false) }

// IsPaused implements [runner.Flow].
func (c *claim) IsPaused() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.paused
}

func (c *claim) setPaused(paused bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.paused = paused
	one := map[string][]int32{c.partition.Topic: {c.partition.Partition}}
	if paused {
		c.cl.PauseFetchPartitions(one)
	} else {
		c.cl.ResumeFetchPartitions(one)
	}
}

// add takes fetched records. It waits only briefly, since the assignment always reads and pauses the
// fetching if it has no room (K-14).
func (c *claim) add(records []*kgo.Record) {
	for _, r := range records {
		marker := r.Attrs.IsControl()
		c.mu.Lock()
		known := r.Offset < c.position
		if !known {
			c.position = r.Offset + 1
			if !marker {
				c.visible = c.position
			}
		}
		c.mu.Unlock()
		if known || marker {
			continue
		}
		select {
		case c.records <- r:
		case <-c.ctx.Done():
			return
		case <-c.done:
			return
		}
	}
}

// look returns what lies behind an offset, as far as records were fetched. ok is false if a visible
// record lies there. newest is the end of the log.
func (c *claim) look(offset, newest int64) (found runner.Look, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.visible > offset {
		return runner.Look{}, false
	}
	clear := max(offset, c.position)
	return runner.Look{Clear: clear, End: clear >= newest}, true
}

// learn tells a tail that nothing visible lies between the last visible record and the position: the
// offsets of markers there are committed too.
func (c *claim) learn(t *runner.Tail) {
	c.mu.Lock()
	visible, markers := c.visible, c.position > c.visible
	c.mu.Unlock()
	if !markers {
		return
	}
	now := time.Now()
	offset, _ := t.Ask(visible, now)
	const unknown = 1<<63 - 1 // the end of the log is not asked for here
	if found, ok := c.look(offset, unknown); ok {
		t.Learn(now, offset, found)
	}
}

// ends is a [runner.EndAsker]: it compares the positions of claims with the ends of the logs. A
// position lies behind the markers of transactions, which franz-go passes on.
type ends struct {
	offsets runner.Offsets
	claim   func(partition) *claim
}

// Ask implements [runner.EndAsker].
func (e ends) Ask(questions []runner.EndQuestion, stop <-chan struct{}) {
	ctx, cancel := context.WithTimeout(context.Background(), runner.EndsWait)
	defer cancel()
	var stopping sync.WaitGroup
	defer stopping.Wait()
	ended := make(chan struct{})
	defer close(ended)
	stopping.Go(func() {
		select {
		case <-stop:
			cancel()
		case <-ended:
		}
	})
	asked := time.Now()
	partitions := make(map[string][]int32)
	wanted := make(map[partition]int64)
	for _, q := range questions {
		if offset, ok := q.Tail.Ask(q.Next, asked); ok {
			wanted[q.TopicPartition] = offset
			partitions[q.Topic] = append(partitions[q.Topic], q.Partition)
		}
	}
	if len(wanted) == 0 {
		return
	}
	newest, err := e.offsets.Newest(ctx, partitions)
	if err != nil {
		return
	}
	for _, q := range questions {
		offset, ok := wanted[q.TopicPartition]
		c := e.claim(q.TopicPartition)
		if !ok || c == nil {
			continue
		}
		found, ok := c.look(offset, newest[q.TopicPartition])
		if ok {
			q.Tail.Learn(asked, offset, found)
		}
		if !ok || !found.End {
			q.Tail.Forget()
		}
	}
}
