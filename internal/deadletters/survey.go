package deadletters

import (
	"context"
	"crypto/sha256"
	"fmt"
	"maps"
	"slices"

	"github.com/idem-go/idem/deadletter"
)

// Survey is the result of a first reading: the dead letters of each event, and whether they differ.
// A Survey keeps some bytes for each event. It does not change later.
type Survey struct {
	// Scanned counts the records that were read, Matched those that the filter chooses.
	Scanned, Matched int

	filter  Filter
	lines   map[Place]*Exported // of a file, nil without one
	events  map[digest]kin
	spare   map[digest][]rank // of events with several dead letters: the best after the chosen one
	origins map[string]bool   // topics that the dead letters come from
	gone    map[Place]bool    // places of the filter without a record
}

type digest [16]byte

// kin are the dead letters of one event.
type kin struct {
	value    digest // that a replay publishes
	original digest // before any edit
	chosen   rank   // which of them is replayed
	differ   bool   // their values
	strange  bool   // their original values
	edited   bool   // a line of the file edits one of them
}

// rank orders the dead letters of an event for a replay. The zero rank is no dead letter.
type rank struct {
	Place
	generation uint64 // of the dead letter, plus one
	failed     int64  // the time of the failure, in milliseconds
}

func (r rank) before(other rank) bool {
	return r.generation > other.generation ||
		r.generation == other.generation && r.failed > other.failed
}

// MaxEvents bounds the memory of a [Survey] to some 200 MB. If each event has several dead letters,
// a Survey takes twice as much.
const MaxEvents = 1_000_000

// maxSpare is how many dead letters of an event are kept beside the chosen one. A person may have
// discarded the chosen one.
const maxSpare = MaxGenerations

// ErrTooMany means that the dead letters belong to more than [MaxEvents] events.
var ErrTooMany = fmt.Errorf("more than %d events", MaxEvents)

// Survey reads the topic once, or the records that f names. The values of lines take the place of
// those in the topic. The error matches [ErrTooMany] if f could choose dead letters of too many
// events, and [ErrPlace] if a line has no place.
func (q *Queue) Survey(ctx context.Context, f Filter, lines ...Exported) (*Survey, error) {
	s := &Survey{
		filter: f, events: make(map[digest]kin), spare: make(map[digest][]rank),
		origins: make(map[string]bool), gone: make(map[Place]bool, len(f.At)),
	}
	for _, at := range f.At {
		s.gone[at] = true
	}
	var err error
	if s.lines, err = byPlace(lines); err != nil {
		return nil, err
	}
	s.Scanned, err = scan(ctx, q.Client, f.narrow(q.spans), func(l *Found) (bool, error) {
		if q.Surveyed != nil {
			q.Surveyed()
		}
		delete(s.gone, l.Place)
		if !f.sameEvents(l) {
			return true, nil
		}
		if f.match(l) {
			s.Matched++
		}
		if l.DeadLetter == nil || q.foreign(&Judged{Found: l}) {
			return true, nil
		}
		s.origins[l.DeadLetter.Message.Topic] = true
		return true, s.note(l)
	})
	return s, err
}

func (s *Survey) note(l *Found) error {
	if l.DeadLetter.Key.ID == "" || l.DeadLetter.Omitted {
		return nil
	}
	key, original := eventDigest(l.DeadLetter), originalDigest(l.DeadLetter)
	value, edited := s.valueOf(l)
	k, ok := s.events[key]
	switch {
	case !ok && len(s.events) == MaxEvents:
		return ErrTooMany
	case !ok:
		k.value, k.original = value, original
	default:
		k.differ = k.differ || k.value != value
		k.strange = k.strange || k.original != original
	}
	k.edited = k.edited || edited
	if s.filter.match(l) {
		s.rank(key, &k, rank{
			l.Place, uint64(l.DeadLetter.Position.Generation) + 1, l.Failed().UnixMilli(),
		})
	}
	s.events[key] = k
	return nil
}

// valueOf returns the digest of the value that a replay of the dead letter publishes. edited
// reports whether that value comes from a line of the file.
func (s *Survey) valueOf(l *Found) (value digest, edited bool) {
	before := valueDigest(l.DeadLetter.Message.Value)
	x, ok := s.lines[l.Place]
	if !ok {
		return before, false
	}
	text, err := x.Value.Bytes()
	if err != nil { // the line is refused, and equals no value
		return digest{}, true
	}
	after := valueDigest(text)
	return after, after != before
}

// rank puts a dead letter among the best of its event.
func (s *Survey) rank(key digest, k *kin, r rank) {
	if r.before(k.chosen) {
		r, k.chosen = k.chosen, r
	}
	if r == (rank{}) { // there was no other
		return
	}
	spare := s.spare[key]
	at := slices.IndexFunc(spare, r.before)
	if at < 0 {
		at = len(spare)
	}
	spare = slices.Insert(spare, at, r)
	s.spare[key] = spare[:min(len(spare), maxSpare)]
}

// rivals returns the dead letters of the same event that go before l, the best first.
func (s *Survey) rivals(l *Found) (all []Place) {
	key := eventDigest(l.DeadLetter)
	k, ok := s.events[key]
	if !ok || k.chosen == (rank{}) || k.chosen.Place == l.Place {
		return nil
	}
	all = append(all, k.chosen.Place)
	for _, r := range s.spare[key] {
		if r.Place == l.Place {
			break
		}
		all = append(all, r.Place)
	}
	return all
}

// choose lets one dead letter of each event be replayed: the best one that no person has discarded.
// If the dead letters of an event differ, a person must choose.
func (s *Survey) choose(j *Judged, discarded func(Place) bool) {
	if s.events[eventDigest(j.DeadLetter)].differ {
		s.leaveToPerson(j)
		return
	}
	for _, at := range s.rivals(j.Found) {
		if !discarded(at) {
			j.Verdict, j.Action, j.Note = SeenInFlight, ActSkip, "as "+at.String()
			return
		}
	}
}

// unblock leaves an event in its queue if a line would correct it and another line would not. Other
// differences do not matter there, because the store has the value of the event.
func (s *Survey) unblock(j *Judged) {
	if k := s.events[eventDigest(j.DeadLetter)]; k.edited && k.differ {
		s.leaveToPerson(j)
	}
}

func (s *Survey) leaveToPerson(j *Judged) {
	j.Verdict, j.Action = SeenOther, ActSkip
	j.Note = "dead letters of this event have different values: choose one with --at"
	if s.lines != nil {
		j.Note = "the file has different values of this event: keep the line of one of them"
	}
}

// doubt marks different dead letters of a handled event: the handled one is not known, and the
// others were not handled (rule 34). A purge would lose their contents. Edits of one original value
// do not count: they are one content, and its effect has happened.
func (s *Survey) doubt(j *Judged) {
	if k := s.events[eventDigest(j.DeadLetter)]; k.differ && k.strange {
		j.Verdict = SeenConflict
		j.Note = "dead letters of this event have different values, and one of them was done: " +
			"give the others an ID of their own"
	}
}

// RetryTopics returns the retry topics for copies of the surveyed dead letters, sorted.
func (s *Survey) RetryTopics(group string) []string {
	var topics []string
	for _, origin := range slices.Sorted(maps.Keys(s.origins)) {
		topics = append(topics, deadletter.RetryTopic(origin, group, 0))
	}
	return topics
}

func eventDigest(l *deadletter.Event) digest { return textDigest(l.Key.String()) }

// valueDigest returns the digest of a value. The digests of null and of an empty value differ.
func valueDigest(value []byte) digest { return textDigest(deadletter.ValueHash(value)) }

// originalDigest returns the digest of the value that the dead letter had before any edit.
func originalDigest(l *deadletter.Event) digest {
	if l.Edited != "" {
		return textDigest(l.Edited)
	}
	return valueDigest(l.Message.Value)
}

func textDigest(text string) digest {
	sum := sha256.Sum256([]byte(text))
	return digest(sum[:16])
}
