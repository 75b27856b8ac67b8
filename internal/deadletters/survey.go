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

// Survey is what a first reading finds out: which dead letters belong to the same event, and whether they say the same. Of each
// event it keeps some bytes. It does not change once it was made.
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
	// generation of the chosen one, and one more than that: zero if none was chosen yet. failed is when it failed, in milliseconds.
	generation uint64
	failed     int64
	differ     bool
}

// MaxEvents bounds the memory of a [Survey], to some 150 MB.
const MaxEvents = 1_000_000

// Survey reads the topic once, from end to end, or as much of it as f names. The error matches [ErrTooMany] if the dead letters that
// f could choose are of too many events.
func (q *Queue) Survey(ctx context.Context, f Filter) (*Survey, error) {
	s := &Survey{filter: f, events: make(map[digest]kin), origins: make(map[string]bool)}
	var err error
	s.Scanned, err = scan(ctx, q.Client, f.narrow(q.spans), func(l *Found) (bool, error) {
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
	if s.filter.match(l) && (generation > k.generation || generation == k.generation && failed > k.failed) {
		k.chosen, k.generation, k.failed = l.Place, generation, failed
	}
	s.events[key] = k
	return nil
}

// choose lets one dead letter of each event be replayed, and none where they differ.
func (s *Survey) choose(j *Judged) {
	k, ok := s.events[eventDigest(j.DeadLetter)]
	switch {
	case !ok: // it came after the survey
	case k.differ:
		j.Verdict, j.Action, j.Note = SeenOther, ActSkip, "dead letters of this event have different values: choose one with --at"
	case k.chosen != j.Place:
		j.Verdict, j.Action, j.Note = SeenInFlight, ActSkip, "as "+k.chosen.String()
	}
}

// doubt is for dead letters of an event that was done: if they differ, nobody knows which of them it was, and the others were not
// (rule 34). Purging them would lose what they say.
func (s *Survey) doubt(j *Judged) {
	if s.events[eventDigest(j.DeadLetter)].differ {
		j.Verdict, j.Note = SeenConflict, "dead letters of this event have different values, and one of them was done: give the others an ID of their own"
	}
}

// RetryTopics are where copies of what was surveyed go, sorted.
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

// valueDigest tells null from empty.
func valueDigest(m *idem.Message) digest {
	sum := sha256.Sum256(fmt.Appendf(nil, "%t:%s", m.Value == nil, m.Value))
	return digest(sum[:16])
}
