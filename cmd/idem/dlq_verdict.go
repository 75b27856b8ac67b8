package main

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/dedup"
)

// verdict says what the ledger knows of a letter's event, and so what a replay does with it.
type verdict string

const (
	seenDead      verdict = "dead"            // given up: reopened and published
	seenReopened  verdict = "reopened"        // reopened, and nobody took up a copy yet: published (again) at the same position
	seenNever     verdict = "never seen"      // published: the gate decides when it comes
	seenTooOld    verdict = "too old"         // the ledger has forgotten what it was: somebody has to decide
	seenParked    verdict = "parked"          // given up at the head of its queue in the ledger: reopened there
	seenNoID      verdict = "no identity"     // published: it has one, if at all, for a handler that was mended
	seenDone      verdict = "already done"    //
	seenDiscarded verdict = "discarded"       // a person gave it up for good
	seenReplayed  verdict = "replayed"        // a letter without identity, which was published before
	seenPending   verdict = "pending"         // somebody works on it, or will
	seenWaiting   verdict = "waiting"         // moved to a later attempt
	seenTwin      verdict = "same event"      // another letter of the same event and value is the one that is replayed
	seenOther     verdict = "other payload"   // letters of one event differ: somebody has to choose
	seenOmitted   verdict = "value omitted"   // the letter has no value
	seenOften     verdict = "reopened often"  // it came back each time (T-08)
	seenGroup     verdict = "other group"     // a letter of another group
	seenScope     verdict = "other scope"     // its event is another scope's
	seenStray     verdict = "other topic"     // its record is another topic's than the one that was named
	seenForeign   verdict = "not a letter"    //
	seenTooLarge  verdict = "copy too large"  // reopened, but its copy is not taken for its size
	seenNoTopic   verdict = "no retry topic"  // its copy has nowhere to go
	seenConflict  verdict = "another content" // an event of this ID was done, but it was not this one
)

// action is what a replay does.
type action uint8

const (
	actSkip    action = iota
	actReopen         // reopen the key, publish at the position that this returns
	actPublish        // publish at no position: too old for the ledger, it will not run
	actForce          // publish at a position that is not asked for its age
	actRecord         // publish, then record that this letter was
	actUnblock        // reopen the key, let the parked event run
)

var actionNames = [...]string{"skip", "reopen and publish", "publish", "publish, whatever its age", "publish and record", "reopen in its queue"}

func (a action) String() string { return actionNames[a] }

// maxGenerations is how often an event is reopened before a replay wants to be asked (T-08).
const maxGenerations = 3

// judged is a letter with a verdict.
type judged struct {
	*foundLetter
	verdict verdict
	note    string
	action  action
	ledger  *ledger // where the event is known
	lot     dedup.Lot
	parked  dedup.Parked
}

// known is a record, and where it is.
type known struct {
	ledger *ledger
	dedup.Record
}

// letterKey is by which the ledger remembers that a letter without identity was published again (T-10): where its record
// came from, and when it failed. Without the time, a letter that came back because its handler was not mended yet would count as
// replayed, never be replayed again, and be purged.
func letterKey(scope string, l *idem.Letter) dedup.Key {
	m := l.Message
	parts := []string{
		m.Topic, strconv.Itoa(int(m.Partition)), strconv.FormatInt(m.Offset, 10), strconv.FormatInt(l.LastFailure.UnixMilli(), 10),
	}
	key := dedup.Key{Scope: scope, Type: "idem.letter", ID: dedup.Join(parts...)}
	if len(key.ID) > dedup.MaxPart {
		key.ID = dedup.Hash(parts...)
	}
	return key
}

// keyOf is the key that the ledger is asked for.
func (d *deadLetters) keyOf(l *foundLetter) (key dedup.Key, ok bool) {
	switch {
	case l.letter == nil:
		return dedup.Key{}, false
	case l.letter.Key.ID == "":
		return letterKey(d.scope, l.letter), true
	}
	return l.letter.Key, true
}

// inspect asks all ledgers for the events of some letters.
func (d *deadLetters) inspect(ctx context.Context, letters ...*foundLetter) (map[dedup.Key][]known, error) {
	asked := make(map[dedup.Key]bool)
	for _, l := range letters {
		if key, ok := d.keyOf(l); ok {
			asked[key] = true
		}
	}
	keys := slices.SortedFunc(maps.Keys(asked), dedup.Key.Compare)
	found := make(map[dedup.Key][]known)
	if len(keys) == 0 {
		return found, nil
	}
	for _, l := range d.ledgers {
		records, err := l.operator().Inspect(ctx, keys...)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", l.name, err)
		}
		for _, r := range records {
			found[r.Key] = append(found[r.Key], known{l, r})
		}
	}
	return found, nil
}

// decisive is the record that says most, if there are several: of both ways to remember, or of several ledgers. What is
// settled anywhere is settled.
func decisive(records []known) (known, bool) {
	if len(records) == 0 {
		return known{}, false
	}
	return slices.MinFunc(records, func(a, b known) int { return cmp.Compare(weight(a.Record), weight(b.Record)) }), true
}

func weight(r dedup.Record) int {
	switch {
	case r.State == dedup.Finished:
		return 0
	case r.Discarded():
		return 1
	}
	return slices.Index([]dedup.State{dedup.Claimed, dedup.Waiting, dedup.GivenUp, dedup.Released}, r.State) + 2
}

// judge gives letters their verdicts, in one round trip to each ledger. s may be nil: then nothing is known of other
// letters of the same event.
func (d *deadLetters) judge(ctx context.Context, s *survey, letters ...*foundLetter) ([]judged, error) {
	found, err := d.inspect(ctx, letters...)
	if err != nil {
		return nil, err
	}
	all := make([]judged, len(letters))
	for i, l := range letters {
		j := &all[i]
		j.foundLetter = l
		key, ok := d.keyOf(l)
		switch {
		case !ok:
			j.verdict, j.note = seenForeign, l.err.Error()
		case d.foreign(j):
		case l.letter.Key.ID == "":
			d.judgeNoID(j, found[key])
		default:
			if err := d.judgeEvent(ctx, j, found[key]); err != nil {
				return nil, err
			}
		}
		if publishes := j.action == actReopen || j.action == actPublish || j.action == actForce; publishes && s != nil {
			s.choose(j)
		}
		if j.verdict == seenDone && s != nil {
			s.doubt(j)
		}
	}
	return all, nil
}

// foreign says whether a letter is about something else than what the operator named: another group, topic or scope. Who may
// write to the dead-letter topic may write any of them into its headers, and must not reach other groups' events by that (G-03).
func (d *deadLetters) foreign(j *judged) bool {
	switch l := j.letter; {
	case l.Group != d.group:
		j.verdict, j.note = seenGroup, "written by group "+l.Group
	case d.source != "" && l.Message.Topic != d.source:
		j.verdict, j.note = seenStray, "its record is of topic "+l.Message.Topic+": --dlq takes letters of all topics"
	case l.Key.ID != "" && l.Key.Scope != d.scope:
		j.verdict, j.note = seenScope, fmt.Sprintf("of scope %q: give --scope if a handler of this group has it", l.Key.Scope)
	default:
		return false
	}
	return true
}

func (d *deadLetters) judgeNoID(j *judged, records []known) {
	r, ok := decisive(records)
	switch {
	case ok && r.Settled():
		j.verdict = seenReplayed
	case j.letter.Omitted:
		j.omitted()
	default:
		j.verdict, j.action = seenNoID, actRecord
	}
}

func (d *deadLetters) judgeEvent(ctx context.Context, j *judged, records []known) error {
	r, ok := decisive(records)
	j.ledger = r.ledger
	switch {
	case !ok && j.letter.Omitted:
		j.omitted()
		return nil
	case !ok:
		d.judgeForgotten(j)
		return nil
	case r.State == dedup.Finished && j.letter.Class == idem.ClassConflict:
		j.verdict, j.note = seenConflict, "an event with this ID and another content was done: give this one an ID of its own"
		return nil
	case r.State == dedup.Finished:
		j.verdict = seenDone
		return nil
	case r.Discarded():
		j.verdict, j.note = seenDiscarded, r.Reason[len(dedup.ReasonDiscarded):]
		return nil
	case r.State == dedup.GivenUp || r.State == dedup.Waiting:
		return d.judgeOpen(ctx, j, r)
	default:
		j.verdict, j.note = seenPending, fmt.Sprintf("%s at %s", r.State, positionText(r.Position))
		return nil
	}
}

// judgeForgotten is for events that no ledger knows. Whoever replays a letter that is too old once more without a decision
// gets it back: the gate would call it too old again (T-08, rule 8).
func (d *deadLetters) judgeForgotten(j *judged) {
	switch {
	case d.forgotten:
		j.verdict, j.action = seenNever, actForce
	case j.letter.Class == idem.ClassTooOld:
		j.verdict, j.note = seenTooOld, "nobody knows whether it was handled: --forgotten lets it run all the same"
	default:
		j.verdict, j.action = seenNever, actPublish
	}
}

// judgeOpen is for events that were given up, and for those that wait for a copy.
func (d *deadLetters) judgeOpen(ctx context.Context, j *judged, r known) error {
	reopened := r.State == dedup.Waiting && r.Position.Generation > 0 && r.Position.Retry == 0
	parked, err := d.findParked(ctx, j, r)
	switch {
	case err != nil:
		return err
	case r.State == dedup.GivenUp && r.Position.Generation >= maxGenerations && !d.again:
		j.verdict, j.note = seenOften, fmt.Sprintf("it was reopened %d times and came back each time: mend the handler, then --again", r.Position.Generation)
	case parked && j.parked.Blocked:
		j.verdict, j.action = seenParked, actUnblock
	case parked:
		j.verdict, j.note = seenWaiting, "parked in the ledger: its turn comes"
	case !reopened && r.State == dedup.Waiting:
		j.verdict, j.note = seenWaiting, "for "+positionText(r.Position)
	case j.letter.Omitted:
		j.omitted()
	case reopened:
		j.verdict, j.action, j.note = seenReopened, actReopen, "its copy was not taken up yet, or was never sent"
	default:
		j.verdict, j.action = seenDead, actReopen
	}
	return nil
}

// findParked looks whether the event waits in the order of its Kafka key.
func (d *deadLetters) findParked(ctx context.Context, j *judged, r known) (ok bool, err error) {
	parker, can := r.ledger.store.(dedup.Parker)
	if !can {
		return false, nil
	}
	j.lot, j.parked, ok, err = parker.FindParked(ctx, r.Key.Scope, j.letter.Message.Topic, r.Key)
	if err != nil {
		return false, fmt.Errorf("%s: %w", r.ledger.name, err)
	}
	return ok, nil
}

func (j *judged) omitted() {
	m := j.letter.Message
	j.verdict, j.action = seenOmitted, actSkip
	j.note = fmt.Sprintf("the record was too large to be copied: fetch it from %s/%d/%d", m.Topic, m.Partition, m.Offset)
}

func positionText(p dedup.Position) string {
	return fmt.Sprintf("generation %d, retry %d", p.Generation, p.Retry)
}

// settled reports whether nothing of the letter's event is left to be done, so that the letter may be deleted. conflicts
// says that letters with another content than what was done may go too.
func (j *judged) settled(conflicts bool) bool {
	switch j.verdict {
	case seenDone, seenDiscarded, seenReplayed:
		return true
	case seenConflict:
		return conflicts
	default:
		return false
	}
}
