package mysql

import (
	"time"

	"github.com/idem-go/idem/outbox"
)

// shardRow is a row of idem_outbox_shards.
type shardRow struct {
	shard   int
	relay   string // empty: free
	epoch   int64
	expired bool
	left    time.Duration // of the lease
}

// lease returns the lease with its rest.
func (s *shardRow) lease(left time.Duration) outbox.Lease {
	return outbox.Lease{Shard: s.shard, Epoch: s.epoch, Left: left}
}

// isFree reports whether relay may take the shard.
func (s *shardRow) isFree(relay string) bool {
	return s.relay == "" || s.relay != relay && s.expired
}

// plan is the intent of a relay.
type plan struct {
	keep, give []int
	free       []int // candidates
	take       int   // how many of them
}

// peers are the relays that are alive.
type peers struct {
	alive  int // with the relay itself
	before int // those with a lesser name
}

// share returns the number of shards of a relay. The remainder of the division goes to the first
// relays by name. So the shares add up to all shards, and none moves without need.
func (p peers) share() int {
	alive := max(1, p.alive)
	if p.before < outbox.Shards%alive {
		return outbox.Shards/alive + 1
	}
	return outbox.Shards / alive
}

// planShare decides for a relay among its peers. Without share the relay keeps its shards. Shards
// are in their order.
func planShare(shards []shardRow, relay string, among peers, share bool) (p plan) {
	for i := range shards {
		switch s := &shards[i]; {
		case s.relay == relay:
			p.keep = append(p.keep, s.shard)
		case share && s.isFree(relay):
			p.free = append(p.free, s.shard)
		}
	}
	if !share {
		return p
	}
	fair := among.share()
	if len(p.keep) > fair {
		p.keep, p.give = p.keep[:fair], p.keep[fair:]
	}
	p.take = min(fair-len(p.keep), len(p.free))
	return p
}
