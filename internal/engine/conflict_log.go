package engine

import (
	"sync"
	"time"
)

// conflictLog bounds what conflicts of one handler write.
type conflictLog struct {
	mu       sync.Mutex
	next     time.Time // of the log
	skipped  int       // since the last line
	nextNote time.Time // in the store
}

// conflictLogEvery is how often at most a conflict is logged for one handler.
const conflictLogEvery = time.Minute

// conflictNoteEvery is how often at most a conflict of one handler is noted in the store, so that a producer whose copies all
// differ costs a hundredth of the time.
const conflictNoteEvery = 100 * time.Millisecond

// admitNote reports whether a conflict may be noted in the store now.
func (l *conflictLog) admitNote(now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now.Before(l.nextNote) {
		return false
	}
	l.nextNote = now.Add(conflictNoteEvery)
	return true
}

// noteFailed lets the store rest: a note that fails costs a second.
func (l *conflictLog) noteFailed(now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.nextNote = now.Add(conflictLogEvery)
}

// admit reports whether a line may be logged now, and how many were left out before it.
func (l *conflictLog) admit(now time.Time) (leftOut int, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now.Before(l.next) {
		l.skipped++
		return 0, false
	}
	leftOut, l.skipped = l.skipped, 0
	l.next = now.Add(conflictLogEvery)
	return leftOut, true
}
