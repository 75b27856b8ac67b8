package lane

import (
	"sync"
	"time"

	"github.com/idem-go/idem"
)

// callTime is the target duration of one call of the processor while other lanes could share the
// work. Many quick events can share a transaction in that time, and slow events still spread
// over the lanes.
const callTime = 50 * time.Millisecond

// queue holds the unsettled messages, within its bounds, in lines that lanes take from. Messages in
// flight count as held, because of their memory.
type queue struct {
	cfg      Config
	orderKey func(*idem.Message) string
	room     chan struct{} // receives one signal when something was settled
	// pushing is held during put with several lanes, so that the room that put found is still free
	// after the key is computed.
	pushing sync.Mutex

	mu       sync.Mutex
	work     sync.Cond // a line is ready, or the queue is closed
	idle     int       // lanes that wait for work
	waking   bool      // one of them was signalled and does not run yet
	closed   bool
	marks    watermark
	since    time.Time // when the oldest unsettled delivery became the oldest
	begun    bool
	first    int64 // offset of the first message, if begun
	held     int
	bytes    int
	perEvent time.Duration // average time per event, at most callTime
	ready    lines
	picked   lines // used by take only
	keyed    map[string]*line
	only     *line // with one lane: the partition

	spareEntries *entry
	spareLines   *line
}

func newQueue(cfg Config, marks watermark, orderKey func(*idem.Message) string) *queue {
	q := &queue{
		cfg: cfg, orderKey: orderKey, marks: marks, perEvent: callTime,
		room: make(chan struct{}, 1),
	}
	q.work.L = &q.mu
	if cfg.Lanes == 1 {
		q.only = new(line)
	} else {
		q.keyed = make(map[string]*line)
	}
	return q
}

// put adds m, or returns false if there is no room.
func (q *queue) put(m *idem.Message) bool {
	size := footprint(m)
	if q.only != nil {
		q.mu.Lock()
		defer q.mu.Unlock()
		return q.fits(size) && q.add(m, size, "")
	}
	// The order key is computed once per message: only if there is room, and without holding the
	// lock that lanes wait for.
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

// fits reports whether there is room for size bytes. A message larger than the whole bound fits
// while the queue is empty; otherwise no call would ever accept that message.
func (q *queue) fits(size int) bool {
	return !q.closed && q.marks.Pending() < q.cfg.Queue &&
		(q.held == 0 || q.bytes+size <= q.cfg.QueueBytes)
}

// setBytes changes the bound of bytes.
func (q *queue) setBytes(n int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.cfg.QueueBytes = n
	signal(q.room) // a pusher may fit now
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
	if l.inFlight == 0 && !l.ready {
		q.ready.put(l)
		q.wake()
	}
	if q.fits(0) {
		signal(q.room) // another pusher may wait
	}
	return true
}

// wake signals one lane that there is work, unless a signalled lane does not run yet. That lane
// wakes the next one if work is left.
func (q *queue) wake() {
	if q.idle > 0 && !q.waking && len(q.ready) > 0 {
		q.waking = true
		q.work.Signal()
	}
}

// nextWork releases the settled entries of mine and waits for more work. The result is empty
// once the queue is closed.
func (q *queue) nextWork(mine []*entry) []*entry {
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

// take moves the entries of one call into mine, in the order of delivery. A lane takes a share of
// the lines, those with the oldest entries. All waiting entries of these lines are taken as far as
// they fit, because other lanes cannot take them meanwhile.
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
		if n := l.first.bytes; len(mine) > 0 &&
			(len(mine) >= events || bytes+n > q.cfg.BatchBytes) {
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
		if l := q.picked.takeFirst(); l.inFlight == 0 {
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
	signal(q.room) // after Finish: the woken pusher needs a free place in the tracker too
	return moved
}

// keep ends a call that stopped at mine[done]. The lane keeps that entry and its line. The other
// entries return to the queue for other lanes, since waiting for one key must not hold up other
// keys (rules 9, 25).
func (q *queue) keep(mine []*entry, done int) []*entry {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.release(mine[:done])
	rest := mine[done:]
	for i := len(rest) - 1; i > 0; i-- { // in reverse: the first entry of a line is put back last
		l := rest[i].line
		l.giveBack(rest[i])
		if l.inFlight == 0 {
			q.ready.put(l)
		}
	}
	q.wake()
	return append(mine[:0], rest[:min(1, len(rest))]...)
}

// release frees the lines of settled entries without other entries in flight.
func (q *queue) release(settled []*entry) {
	for _, e := range settled {
		l := e.line
		if l.inFlight--; l.inFlight == 0 {
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

// took records that n events took the time all together.
func (q *queue) took(all time.Duration, n int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.perEvent += (min(all/time.Duration(n), callTime) - q.perEvent) / 4
}

// close wakes all lanes. From then on the queue accepts and returns no messages.
func (q *queue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	q.work.Broadcast()
}

// lineOf returns the line of a key. Only lines with entries exist.
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
	if key != "" { // each event without a key has a separate line
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

// progress returns how far the partition is settled, or, if begin is true, where it begins.
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

// pending counts the messages that the watermark does not cover, and returns when the oldest of
// them became the oldest.
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

// footprint estimates the memory that a message takes, in bytes.
func footprint(m *idem.Message) int {
	const fixed = 512 // the structs of the client, the message, and its place in the queue
	n := fixed + len(m.Key) + len(m.Value)
	for _, h := range m.Headers {
		n += 120 + len(h.Key) + len(h.Value)
	}
	return n
}
