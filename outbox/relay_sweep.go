package outbox

import (
	"maps"
	"slices"
	"time"
)

const (
	// leastBatch is the size of a relay's first batch, and of one after a failure of the broker.
	leastBatch = 100
	// A larger batch may follow a batch that took less than quickBatch. A batch of half the size
	// follows a batch that took more than slowBatch. All aggregates wait for the one with the most
	// rows in a batch.
	quickBatch = 200 * time.Millisecond
	slowBatch  = time.Second
)

// nextLimit returns the size of the batch after b. The size doubles while batches are full and
// quick, and halves when a batch was slow or the backlog is gone. most bounds the size.
func nextLimit(b *batch, limit, most int, backlog bool) int {
	least := min(leastBatch, most)
	switch {
	case b.broker > 0:
		return least
	case b.seen.Took > slowBatch, !backlog:
		return max(least, limit/2)
	case b.seen.Rows >= limit && b.seen.Took < quickBatch:
		return min(2*limit, most)
	}
	return limit
}

// sweep chooses the shards of each round. A sweep is a series of rounds that looks into every shard
// of the relay. Only the goroutine of Run uses it.
type sweep struct {
	interval time.Duration
	limit    int          // the size of a batch, which only changes between rounds
	busy     map[int]bool // shards that had a full quota when they were last fetched
	left     []int        // shards that the current sweep has not fetched yet
	began    time.Time    // when the current sweep began
	again    []int        // shards of the last round, in which failed aggregates were left out
	turns    int
}

// step is the part of a sweep that one round does.
type step struct {
	shards  []Lease
	fresh   bool // aggregates that failed before are left out
	retry   bool // aggregates that failed before are fetched too
	partial bool // only busy shards are fetched
}

// next returns the shards of the next round: the busy ones, and all of them at least every
// interval. A round has at most limit shards, and starts at another one each time.
//
// due reports that the backoff of a failed aggregate is over. A sweep then fetches each shard
// twice: first without the failed aggregates, then with them. With failed aggregates always first,
// the rows behind would never be published. With failed aggregates always last, their own rows
// would never be published.
func (s *sweep) next(now time.Time, held map[int]Lease, due bool) step {
	isGone := func(shard int) bool { _, ok := held[shard]; return !ok }
	maps.DeleteFunc(s.busy, func(shard int, full bool) bool { return !full || isGone(shard) })
	s.left, s.again = slices.DeleteFunc(s.left, isGone), slices.DeleteFunc(s.again, isGone)
	s.turns++
	n := step{fresh: due}
	var shards []int
	switch {
	case len(s.again) > 0:
		shards, s.again = s.again, nil
		n.fresh, n.retry = false, true
	case len(s.busy) > 0 && len(s.left) == 0 && now.Sub(s.began) < s.interval:
		shards = rotate(slices.Sorted(maps.Keys(s.busy)), s.turns)
		shards = shards[:min(len(shards), s.limit)]
		n.partial = true
	default:
		if len(s.left) == 0 {
			s.left, s.began = rotate(slices.Sorted(maps.Keys(held)), s.turns), now
		}
		count := min(len(s.left), s.limit)
		shards, s.left = s.left[:count:count], s.left[count:]
		if n.fresh {
			s.again = slices.Clone(shards)
		}
	}
	n.shards = make([]Lease, len(shards))
	for i, shard := range shards {
		n.shards[i] = held[shard]
	}
	return n
}

// fetched notes which of the shards have more rows.
func (s *sweep) fetched(shards []Lease, rows []Row) {
	count := map[int]int{}
	for i := range rows {
		count[rows[i].Shard]++
	}
	quota := (s.limit + len(shards) - 1) / len(shards)
	for _, l := range shards {
		s.busy[l.Shard] = count[l.Shard] >= quota
	}
}

// backlog reports whether a shard had more rows when it was last fetched.
func (s *sweep) backlog() bool {
	for _, full := range s.busy {
		if full {
			return true
		}
	}
	return false
}

// unfinished reports whether the current sweep has shards left.
func (s *sweep) unfinished() bool { return len(s.left)+len(s.again) > 0 }

// rotate returns the list, starting at another element.
func rotate(list []int, by int) []int {
	if len(list) == 0 {
		return nil
	}
	by %= len(list)
	return slices.Concat(list[by:], list[:by])
}
