package lane

import "github.com/idem-go/idem"

// entry is a message that was pushed and is not settled, with its place in the order of delivery.
type entry struct {
	m     *idem.Message
	line  *line
	seq   uint64
	bytes int
	next  *entry // in its line, or among the spare ones
}

// line holds what must be settled one after the other: the events of one key, one event without a key, or, with a
// single lane, the whole partition. It is ready, or some of its entries are in flight in one lane; else it is empty.
type line struct {
	key         string
	first, last *entry // waiting, in order of delivery
	flying      int    // entries in flight
	ready       bool   // among the lines that a lane may take from
	next        *line  // among the spare ones
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
	l.flying++
	return e
}

// giveBack is the inverse of takeFirst.
func (l *line) giveBack(e *entry) {
	e.next = l.first
	if l.first == nil {
		l.last = e
	}
	l.first = e
	l.flying--
}

// lines are the ones that are ready, as a heap by their first entries: a lane takes the oldest deliveries first, so that
// the watermark keeps up. Lines in turn, whatever waits in them, would leave it behind at the ones with much to do.
type lines []*line

func (h *lines) put(l *line) {
	l.ready = true
	*h = append(*h, l)
	s := *h
	for i := len(s) - 1; i > 0; { // a new delivery is younger than all others, and stays where it is
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
