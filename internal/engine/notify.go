package engine

import (
	"context"
	"log/slog"
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/idemtype"
	"github.com/idem-go/idem/internal/safetext"
	"github.com/idem-go/idem/observe"
)

// This file reports events to the log and to observers. The log has changes of state. Observers
// also get a report of every event, as the log does at level DEBUG.

// taskAttrs returns the log attributes of an event.
func taskAttrs(t *task) []any {
	return append(messageAttrs(t.message, t.request.Key), "attempt", t.attempt)
}

func (r *reporter) notifyHandled(ctx context.Context, t *task, took time.Duration, err error) {
	for _, h := range r.obs.Handled {
		h.ObserveHandled(ctx, observe.HandledEvent{
			Group: r.group, Message: t.message, Key: t.request.Key, Attempt: t.attempt,
			Took: took, Err: err,
		})
	}
}

func (r *reporter) observeClaim(
	ctx context.Context, t *task, v dedup.Verdict, since time.Time, err error,
) {
	if len(r.obs.Claim) == 0 {
		return
	}
	e := observe.ClaimEvent{
		Group: r.group, Message: t.message, Key: t.request.Key, Verdict: v, Took: time.Since(since),
		Err: err,
	}
	for _, o := range r.obs.Claim {
		o.ObserveClaim(ctx, e)
	}
}

// claimObserver returns a function that reports the answers for tasks, or nil without observers.
func (r *reporter) claimObserver(
	ctx context.Context, tasks []*task, answers []dedup.Answer,
) func(since time.Time, err error) {
	if len(r.obs.Claim) == 0 {
		return nil
	}
	return func(since time.Time, err error) {
		for i, t := range tasks {
			r.observeClaim(ctx, t, answers[i].Verdict, since, err)
		}
	}
}

func (r *reporter) notifyDuplicate(ctx context.Context, t *task, a dedup.Answer) {
	t.handled, t.seen = a.Verdict == dedup.Done || a.Verdict == dedup.Rescheduled, a.First
	if !r.shadow {
		t.kind = observe.SettledDuplicate
	}
	if r.log.Enabled(ctx, slog.LevelDebug) {
		r.log.DebugContext(ctx, "duplicate skipped",
			append(messageAttrs(t.message, t.request.Key), "verdict", a.Verdict.String())...)
	}
	if len(r.obs.Duplicate) == 0 {
		return
	}
	e := observe.DuplicateEvent{
		Group: r.group, Message: t.message, Key: t.request.Key, Verdict: a.Verdict,
		SameRecord: t.message.SameRecord(a.First), Shadow: r.shadow,
	}
	if !a.First.Time.IsZero() && !t.message.Time.IsZero() {
		e.Age = t.message.Time.Sub(a.First.Time)
	}
	for _, o := range r.obs.Duplicate {
		o.ObserveDuplicate(ctx, e)
	}
}

// notifyDeferred reports an event that waits behind a failed one of the Kafka key.
func (r *reporter) notifyDeferred(ctx context.Context, t *task) {
	if r.log.Enabled(ctx, slog.LevelDebug) {
		r.log.DebugContext(ctx, "event waits behind another one of its key",
			messageAttrs(t.message, t.request.Key)...)
	}
	for _, h := range r.obs.Retry {
		h.ObserveRetry(ctx, observe.RetryEvent{
			Group: r.group, Message: t.message, Key: t.request.Key, Deferred: true,
		})
	}
}

// notifyRescheduled reports an event with a delayed retry.
func (r *reporter) notifyRescheduled(ctx context.Context, t *task, o outcome, topic string) {
	r.log.WarnContext(ctx, o.failed()+", later attempts go on elsewhere",
		append(taskAttrs(t), "in", t.action.delay, "to", topic, "error", r.errorText(o.err))...)
	for _, h := range r.obs.Retry {
		h.ObserveRetry(ctx, observe.RetryEvent{
			Group: r.group, Message: t.message, Key: t.request.Key, Attempt: t.attempt,
			Delay: t.action.delay, Topic: topic, Later: true, Err: o.err,
		})
	}
}

func (r *reporter) notifyRetry(ctx context.Context, t *task, o outcome) {
	r.log.WarnContext(
		ctx,
		o.failed()+", will try again",
		append(
			taskAttrs(t), "in", t.action.delay.Round(time.Millisecond), "error", r.errorText(o.err),
		)...)
	for _, h := range r.obs.Retry {
		h.ObserveRetry(ctx, observe.RetryEvent{
			Group: r.group, Message: t.message, Key: t.request.Key, Attempt: t.attempt,
			Delay: t.action.delay, Err: o.err,
		})
	}
}

// notifyStall reports a handler that ignores its cancelled context.
func (r *reporter) notifyStall(ctx context.Context, t *task) {
	over := t.route.Timeout + r.lease
	r.log.ErrorContext(ctx, "handler ignores its cancelled context",
		append(taskAttrs(t), "for", over)...)
	for _, o := range r.obs.Stall {
		o.ObserveStall(
			ctx,
			observe.StallEvent{Group: r.group, Message: t.message, Key: t.request.Key, For: over},
		)
	}
}

// notifyGivenUp reports a transaction of several events whose handler still runs. err may tell that
// events which never ran may count as handled.
func (r *reporter) notifyGivenUp(ctx context.Context, t *task, err error) {
	r.log.WarnContext(ctx, "handler hangs: its transaction is given up",
		append(taskAttrs(t), "error", r.errorText(err))...)
}

// maxInDoubt limits the keys in one log line.
const maxInDoubt = 20

// notifyInDoubt reports events that may count as handled, although they did not run.
func (r *reporter) notifyInDoubt(ctx context.Context, events []*task, err error) {
	var keys []string
	for _, t := range events[:min(len(events), maxInDoubt)] {
		keys = append(keys, t.request.Key.String())
	}
	r.log.ErrorContext(ctx, "events that never ran may count as handled", "events", len(events),
		"keys", keys, "error", r.errorText(err))
}

func (r *reporter) notifySkipped(
	ctx context.Context, m *idemtype.Message, typ string, tombstone bool,
) {
	if !tombstone {
		r.unhandled.note(true)
		if r.unhandled.first(typ) {
			r.log.WarnContext(ctx, "no handler for this event type, skipping",
				append(messageAttrs(m, dedup.Key{}), "type", safetext.Cut(typ, dedup.MaxPart))...)
		}
	}
	for _, o := range r.obs.Skipped {
		o.ObserveSkipped(
			ctx, observe.SkippedEvent{Group: r.group, Message: m, Type: typ, Tombstone: tombstone},
		)
	}
}

// notifyLapsed reports that the lease of a claim ended before the handler began.
func (r *reporter) notifyLapsed(ctx context.Context, t *task) {
	r.log.WarnContext(ctx, "lease was over before the handler began: claiming again",
		append(taskAttrs(t), "lease", r.lease)...)
}

// notifyLost reports a claim that was lost before the end of the event was recorded.
func (r *reporter) notifyLost(ctx context.Context, t *task) {
	r.log.WarnContext(ctx, "claim was lost before the end of its event was recorded",
		taskAttrs(t)...)
	for _, o := range r.obs.Lost {
		o.ObserveLost(
			ctx, observe.LostEvent{Group: r.group, Message: t.message, Key: t.request.Key},
		)
	}
}

// notifyKnown reports a delivery of a known event.
func (r *reporter) notifyKnown(ctx context.Context, t *task, a dedup.Answer) {
	if a.Verdict == dedup.Conflict {
		r.notifyConflict(ctx, t, a, false)
	}
	r.notifyDuplicate(ctx, t, a)
}

// notifyConflict reports a settled copy with another content, which was skipped or dead-lettered.
func (r *reporter) notifyConflict(ctx context.Context, t *task, a dedup.Answer, deadLetter bool) {
	for _, o := range r.obs.Conflict {
		o.ObserveConflict(ctx, observe.ConflictEvent{
			Group: r.group, Message: t.message, Key: t.request.Key, First: a.First,
			Known: a.Known, DeadLetter: deadLetter, Shadow: r.shadow,
		})
	}
	r.noteConflict(ctx, t)
	leftOut, ok := t.route.conflicts.admit(time.Now())
	if !ok {
		return
	}
	text := "event ID is known with another content, copy skipped"
	switch {
	case r.shadow:
		text = "event ID is known with another content"
	case deadLetter:
		text = "event ID is known with another content, copy dead-lettered"
	}
	attrs := append(
		messageAttrs(t.message, t.request.Key), "known", a.Known.String(), "first_topic",
		a.First.Topic, "first_partition", a.First.Partition, "first_offset", a.First.Offset,
	)
	if leftOut > 0 {
		attrs = append(attrs, "not_logged", leftOut)
	}
	r.log.WarnContext(ctx, text, attrs...)
}

// noteConflict notes the copy in the store, where an operator may inspect the event. After a
// failure the note is lost.
func (r *reporter) noteConflict(ctx context.Context, t *task) {
	noter, ok := t.access.store.(dedup.ConflictNoter)
	if !ok || t.message.Topic == "" || t.access.isDown.Load() ||
		!t.route.conflicts.admitNote(time.Now()) {
		return
	}
	err := within(context.WithoutCancel(ctx), conflictNoteTime, func(ctx context.Context) error {
		return noter.NoteConflict(ctx, t.request.Key, t.message.Origin())
	})
	if err != nil {
		t.route.conflicts.noteFailed(time.Now())
		r.log.DebugContext(ctx, "conflict was not noted in the store",
			append(messageAttrs(t.message, t.request.Key), "error", r.errorText(err))...)
	}
}

// conflictNoteTime limits the call of the store that notes a conflict. The delivery waits for that
// call.
const conflictNoteTime = time.Second
