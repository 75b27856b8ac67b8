package deadletters

import (
	"context"
	"errors"
	"fmt"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/dedup"
)

var errNoStores = errors.New("no store was named that could know the events of dead letters")

// Judge gives dead letters their verdicts, in one round trip to each store, and one more for each
// event that may be deferred. If s is nil, the other dead letters of an event are not considered.
func (q *Queue) Judge(
	ctx context.Context, s *Survey, dec Decisions, letters ...*Found,
) ([]Judged, error) {
	if len(q.Stores) == 0 { // everything would be called never seen, and published
		return nil, errNoStores
	}
	found, err := q.inspect(ctx, s, letters...)
	if err != nil {
		return nil, err
	}
	discarded := func(at Place) bool {
		r, ok := decisive(found[q.discardKey(at)])
		return ok && r.Discarded()
	}
	all := make([]Judged, len(letters))
	for i, l := range letters {
		j := &all[i]
		j.Found = l
		key, hasKey := identified(l)
		switch {
		case j.discarded(found[q.discardKey(l.Place)]):
		case l.DeadLetter == nil:
			j.Verdict, j.Note = SeenForeign, l.Err.Error()
		case q.foreign(j):
		case !hasKey:
			judgeNoID(j, found[deadLetterKey(q.Scope, l.DeadLetter)])
		default:
			if err := q.judgeEvent(ctx, dec, j, found[key]); err != nil {
				return nil, err
			}
		}
		if j.Action == ActPublish || j.Action == ActForce || j.Action == ActRecord {
			q.limit(dec, j, found)
		}
		if s == nil {
			continue
		}
		switch {
		case j.Action == ActReopen, j.Action == ActPublish, j.Action == ActForce:
			s.choose(j, discarded)
		case j.Action == ActUnblock:
			s.unblock(j)
		case j.Verdict == SeenDone:
			s.doubt(j)
		}
	}
	return all, nil
}

// discarded reports whether a person has discarded this dead letter.
func (j *Judged) discarded(records []known) bool {
	r, ok := decisive(records)
	if !ok || !r.Discarded() {
		return false
	}
	j.Verdict, j.Note = SeenDiscarded, r.Reason[len(dedup.ReasonDiscarded):]
	return true
}

// limit leaves dead letters alone that came back after [MaxGenerations] replays (T-08).
func (q *Queue) limit(dec Decisions, j *Judged, found map[dedup.Key][]known) {
	times := 0
	times, j.count = q.replays(j.Found, found)
	times = max(times, int(j.DeadLetter.Replays)) // the store may have lost the count
	if times >= MaxGenerations && !dec.Again {
		j.Verdict, j.Action = SeenOften, ActSkip
		j.Note = fmt.Sprintf(
			"it was replayed %d times and came back each time: "+
				"correct the cause, then --again; or idem dlq discard",
			times,
		)
	}
}

func judgeNoID(j *Judged, records []known) {
	r, ok := decisive(records)
	switch {
	case ok && r.Settled():
		j.Verdict = SeenReplayed
	case j.DeadLetter.Omitted:
		j.omitted()
	default:
		j.Verdict, j.Action = SeenNoID, ActRecord
	}
}

func (q *Queue) judgeEvent(ctx context.Context, dec Decisions, j *Judged, records []known) error {
	r, ok := decisive(records)
	j.store = r.store
	if !ok {
		deferred, err := q.judgeDeferredOnly(ctx, j)
		if deferred || err != nil {
			return err
		}
	}
	switch {
	case !ok && j.DeadLetter.Omitted:
		j.omitted()
		return nil
	case !ok:
		judgeForgotten(dec, j)
		return nil
	case r.State == dedup.Finished && j.DeadLetter.Class == idem.ClassConflict:
		j.Verdict = SeenConflict
		j.Note = "an event with this ID and another content was done: give this one an ID of its own"
		return nil
	case r.State == dedup.Finished:
		j.Verdict = SeenDone
		return nil
	case r.Discarded():
		j.Verdict, j.Note = SeenDiscarded, r.Reason[len(dedup.ReasonDiscarded):]
		return nil
	case r.State == dedup.GivenUp || r.State == dedup.Waiting:
		return q.judgeOpen(ctx, dec, j, r)
	default:
		j.Verdict, j.Note = SeenPending, fmt.Sprintf("%s at %s", r.State, positionText(r.Position))
		return nil
	}
}

// judgeDeferredOnly judges an event that has no record but a place in a queue. A copy of the event
// would join that queue. ok is false without a place.
func (q *Queue) judgeDeferredOnly(ctx context.Context, j *Judged) (bool, error) {
	for i := range q.Stores {
		deferred, err := findDeferred(ctx, j, &q.Stores[i])
		if err != nil {
			return false, err
		}
		if !deferred {
			continue
		}
		j.store, j.recordless = &q.Stores[i], true
		if j.deferred.Blocked {
			j.Verdict, j.Action = SeenDeferred, ActUnblock
			j.Note = "there is no record of it any longer"
		} else {
			j.Verdict, j.Note = SeenWaiting, "deferred in the store: its turn comes"
		}
		return true, nil
	}
	return false, nil
}

// judgeForgotten judges events that no store knows. A replay without a decision would come back as
// too old (T-08, rule 8).
func judgeForgotten(dec Decisions, j *Judged) {
	switch {
	case dec.Forgotten:
		j.Verdict, j.Action = SeenNever, ActForce
	case j.DeadLetter.Class == idem.ClassTooOld:
		j.Verdict = SeenTooOld
		j.Note = "the event may have been handled: --forgotten lets it run all the same"
	default:
		j.Verdict, j.Action = SeenNever, ActPublish
	}
}

// judgeOpen is for events that were given up, and for those that wait for a copy.
func (q *Queue) judgeOpen(ctx context.Context, dec Decisions, j *Judged, r known) error {
	reopened := r.State == dedup.Waiting && r.Position.Generation > 0 && r.Position.Retry == 0
	deferred, err := findDeferred(ctx, j, r.store)
	times := max(r.Position.Generation, j.DeadLetter.Replays)
	switch {
	case err != nil:
		return err
	case r.State == dedup.GivenUp && times >= MaxGenerations && !dec.Again:
		j.Verdict, j.Note = SeenOften, fmt.Sprintf(
			"it was reopened %d times and came back each time: correct the handler, then --again",
			times,
		)
	case deferred && j.deferred.Blocked:
		j.Verdict, j.Action = SeenDeferred, ActUnblock
	case deferred:
		j.Verdict, j.Note = SeenWaiting, "deferred in the store: its turn comes"
	case !reopened && r.State == dedup.Waiting:
		j.Verdict, j.Note = SeenWaiting, "for "+positionText(r.Position)
	case j.DeadLetter.Omitted:
		j.dead = true
		j.omitted()
	case reopened:
		j.dead = true
		j.Verdict, j.Action = SeenReopened, ActReopen
		j.Note = "its copy has not run yet, or was never sent"
	default:
		j.dead = true
		j.Verdict, j.Action = SeenDead, ActReopen
	}
	return nil
}

// findDeferred looks whether the event waits in the order of its Kafka key.
func findDeferred(ctx context.Context, j *Judged, l *NamedStore) (ok bool, err error) {
	deferrer, can := l.Store.(dedup.Deferrer)
	if !can {
		return false, nil
	}
	key := j.DeadLetter.Key
	j.part, j.deferred, ok, err = deferrer.FindDeferred(
		ctx, key.Scope, j.DeadLetter.Message.Topic, key,
	)
	if err != nil {
		return false, fmt.Errorf("%s: %w", l.Name, err)
	}
	return ok, nil
}

func positionText(p dedup.Position) string {
	return fmt.Sprintf("generation %d, retry %d", p.Generation, p.Retry)
}
