package lane

import "github.com/idem-go/idem"

// entry is an unsettled message with its place in the order of delivery.
type entry struct {
	m     *idem.Message
	line  *line
	seq   uint64
	bytes int
	next  *entry // in its line, or in the free list
}

// line holds messages that must be settled one after the other: the events of one key, or one
// event without a key. With a single lane, line holds the whole partition. A line is ready, or
// empty, or has entries in flight in one lane.
type line struct {
	key         string
	first, last *entry // waiting, in order of delivery
	inFlight    int    // entries in flight
	ready       bool   // a lane may take from it
	next        *line  // in the free list
}

func (l *line) append(e *entry) {
	e.next = nil
	if l.first == nil {
		l.first = e
	} else {
		l.last.next = e
	}
	l.last = e
}

// takeFirst puts the first entry in flight.
func (l *line) takeFirst() *entry {
	e := l.first
	l.first, e.next = e.next, nil
	l.inFlight++
	return e
}

// giveBack is the inverse of takeFirst.
func (l *line) giveBack(e *entry) {
	e.next = l.first
	if l.first == nil {
		l.last = e
	}
	l.first = e
	l.inFlight--
}

// lines holds the ready lines as a heap, ordered by the first entries. A lane takes the oldest
// deliveries first, so that the watermark keeps up. Taking lines in turn would hold the watermark
// back at the lines with the most entries.
type lines []*line

func (h *lines) put(l *line) {
	l.ready = true
	*h = append(*h, l)
	s := *h
	for i := len(s) - 1; i > 0; { // a new delivery is the youngest, and stays at the end
		up := (i - 1) / 2
		if s[up].first.seq <= s[i].first.seq {
			return
		}
		s[up], s[i] = s[i], s[up]
		i = up
	}
}

func (h *lines) takeFirst() *line {
	s := *h
	l, last := s[0], len(s)-1
	s[0], s[last] = s[last], nil
	s = s[:last]
	*h = s
	l.ready = false
	for i := 0; ; {
		down := 2*i + 1
		if down >= last {
			return l
		}
		if right := down + 1; right < last && s[right].first.seq < s[down].first.seq {
			down = right
		}
		if s[i].first.seq <= s[down].first.seq {
			return l
		}
		s[i], s[down] = s[down], s[i]
		i = down
	}
}
