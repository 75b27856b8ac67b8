package engine

import (
	"context"
	"sync"
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/observe"
)

// notifyKnown tells of a delivery that is settled because its event is known.
func (p *Processor) notifyKnown(ctx context.Context, t *task, a dedup.Answer) {
	if a.Verdict == dedup.Conflict {
		p.notifyConflict(ctx, t, a, false)
	}
	p.notifyDuplicate(ctx, t, a)
}

// conflictLogEvery is how often at most a conflict is logged for one handler.
const conflictLogEvery = time.Minute

// conflictNoteEvery is how often at most a conflict of one handler is noted in the store, so that a producer whose copies all
// differ costs a hundredth of the time.
const conflictNoteEvery = 100 * time.Millisecond

// conflictLog bounds what conflicts of one handler write.
type conflictLog struct {
	mu       sync.Mutex
	next     time.Time // of the log
	skipped  int       // since the last line
	nextNote time.Time // in the store
}

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

// notifyConflict tells of a copy with another content that is settled: skipped, or dead-lettered.
func (p *Processor) notifyConflict(ctx context.Context, t *task, a dedup.Answer, deadLetter bool) {
	for _, o := range p.obs.conflict {
		o.ObserveConflict(ctx, observe.ConflictEvent{
			Group: p.cfg.Group, Message: t.message, Key: t.request.Key, First: a.First, Known: a.Known, DeadLetter: deadLetter, Shadow: p.cfg.Shadow,
		})
	}
	p.noteConflict(ctx, t)
	leftOut, ok := t.route.conflicts.admit(time.Now())
	if !ok {
		return
	}
	text := "event ID is known with another content, copy skipped"
	switch {
	case p.cfg.Shadow:
		text = "event ID is known with another content"
	case deadLetter:
		text = "event ID is known with another content, copy dead-lettered"
	}
	attrs := append(p.messageAttrs(t.message, t.request.Key), "known", a.Known.String(),
		"first_topic", a.First.Topic, "first_partition", a.First.Partition, "first_offset", a.First.Offset)
	if leftOut > 0 {
		attrs = append(attrs, "not_logged", leftOut)
	}
	p.log.WarnContext(ctx, text, attrs...)
}

// conflictNoteTime is how long the store has to note a conflict. The delivery waits for it.
const conflictNoteTime = time.Second

// noteConflict lets the store remember the copy, for a person who looks at the event. It is lost if that fails.
func (p *Processor) noteConflict(ctx context.Context, t *task) {
	noter, ok := t.access.store.(dedup.ConflictNoter)
	if !ok || t.message.Topic == "" || t.access.isDown.Load() || !t.route.conflicts.admitNote(time.Now()) {
		return
	}
	err := p.bounded(context.WithoutCancel(ctx), conflictNoteTime, func(ctx context.Context) error {
		return noter.NoteConflict(ctx, t.request.Key, t.message.Origin())
	})
	if err != nil {
		t.route.conflicts.noteFailed(time.Now())
		p.log.DebugContext(ctx, "conflict was not noted in the store", append(p.messageAttrs(t.message, t.request.Key), "error", p.errorText(err))...)
	}
}
