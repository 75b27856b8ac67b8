package engine

import (
	"sync"
	"time"
)

// conflictLog limits the log lines and the notes in the store about conflicts of one handler.
type conflictLog struct {
	mu       sync.Mutex
	next     time.Time // of the log
	skipped  int       // since the last line
	nextNote time.Time // in the store
}

// conflictLogEvery is the shortest interval between two log lines of one handler.
const conflictLogEvery = time.Minute

// conflictNoteEvery is the shortest interval between two notes of one handler. A producer whose
// copies all differ then costs a hundredth of the time.
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

// noteFailed stops notes for a while, because a failed note takes a second.
func (l *conflictLog) noteFailed(now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.nextNote = now.Add(conflictLogEvery)
}

// admit reports whether a line may be logged now, and the number of lines that were left out
// before.
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
