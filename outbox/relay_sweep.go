package outbox

import (
	"maps"
	"slices"
)

// wanted are the shards to look in now: the busy ones, and at least every Interval all. No more than Batch of them at a time, and another
// one first each time: nobody is always the last.
//
// As long as something that failed is due, a sweep looks into each shard twice: first only for what is fresh, then for what failed too. Were
// what failed always tried first, nothing behind it would ever be seen; were it tried last, it never would be.
func (b *batch) wanted() []Lease {
	r, held := b.r, b.r.share.held()
	isGone := func(shard int) bool { _, ok := held[shard]; return !ok }
	maps.DeleteFunc(r.busy, func(shard int, full bool) bool { return !full || isGone(shard) })
	r.sweep, r.again = slices.DeleteFunc(r.sweep, isGone), slices.DeleteFunc(r.again, isGone)
	r.mutes.keep(held)
	r.turns++
	b.fresh = r.mutes.due(b.began)
	var shards []int
	switch {
	case len(r.again) > 0:
		shards, r.again = r.again, nil
		b.fresh, b.retry = false, true
	case len(r.busy) > 0 && len(r.sweep) == 0 && b.began.Sub(r.swept) < r.cfg.Interval:
		shards = rotate(slices.Sorted(maps.Keys(r.busy)), r.turns)
		shards = shards[:min(len(shards), r.cfg.Batch)]
		b.partial = true
	default:
		if len(r.sweep) == 0 {
			r.sweep, r.swept = rotate(slices.Sorted(maps.Keys(held)), r.turns), b.began
		}
		n := min(len(r.sweep), r.cfg.Batch)
		shards, r.sweep = r.sweep[:n:n], r.sweep[n:]
		if b.fresh {
			r.again = slices.Clone(shards)
		}
	}
	leases := make([]Lease, len(shards))
	for i, shard := range shards {
		leases[i] = held[shard]
	}
	return leases
}

// unseen reports whether the sweep under way has still to look somewhere.
func (r *Relay) unseen() bool { return len(r.sweep)+len(r.again) > 0 }

func rotate(list []int, by int) []int {
	if len(list) == 0 {
		return nil
	}
	by %= len(list)
	return slices.Concat(list[by:], list[:by])
}
