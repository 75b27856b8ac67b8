package lane

import (
	"sync"
	"time"

	"github.com/idem-go/idem"
)

// callTime is about how long one call of the processor may take if there are other lanes that could do some of it. It
// is long enough for a transaction to be shared by many quick events, and short enough for slow ones to spread.
const callTime = 50 * time.Millisecond

// queue holds what was pushed and is not settled, within its bounds, in lines that lanes take from. What is in flight
// counts as held: it is in memory as well.
type queue struct {
	cfg      Config
	orderKey func(*idem.Message) string
	room     chan struct{} // has room for one signal: something was settled
	pushing  sync.Mutex    // with several lanes, held by who pushes: the room it found is still there when it has the key

	mu       sync.Mutex
	work     sync.Cond // a line is ready, or the queue is closed
	idle     int       // lanes that wait for work
	waking   bool      // one of them was told and has not come yet
	closed   bool
	marks    watermark
	since    time.Time // since when the oldest unsettled delivery is the oldest
	begun    bool
	first    int64 // offset of the first message, once there is one
	held     int
	bytes    int
	perEvent time.Duration // about how long an event takes, at most callTime
	ready    lines
	picked   lines // empty but in take
	keyed    map[string]*line
	only     *line // with one lane: the partition

	spareEntries *entry
	spareLines   *line
}

func newQueue(cfg Config, marks watermark, orderKey func(*idem.Message) string) *queue {
	q := &queue{cfg: cfg, orderKey: orderKey, marks: marks, perEvent: callTime, room: make(chan struct{}, 1)}
	q.work.L = &q.mu
	if cfg.Lanes == 1 {
		q.only = new(line)
	} else {
		q.keyed = make(map[string]*line)
	}
	return q
}

// put adds m, or reports false if there is no room.
func (q *queue) put(m *idem.Message) bool {
	size := footprint(m)
	if q.only != nil {
		q.mu.Lock()
		defer q.mu.Unlock()
		return q.fits(size) && q.add(m, size, "")
	}
	// The key is asked for once, not once for each time that there is no room, and not while lanes wait for the lock.
	q.pushing.Lock()
	defer q.pushing.Unlock()
	q.mu.Lock()
	fits := q.fits(size)
	q.mu.Unlock()
	if !fits {
		return false
	}
	key := q.orderKey(m)
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.add(m, size, key)
}

// fits reports whether there is room for so many bytes. A message that is larger than the whole bound is taken when
// nothing else is held, else it would never be.
func (q *queue) fits(size int) bool {
	return !q.closed && q.marks.Pending() < q.cfg.Queue && (q.held == 0 || q.bytes+size <= q.cfg.QueueBytes)
}

func (q *queue) add(m *idem.Message, size int, key string) bool {
	seq, ok := q.marks.Begin(m.Offset)
	if !ok {
		return false
	}
	if !m.Time.IsZero() {
		q.marks.Stamp(seq, m.Time.UnixMilli())
	}
	if q.marks.Pending() == 1 {
		q.since = time.Now()
	}
	if !q.begun {
		q.begun, q.first = true, m.Offset
	}
	l := q.lineOf(key)
	e := q.newEntry()
	*e = entry{m: m, line: l, seq: seq, bytes: size}
	l.append(e)
	q.held++
	q.bytes += size
	if l.flying == 0 && !l.ready {
		q.ready.put(l)
		q.wake()
	}
	if q.fits(0) {
		signal(q.room) // there may be another pusher
	}
	return true
}

// wake tells a lane that there is work, unless one is on its way already. That one tells the next if it leaves some.
func (q *queue) wake() {
	if q.idle > 0 && !q.waking && len(q.ready) > 0 {
		q.waking = true
		q.work.Signal()
	}
}

// next ends a call that settled all of mine and waits for more. It returns nothing once the queue is closed.
func (q *queue) next(mine []*entry) []*entry {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.release(mine)
	mine = mine[:0]
	for len(q.ready) == 0 && !q.closed {
		q.idle++
		q.work.Wait()
		q.idle--
		q.waking = false
	}
	if q.closed {
		return mine
	}
	mine = q.take(mine)
	q.wake()
	return mine
}

// take moves what one call should settle into mine, in the order of delivery. A lane takes its share of the lines, those
// with the oldest entries, and of them all that is waiting as far as it fits: other lanes cannot do it anyway.
func (q *queue) take(mine []*entry) []*entry {
	share := (len(q.ready) + q.cfg.Lanes - 1) / q.cfg.Lanes
	events, bytes := q.cfg.Batch, 0
	if q.only == nil && q.perEvent > 0 {
		events = min(events, max(1, int(callTime/q.perEvent)))
	}
	for range min(share, events) {
		q.picked.put(q.ready.takeFirst())
	}
	for len(q.picked) > 0 {
		l := q.picked[0]
		if n := l.first.bytes; len(mine) > 0 && (len(mine) >= events || bytes+n > q.cfg.BatchBytes) {
			break
		}
		q.picked.takeFirst()
		e := l.takeFirst()
		bytes += e.bytes
		mine = append(mine, e)
		if l.first != nil {
			q.picked.put(l)
		}
	}
	for len(q.picked) > 0 {
		if l := q.picked.takeFirst(); l.flying == 0 {
			q.ready.put(l)
		}
	}
	return mine
}

// settled finishes entries and reports whether the watermark moved.
func (q *queue) settled(done []*entry) (moved bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, e := range done {
		moved = q.marks.Finish(e.seq) || moved
		q.held--
		q.bytes -= e.bytes
		e.m = nil
	}
	if moved {
		q.since = time.Now()
	}
	signal(q.room) // after Finish: whoever is told of room must find a place in the tracker too
	return moved
}

// keep ends a call that came no further than to mine[done]. The lane keeps that entry, and with it its line; what else it
// took is given back for others to take, since waiting for one key is no reason to hold up another (rules 9, 25).
func (q *queue) keep(mine []*entry, done int) []*entry {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.release(mine[:done])
	rest := mine[done:]
	for i := len(rest) - 1; i > 0; i-- { // from the back: what comes first in its line is put there last
		l := rest[i].line
		l.giveBack(rest[i])
		if l.flying == 0 {
			q.ready.put(l)
		}
	}
	q.wake()
	return append(mine[:0], rest[:min(1, len(rest))]...)
}

// release gives up the lines of settled entries for which nothing is in flight any longer.
func (q *queue) release(settled []*entry) {
	for _, e := range settled {
		l := e.line
		if l.flying--; l.flying == 0 {
			if l.first != nil {
				q.ready.put(l)
			} else if l != q.only {
				q.drop(l)
			}
		}
		*e = entry{next: q.spareEntries}
		q.spareEntries = e
	}
}

// took notes how long n events took together.
func (q *queue) took(all time.Duration, n int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.perEvent += (min(all/time.Duration(n), callTime) - q.perEvent) / 4
}

// close wakes all lanes: nothing more is put in or taken out.
func (q *queue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	q.work.Broadcast()
}

// lineOf returns the line for a key. Lines exist only while there is something in them.
func (q *queue) lineOf(key string) *line {
	if q.only != nil {
		return q.only
	}
	if l := q.keyed[key]; l != nil {
		return l
	}
	l := q.spareLines
	if l == nil {
		l = new(line)
	} else {
		q.spareLines = l.next
	}
	*l = line{key: key}
	if key != "" { // else it is in no order and nothing joins it
		q.keyed[key] = l
	}
	return l
}

func (q *queue) drop(l *line) {
	if l.key != "" {
		delete(q.keyed, l.key)
	}
	*l = line{next: q.spareLines}
	q.spareLines = l
}

func (q *queue) newEntry() *entry {
	e := q.spareEntries
	if e == nil {
		return new(entry)
	}
	q.spareEntries = e.next
	return e
}

func (q *queue) watermark() (next int64, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.marks.Watermark()
}

// progress says how far the partition is settled: from where on nothing is if begin is true.
func (q *queue) progress(begin bool) (next int64, at time.Time, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if begin {
		return q.first, time.Time{}, q.begun
	}
	if next, ok = q.marks.Watermark(); ok && q.marks.Time() != 0 {
		at = time.UnixMilli(q.marks.Time()).UTC()
	}
	return next, at, ok
}

// pending counts what the watermark does not cover, and says since when the oldest of it is the oldest.
func (q *queue) pending() (n int, since time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.marks.Pending(), q.since
}

func (q *queue) seal() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.marks.Seal()
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// footprint is about how many bytes of memory a message keeps.
func footprint(m *idem.Message) int {
	const fixed = 128 // the structs themselves
	n := fixed + len(m.Key) + len(m.Value)
	for _, h := range m.Headers {
		n += 40 + len(h.Key) + len(h.Value)
	}
	return n
}
