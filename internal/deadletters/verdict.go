package deadletters

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/dedup"
)

// Verdict is the state of a dead letter's event in the stores. It decides about a replay.
type Verdict string

// The verdicts.
const (
	SeenDead      Verdict = "dead"              // given up: reopened and published
	SeenReopened  Verdict = "reopened"          // reopened without a run yet: published again at the same position
	SeenNever     Verdict = "never seen"        // published: the gate decides when it comes
	SeenTooOld    Verdict = "too old"           // the store has deleted the record: a person must decide
	SeenDeferred  Verdict = "deferred"          // given up at the head of the queue in the store: reopened there
	SeenNoID      Verdict = "no identity"       // published: it has one, if at all, for a handler that was mended
	SeenDone      Verdict = "already done"      //
	SeenDiscarded Verdict = "discarded"         // a person gave it up for good
	SeenReplayed  Verdict = "replayed"          // a dead letter without identity, which was published before
	SeenPending   Verdict = "pending"           // in flight, or waiting for an attempt
	SeenWaiting   Verdict = "waiting"           // moved to a later attempt
	SeenInFlight  Verdict = "same event"        // another dead letter of the same event and value is the one that is replayed
	SeenOther     Verdict = "other payload"     // dead letters of one event differ: a person must choose
	SeenOmitted   Verdict = "value omitted"     // the dead letter has no value
	SeenOften     Verdict = "reopened often"    // it came back each time (T-08)
	SeenGroup     Verdict = "other group"       // a dead letter of another group
	SeenScope     Verdict = "other scope"       // the event is another scope's
	SeenStray     Verdict = "other topic"       // the record is another topic's than the one that was named
	SeenForeign   Verdict = "not a dead letter" //
	SeenTooLarge  Verdict = "copy too large"    // reopened, but the copy is too large
	SeenNoTopic   Verdict = "no retry topic"    // the copy has nowhere to go
	SeenConflict  Verdict = "another content"   // an event of this ID was done, but it was not this one
)

// Action is the step of a replay for a dead letter.
type Action uint8

// The actions.
const (
	ActSkip    Action = iota
	ActReopen         // reopen the key, publish at the position that this returns
	ActPublish        // publish at no position: too old for the store, it will not run
	ActForce          // publish at a position that is not asked for its age
	ActRecord         // publish, then record that this dead letter was
	ActUnblock        // reopen the key, let the deferred event run
)

var actionNames = [...]string{
	"skip", "reopen and publish", "publish", "publish, whatever its age", "publish and record",
	"reopen in its queue",
}

// String returns the name of the action.
func (a Action) String() string { return actionNames[a] }

// MaxGenerations limits how often an event is reopened or published again without the decision of a
// person (T-08).
const MaxGenerations = 3

// Decisions has the decisions of a person about dead letters that are otherwise left alone.
type Decisions struct {
	// Again is for events that were reopened or published again [MaxGenerations] times before.
	Again bool
	// Forgotten lets events run that the store does not know, however old. The store may have
	// deleted the record of a handled event.
	Forgotten bool
}

// Judged is a dead letter with a verdict.
type Judged struct {
	*Found
	Verdict Verdict
	// Note explains the verdict to people. May be empty.
	Note   string
	Action Action

	store    *NamedStore // where the event is known
	part     dedup.DeferredPartition
	deferred dedup.Deferred

	recordless bool      // the event is deferred, and there is no record of it
	count      dedup.Key // by which a replay without reopening is counted; zero: it is counted, or not to be
}

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

// inspect asks all stores for the events of some dead letters.
func (q *Queue) inspect(ctx context.Context, letters ...*Found) (map[dedup.Key][]known, error) {
	asked := make(map[dedup.Key]bool)
	for _, l := range letters {
		asked[q.discardKey(l.Place)] = true
		if key, ok := identified(l); ok {
			asked[key] = true
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

var errNoStores = errors.New("no store was named that could know the events of dead letters")

// Judge gives dead letters their verdicts, in one round trip to each store, and one more for each
// event that may be deferred. s may be nil; then the other dead letters of an event are not
// considered.
func (q *Queue) Judge(
	ctx context.Context, s *Survey, dec Decisions, letters ...*Found,
) ([]Judged, error) {
	if len(q.Stores) == 0 { // everything would be called never seen, and published
		return nil, errNoStores
	}
	found, err := q.inspect(ctx, letters...)
	if err != nil {
		return nil, err
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
		if publishes := j.Action == ActReopen || j.Action == ActPublish || j.Action == ActForce; publishes &&
			s != nil {
			s.choose(j)
		}
		if j.Verdict == SeenDone && s != nil {
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
	if times >= MaxGenerations && !dec.Again {
		j.Verdict, j.Action = SeenOften, ActSkip
		j.Note = fmt.Sprintf(
			"it was replayed %d times and came back each time: mend the cause, then --again; or idem dlq discard",
			times,
		)
	}
}

// foreign reports whether a dead letter names another group, topic or scope than the operator. Its
// headers can be forged, and must not reach events of other groups (G-03).
func (q *Queue) foreign(j *Judged) bool {
	switch l := j.DeadLetter; {
	case l.Group != q.Group:
		j.Verdict, j.Note = SeenGroup, "written by group "+l.Group
	case q.Source != "" && l.Message.Topic != q.Source:
		j.Verdict, j.Note = SeenStray, "its record is of topic "+l.Message.Topic+": --dlq takes dead letters of all topics"
	case l.Key.ID != "" && l.Key.Scope != q.Scope:
		j.Verdict, j.Note = SeenScope, fmt.Sprintf(
			"of scope %q: give --scope if a handler of this group has it", l.Key.Scope,
		)
	default:
		return false
	}
	return true
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
		j.Verdict, j.Note = SeenConflict, "an event with this ID and another content was done: give this one an ID of its own"
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
			j.Verdict, j.Action, j.Note = SeenDeferred, ActUnblock, "there is no record of it any longer"
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
		j.Verdict, j.Note = SeenTooOld, "nobody knows whether it was handled: --forgotten lets it run all the same"
	default:
		j.Verdict, j.Action = SeenNever, ActPublish
	}
}

// judgeOpen is for events that were given up, and for those that wait for a copy.
func (q *Queue) judgeOpen(ctx context.Context, dec Decisions, j *Judged, r known) error {
	reopened := r.State == dedup.Waiting && r.Position.Generation > 0 && r.Position.Retry == 0
	deferred, err := findDeferred(ctx, j, r.store)
	switch {
	case err != nil:
		return err
	case r.State == dedup.GivenUp && r.Position.Generation >= MaxGenerations && !dec.Again:
		j.Verdict, j.Note = SeenOften, fmt.Sprintf(
			"it was reopened %d times and came back each time: mend the handler, then --again",
			r.Position.Generation,
		)
	case deferred && j.deferred.Blocked:
		j.Verdict, j.Action = SeenDeferred, ActUnblock
	case deferred:
		j.Verdict, j.Note = SeenWaiting, "deferred in the store: its turn comes"
	case !reopened && r.State == dedup.Waiting:
		j.Verdict, j.Note = SeenWaiting, "for "+positionText(r.Position)
	case j.DeadLetter.Omitted:
		j.omitted()
	case reopened:
		j.Verdict, j.Action, j.Note = SeenReopened, ActReopen, "its copy has not run yet, or was never sent"
	default:
		j.Verdict, j.Action = SeenDead, ActReopen
	}
	return nil
}

// findDeferred looks whether the event waits in the order of the Kafka key.
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

func (j *Judged) omitted() {
	m := j.DeadLetter.Message
	j.Verdict, j.Action = SeenOmitted, ActSkip
	j.Note = fmt.Sprintf(
		"the record was too large to be copied: fetch it from %s/%d/%d", m.Topic, m.Partition,
		m.Offset,
	)
}

func positionText(p dedup.Position) string {
	return fmt.Sprintf("generation %d, retry %d", p.Generation, p.Retry)
}

// Settled reports whether the event of the dead letter is settled, so that the dead letter may be
// deleted. conflicts includes dead letters with another content than the handled event.
func (j *Judged) Settled(conflicts bool) bool {
	switch j.Verdict {
	case SeenDone, SeenDiscarded, SeenReplayed:
		return true
	case SeenConflict:
		return conflicts
	default:
		return false
	}
}
