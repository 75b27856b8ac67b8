package runner

import (
	"sync"
	"time"
)

// A partition is caught up if no visible record lies between the next offset and the end of the
// log. The high-water mark that a client reports is not enough. It is as old as the last record,
// even if the leader has been down since. And behind the last record there may be records that no
// consumer gets: markers of transactions, and aborted records. So each leader is asked for the
// records behind the next offset, just before progress is recorded.

const (
	// freshEnd is how old an answer may be: more than the time between two answers. It is far less
	// than the minute by which stores date back a partition that is caught up.
	freshEnd = 15 * time.Second
	// EndsWait bounds how long progress waits for the leaders.
	EndsWait = 2 * time.Second
	// visibleFor is how long a visible record is assumed to remain. Only compaction can remove the
	// record.
	visibleFor = time.Minute
)

// Tail is the known end of a partition's log, from the last answer of the leader. Safe for
// concurrent use.
type Tail struct {
	mu      sync.Mutex
	from    int64     // no visible record lies between from and clear
	clear   int64     // -1: unknown
	at      time.Time // when clear was last known to be the end of the log; zero: never
	waiting time.Time // when a visible record was last found at clear; zero: none
}

func newTail() *Tail { return &Tail{from: -1, clear: -1} }

// caughtUp reports whether all records that were in the log a moment ago lie below next.
func (t *Tail) caughtUp(next int64, now time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return !t.at.IsZero() && now.Sub(t.at) < freshEnd && t.from <= next
}

// beyond returns the first offset from next on that may hold a visible record.
func (t *Tail) beyond(next int64) int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	if next >= 0 && t.from >= 0 && t.from <= next {
		return max(next, t.clear)
	}
	return next
}

// Ask returns the offset to ask the leader for, if next is the partition's next offset. No answer
// is wanted while a visible record is known to lie there.
func (t *Tail) Ask(next int64, now time.Time) (offset int64, wanted bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.clear < 0 || next < t.from || next > t.clear {
		t.from, t.clear, t.at, t.waiting = next, next, time.Time{}, time.Time{}
	}
	return t.clear, t.waiting.IsZero() || now.Sub(t.waiting) >= visibleFor
}

// Learn takes the answer to a question of the time asked. The result is true if the leader is to be
// asked again at once.
func (t *Tail) Learn(asked time.Time, offset int64, found Look) (more bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if offset != t.clear { // a later question has been answered
		return false
	}
	t.clear, t.waiting = found.Clear, time.Time{}
	switch {
	case found.Visible:
		t.at, t.waiting = time.Time{}, asked
	case found.End:
		t.at = asked
	default:
		return found.Clear > offset
	}
	return false
}

// Forget forgets the end of the log: the partition is not caught up until the next answer.
func (t *Tail) Forget() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.at = time.Time{}
}

// shows reports whether the leader has last shown a visible record that is the first from next on.
func (t *Tail) shows(next int64) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return !t.waiting.IsZero() && t.from <= next && next <= t.clear
}

// Look is the content of a leader's answer about a log from an offset on. A record is visible
// unless the consumer skips it: markers of transactions, and with committed reads aborted records.
type Look struct {
	Clear   int64 // no visible record lies below
	Visible bool  // a visible record lies at Clear
	End     bool  // Clear is the end of the log, and no transaction is open before it
}

// EndQuestion asks for the end of a partition's log, from the next offset on.
type EndQuestion struct {
	TopicPartition
	Claim Claim
	Tail  *Tail
	Next  int64
}

// EndAsker finds the ends of logs. For each question it asks the leader about the offset of
// [Tail.Ask] if an answer is wanted, and passes the answer to [Tail.Learn]. Safe for concurrent
// use.
type EndAsker interface {
	// Ask returns when all questions are answered, after [EndsWait], or when stop is closed.
	Ask(questions []EndQuestion, stop <-chan struct{})
}
