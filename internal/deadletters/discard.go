package deadletters

import (
	"context"
	"errors"
	"fmt"

	"github.com/idem-go/idem/dedup"
)

// Discard chooses dead letters to give up for good, with the reason.
type Discard struct {
	// Filter chooses the dead letters, and records that are no dead letters.
	Filter Filter
	// Reason is kept in the store. Required.
	Reason string
	// DryRun only reports the dead letters that would be discarded.
	DryRun bool
	// Each, if not nil, is called with the result for each dead letter, one after the other.
	Each func(Discarded)
}

// Discarded is the result for one dead letter.
type Discarded struct {
	// Row has the verdict by which it was discarded or left alone.
	Row
	// Done reports that the dead letter was discarded. Otherwise Note has the reason.
	Done bool
}

// ErrReason is that no reason was given.
var ErrReason = errors.New("a reason is needed")

// Discard gives dead letters up for good: no replay takes them, and a purge may delete them. An
// event that the store knows as dead is discarded too, so that no delivery of it runs. An event
// that the store does not know is not changed, because a good copy may still come.
//
// Events that are handled, discarded, in flight, or at the head of a blocked queue stay unchanged.
// Discard may be repeated.
func (q *Queue) Discard(ctx context.Context, what Discard) (done int, err error) {
	if what.Reason == "" {
		return 0, ErrReason
	}
	_, err = q.List(ctx, what.Filter, func(l *Found) (bool, error) {
		all, err := q.Judge(ctx, nil, Decisions{Again: true, Forgotten: true}, l)
		if err != nil {
			return false, err
		}
		d, err := q.discard(ctx, &all[0], what)
		if err != nil {
			return false, fmt.Errorf("dead letter %s: %w", l.Place, err)
		}
		if d.Done {
			done++
		}
		if what.Each != nil {
			what.Each(d)
		}
		return true, nil
	})
	return done, err
}

// discard gives one up.
func (q *Queue) discard(ctx context.Context, j *Judged, what Discard) (Discarded, error) {
	d := Discarded{Row: j.Row()}
	key, store := q.discardKey(j.Place), &q.Stores[0]
	switch j.Verdict {
	case SeenDone, SeenDiscarded, SeenReplayed:
		d.Note = "nothing is left to be done"
		return d, nil
	case SeenPending, SeenWaiting:
		d.Note = "its event is still to be handled: " + j.Note
		return d, nil
	case SeenDeferred:
		d.Note = "its event blocks a queue: idem event skip lets those behind it go on"
		return d, nil
	default:
		if j.dead { // otherwise the store has no record of the event
			key, store = j.DeadLetter.Key, j.store
		}
	}
	if what.DryRun {
		d.Done = true
		return d, nil
	}
	err := store.Operator().Discard(ctx, key, deadLetterMemory, what.Reason)
	if errors.Is(err, dedup.ErrSettled) { // meanwhile
		d.Note = "nothing is left to be done"
		return d, nil
	}
	if err != nil {
		return d, fmt.Errorf("%s: %w", store.Name, err)
	}
	d.Done = true
	return d, nil
}
