package kgoidem

import (
	"context"
	"errors"
	"sync"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/idem-go/idem/runner"
)

// claim is a partition that this member has at present. The poll loop adds records, and runner
// takes them.
type claim struct {
	*runner.Position
	epochs  *epochs
	cl      *kgo.Client
	records chan *kgo.Record
	ctx     context.Context // ends when the partition is given back or lost
	end     context.CancelCauseFunc
	done    chan struct{} // closed when the assignment has ended and committed

	mu     sync.Mutex
	paused bool
}

// buffered is how many records wait for the assignment. Its lanes have a queue of their own.
const buffered = 64

// errRevoked is the cause of the end of a claim that is given back in order.
var errRevoked = errors.New("the partition is given back")

func newClaim(ctx context.Context, cl *kgo.Client, p partition, at runner.Place) *claim {
	c := &claim{
		Position: runner.NewPosition(p, at), epochs: new(epochs), cl: cl,
		records: make(chan *kgo.Record, buffered), done: make(chan struct{}),
	}
	c.ctx, c.end = context.WithCancelCause(ctx)
	return c
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
	one := map[string][]int32{c.Topic(): {c.Partition()}}
	if paused {
		c.cl.PauseFetchPartitions(one)
	} else {
		c.cl.ResumeFetchPartitions(one)
	}
}

// add takes fetched records. It waits only briefly, since the assignment always reads and pauses
// the fetching if it has no room (K-14).
func (c *claim) add(records []*kgo.Record) {
	for _, r := range records {
		next, marker := r.Offset+1, r.Attrs.IsControl()
		visible := next
		if marker {
			visible = 0
		}
		if !c.Advance(next, visible) {
			continue
		}
		c.epochs.note(r.Offset, r.LeaderEpoch)
		if marker {
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
