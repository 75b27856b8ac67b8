package lane

import (
	"sync"

	"github.com/idem-go/idem"
)

// entry is a queued message with its place in the order of delivery.
type entry struct {
	m     *idem.Message
	seq   uint64
	bytes int
}

// queue holds what was pushed and is not settled, within two bounds. What is being worked on counts as held: it is in
// memory as well.
type queue struct {
	mu       sync.Mutex
	waiting  []entry
	held     int // messages, waiting or being worked on
	bytes    int
	maxHeld  int
	maxBytes int
	room     chan struct{} // has room for one signal: something was released
	some     chan struct{} // has room for one signal: something was put in
}

func newQueue(maxHeld, maxBytes int) *queue {
	return &queue{maxHeld: maxHeld, maxBytes: maxBytes, room: make(chan struct{}, 1), some: make(chan struct{}, 1)}
}

// put adds m, whose delivery begin notes, or reports false if there is no room. A message that is larger than the whole
// bound is taken when nothing else is held, else it would never be.
func (q *queue) put(m *idem.Message, begin func() (seq uint64, ok bool)) bool {
	size := footprint(m)
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.held >= q.maxHeld || q.held > 0 && q.bytes+size > q.maxBytes {
		return false
	}
	seq, ok := begin()
	if !ok {
		return false
	}
	q.waiting = append(q.waiting, entry{m: m, seq: seq, bytes: size})
	q.held++
	q.bytes += size
	signal(q.some)
	if q.held < q.maxHeld && q.bytes < q.maxBytes {
		signal(q.room) // there may be another pusher
	}
	return true
}

// take moves up to n entries into batch.
func (q *queue) take(batch []entry, n int) []entry {
	q.mu.Lock()
	defer q.mu.Unlock()
	n = min(n, len(q.waiting))
	batch = append(batch[:0], q.waiting[:n]...)
	rest := copy(q.waiting, q.waiting[n:])
	clear(q.waiting[rest:])
	q.waiting = q.waiting[:rest]
	return batch
}

// release gives back the room of an entry that is settled.
func (q *queue) release(e entry) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.held--
	q.bytes -= e.bytes
	signal(q.room)
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
