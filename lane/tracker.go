package lane

// watermark is what a queue needs of a [tracker]. It is guarded by the queue's lock.
type watermark interface {
	Begin(offset int64) (seq uint64, ok bool)
	Stamp(seq uint64, at int64)
	Finish(seq uint64) (moved bool)
	Time() int64
	Watermark() (next int64, ok bool)
	Pending() int
	Seal()
}

// tracker knows which deliveries of one assignment are finished, and from that the watermark: the offset after the last
// delivery of the finished prefix. It goes by the order of delivery and never adds to an offset to guess the next one,
// since logs have gaps where records were compacted away, aborted, or belong to Kafka itself (K-31).
//
// Deliveries may finish in any order. There is room for a fixed number of deliveries from the watermark on. Each
// assignment has a tracker of its own, and a sealed one stands still (K-39). It is not safe for concurrent use.
type tracker struct {
	ring   []delivery
	first  uint64 // sequence number of the oldest delivery that still blocks the watermark
	begun  uint64 // sequence number of the next delivery
	next   int64  // the watermark
	at     int64  // of the last delivery below it
	moved  bool   // there is a watermark
	sealed bool
}

// delivery is a place in the ring: its offset, its time, and whether it is finished.
type delivery struct {
	offset   int64
	at       int64
	finished bool
}

func newTracker(room int) *tracker { return &tracker{ring: make([]delivery, max(room, 1))} }

// Begin notes the next delivery and returns its sequence number. It reports false, and notes nothing, if there is no
// room or the tracker is sealed.
func (t *tracker) Begin(offset int64) (seq uint64, ok bool) {
	if t.sealed || t.begun-t.first >= uint64(len(t.ring)) {
		return 0, false
	}
	seq = t.begun
	t.ring[seq%uint64(len(t.ring))] = delivery{offset: offset}
	t.begun++
	return seq, true
}

// Stamp notes the time of a delivery that was begun and is not finished, in milliseconds since 1970.
func (t *tracker) Stamp(seq uint64, at int64) { t.ring[seq%uint64(len(t.ring))].at = at }

// Time returns the time of the last delivery below the watermark, as it was stamped, or zero.
func (t *tracker) Time() int64 { return t.at }

// Finish notes that a delivery is settled and reports whether the watermark moved. Repeating it, or naming a delivery
// that was never begun, changes nothing.
func (t *tracker) Finish(seq uint64) (moved bool) {
	if t.sealed || seq < t.first || seq >= t.begun {
		return false
	}
	t.ring[seq%uint64(len(t.ring))].finished = true
	for t.first < t.begun {
		d := &t.ring[t.first%uint64(len(t.ring))]
		if !d.finished {
			break
		}
		t.next, t.at, t.moved, moved = d.offset+1, d.at, true, true
		t.first++
	}
	return moved
}

// Watermark returns the offset to commit; ok is false as long as nothing is.
func (t *tracker) Watermark() (next int64, ok bool) { return t.next, t.moved }

// Pending counts the deliveries that the watermark does not cover.
func (t *tracker) Pending() int { return int(t.begun - t.first) }

// Seal ends the assignment: nothing moves the watermark any longer.
func (t *tracker) Seal() { t.sealed = true }
