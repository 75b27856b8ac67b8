package deadletters

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/idem-go/idem/dedup"
)

// This file reads the records of dead letters from the stores.

// known is a record, and where it is.
type known struct {
	store *NamedStore
	dedup.Record
}

// identified returns the key of a dead letter's event. ok is false without a complete identity.
func identified(l *Found) (dedup.Key, bool) {
	if l.DeadLetter == nil || l.DeadLetter.Key.ID == "" || l.DeadLetter.Key.Type == "" ||
		l.DeadLetter.Key.Validate() != nil {
		return dedup.Key{}, false
	}
	return l.DeadLetter.Key, true
}

// inspect asks all stores for the events of some dead letters, and for discards of their rivals in
// s, which may be nil.
func (q *Queue) inspect(
	ctx context.Context, s *Survey, letters ...*Found,
) (map[dedup.Key][]known, error) {
	asked := make(map[dedup.Key]bool)
	for _, l := range letters {
		asked[q.discardKey(l.Place)] = true
		if key, ok := identified(l); ok {
			asked[key] = true
			if s != nil {
				for _, at := range s.rivals(l) {
					asked[q.discardKey(at)] = true
				}
			}
		}
		if l.DeadLetter != nil {
			asked[deadLetterKey(q.Scope, l.DeadLetter)] = true
			for _, key := range replayKeys(q.Scope, l.DeadLetter) {
				asked[key] = true
			}
		}
	}
	keys := slices.SortedFunc(maps.Keys(asked), dedup.Key.Compare)
	found := make(map[dedup.Key][]known)
	if len(keys) == 0 {
		return found, nil
	}
	for i := range q.Stores {
		l := &q.Stores[i]
		records, err := l.Operator().Inspect(ctx, keys...)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", l.Name, err)
		}
		for _, r := range records {
			found[r.Key] = append(found[r.Key], known{l, r})
		}
	}
	return found, nil
}

// decisive returns the record that decides, of several stores or keys. An event that is settled in
// one store is settled.
func decisive(records []known) (known, bool) {
	if len(records) == 0 {
		return known{}, false
	}
	return slices.MinFunc(
		records, func(a, b known) int { return cmp.Compare(weight(a.Record), weight(b.Record)) },
	), true
}

func weight(r dedup.Record) int {
	switch {
	case r.State == dedup.Finished:
		return 0
	case r.Discarded():
		return 1
	}
	return slices.Index(
		[]dedup.State{dedup.Claimed, dedup.Waiting, dedup.GivenUp, dedup.Released}, r.State,
	) + 2
}

// replays returns how often a record was published again without being reopened, and the key for
// the next time.
func (q *Queue) replays(l *Found, found map[dedup.Key][]known) (times int, next dedup.Key) {
	for _, key := range replayKeys(q.Scope, l.DeadLetter) {
		records := found[key]
		if len(records) == 0 {
			return times, key
		}
		if records[0].First.Time.UnixMilli() == l.DeadLetter.LastFailure.UnixMilli() {
			return times, dedup.Key{} // this dead letter was counted before
		}
		times++
	}
	return times, dedup.Key{}
}
