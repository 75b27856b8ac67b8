package lane

// watermark is the part of [tracker] that a queue uses. The queue's lock guards it.
type watermark interface {
	Begin(offset int64) (seq uint64, ok bool)
	Stamp(seq uint64, at int64)
	Finish(seq uint64) (moved bool)
	Time() int64
	Watermark() (next int64, ok bool)
	Pending() int
	Seal()
}

// tracker records which deliveries of one assignment are finished, and computes the watermark: the
// offset after the last delivery of the finished prefix. The tracker follows the order of delivery
// and never computes the next offset, since logs have gaps. Gaps come from compacted and aborted
// records, and from Kafka's own control records (K-31).
//
// Deliveries may finish in any order. A tracker has places for a fixed number of deliveries from
// the watermark on. Each assignment has a separate tracker, and a sealed one never moves again
// (K-39). Not safe for concurrent use.
type tracker struct {
	ring   []delivery
	first  uint64 // sequence number of the oldest delivery that blocks the watermark
	begun  uint64 // sequence number of the next delivery
	next   int64  // the watermark
	at     int64  // time of the last delivery below it
	moved  bool   // there is a watermark
	sealed bool
}

// delivery is a place in the ring.
type delivery struct {
	offset   int64
	at       int64
	finished bool
}

func newTracker(room int) *tracker { return &tracker{ring: make([]delivery, max(room, 1))} }

// Begin adds the next delivery and returns the sequence number. The result is false, without a new
// delivery, if there is no room or the tracker is sealed.
func (t *tracker) Begin(offset int64) (seq uint64, ok bool) {
	if t.sealed || t.begun-t.first >= uint64(len(t.ring)) {
		return 0, false
	}
	seq = t.begun
	t.ring[seq%uint64(len(t.ring))] = delivery{offset: offset}
	t.begun++
	return seq, true
}

// Stamp sets the time of an unfinished delivery, in milliseconds since 1970.
func (t *tracker) Stamp(seq uint64, at int64) { t.ring[seq%uint64(len(t.ring))].at = at }

// Time returns the time stamp of the last delivery below the watermark, or zero.
func (t *tracker) Time() int64 { return t.at }

// Finish marks a delivery as settled and reports whether the watermark moved. A repeated or unknown
// sequence number has no effect.
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

// Watermark returns the offset to commit. ok is false before the first delivery is settled.
func (t *tracker) Watermark() (next int64, ok bool) { return t.next, t.moved }

// Pending counts the deliveries that the watermark does not cover.
func (t *tracker) Pending() int { return int(t.begun - t.first) }

// Seal ends the assignment. The watermark does not move any more.
func (t *tracker) Seal() { t.sealed = true }
