package deadletters

import (
	"context"
	"crypto/sha256"
	"fmt"
	"maps"
	"slices"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/deadletter"
)

// Survey is the result of a first reading: the dead letters of each event, and whether they differ.
// A Survey keeps some bytes for each event. It does not change later.
type Survey struct {
	// Scanned counts the records that were read, Matched those that the filter chooses.
	Scanned, Matched int

	filter  Filter
	events  map[digest]kin
	origins map[string]bool // topics that the dead letters come from
}

type digest [16]byte

// kin are the dead letters of one event.
type kin struct {
	value  digest
	chosen Place // which of them is replayed
	// generation of the chosen dead letter, plus one; zero without a choice. failed is the time of
	// the failure in milliseconds.
	generation uint64
	failed     int64
	differ     bool
}

// MaxEvents bounds the memory of a [Survey], to some 150 MB.
const MaxEvents = 1_000_000

// ErrTooMany means that the dead letters belong to more than [MaxEvents] events.
var ErrTooMany = fmt.Errorf("more than %d events", MaxEvents)

// Survey reads the topic once, or the records that f names. The error matches [ErrTooMany] if f
// could choose dead letters of too many events.
func (q *Queue) Survey(ctx context.Context, f Filter) (*Survey, error) {
	s := &Survey{filter: f, events: make(map[digest]kin), origins: make(map[string]bool)}
	var err error
	s.Scanned, err = scan(ctx, q.Client, f.narrow(q.spans), func(l *Found) (bool, error) {
		if q.Surveyed != nil {
			q.Surveyed()
		}
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
	key, value := eventDigest(l.DeadLetter), valueDigest(l.DeadLetter.Message)
	k, ok := s.events[key]
	switch {
	case !ok && len(s.events) == MaxEvents:
		return ErrTooMany
	case !ok:
		k.value = value
	default:
		k.differ = k.differ || k.value != value
	}
	generation, failed := uint64(l.DeadLetter.Position.Generation)+1, l.Failed().UnixMilli()
	if s.filter.match(l) &&
		(generation > k.generation || generation == k.generation && failed > k.failed) {
		k.chosen, k.generation, k.failed = l.Place, generation, failed
	}
	s.events[key] = k
	return nil
}

// choose lets one dead letter of each event be replayed. If the dead letters of an event differ, a
// person must choose.
func (s *Survey) choose(j *Judged) {
	k, ok := s.events[eventDigest(j.DeadLetter)]
	switch {
	case !ok: // it came after the survey
	case k.differ:
		j.Verdict, j.Action = SeenOther, ActSkip
		j.Note = "dead letters of this event have different values: choose one with --at"
	case k.chosen != j.Place:
		j.Verdict, j.Action, j.Note = SeenInFlight, ActSkip, "as "+k.chosen.String()
	}
}

// doubt marks different dead letters of a handled event: the handled one is not known, and the
// others were not handled (rule 34). A purge would lose their contents.
func (s *Survey) doubt(j *Judged) {
	if s.events[eventDigest(j.DeadLetter)].differ {
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

func eventDigest(l *deadletter.Event) digest {
	sum := sha256.Sum256([]byte(l.Key.String()))
	return digest(sum[:16])
}

// valueDigest returns the digest of a value. The digests of null and of an empty value differ.
func valueDigest(m *idem.Message) digest {
	sum := sha256.Sum256(fmt.Appendf(nil, "%t:%s", m.Value == nil, m.Value))
	return digest(sum[:16])
}
