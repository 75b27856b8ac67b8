package main

import (
	"context"
	"crypto/sha256"
	"fmt"
	"maps"
	"slices"

	"github.com/idem-go/idem"
)

// survey is what a first reading finds out: which letters belong to the same event, and whether they say the same. Of each
// event it keeps some bytes.
type survey struct {
	filter  letterFilter
	events  map[digest]kin
	origins map[string]bool // topics that the letters come from
	scanned int
	matched int
}

type digest [16]byte

// kin are the letters of one event.
type kin struct {
	value  digest
	chosen place // which of them is replayed
	// generation of the chosen one, and one more than that: zero if none was chosen yet.
	generation uint64
	differ     bool
}

// maxEvents bounds the memory of a survey, to some 150 MB.
const maxEvents = 1_000_000

var errTooMany = usage("more than %d events: choose fewer, with --type or --id", maxEvents)

// survey reads the topic once.
func (d *deadLetters) survey(ctx context.Context, f letterFilter) (*survey, error) {
	s := &survey{filter: f, events: make(map[digest]kin), origins: make(map[string]bool)}
	var err error
	s.scanned, err = scanSpans(ctx, d.client, f.narrow(d.spans), func(l *foundLetter) (bool, error) {
		if !f.sameEvents(l) {
			return true, nil
		}
		if f.match(l) {
			s.matched++
		}
		if l.letter == nil || d.foreign(&judged{foundLetter: l}) {
			return true, nil
		}
		s.origins[l.letter.Message.Topic] = true
		return true, s.note(l)
	})
	return s, err
}

func (s *survey) note(l *foundLetter) error {
	if l.letter.Key.ID == "" || l.letter.Omitted {
		return nil
	}
	key, value := eventDigest(l.letter), valueDigest(l.letter.Message)
	k, ok := s.events[key]
	switch {
	case !ok && len(s.events) == maxEvents:
		return errTooMany
	case !ok:
		k.value = value
	default:
		k.differ = k.differ || k.value != value
	}
	if generation := uint64(l.letter.Generation) + 1; s.filter.match(l) && generation > k.generation {
		k.chosen, k.generation = l.place, generation
	}
	s.events[key] = k
	return nil
}

// choose lets one letter of each event be replayed, and none where they differ.
func (s *survey) choose(j *judged) {
	k, ok := s.events[eventDigest(j.letter)]
	switch {
	case !ok: // it came after the survey
	case k.differ:
		j.verdict, j.action, j.note = seenOther, actSkip, "letters of this event have different values: choose one with --at"
	case k.chosen != j.place:
		j.verdict, j.action, j.note = seenTwin, actSkip, "as "+k.chosen.String()
	}
}

// doubt is for letters of an event that was done: if they differ, nobody knows which of them it was, and the others were not
// (rule 34). Purging them would lose what they say.
func (s *survey) doubt(j *judged) {
	if s.events[eventDigest(j.letter)].differ {
		j.verdict, j.note = seenConflict, "letters of this event have different values, and one of them was done: give the others an ID of their own"
	}
}

// retryTopics are where copies of what was surveyed go.
func (s *survey) retryTopics(group string) []string {
	var topics []string
	for _, origin := range slices.Sorted(maps.Keys(s.origins)) {
		topics = append(topics, idem.RetryTopic(origin, group, 0))
	}
	return topics
}

func eventDigest(l *idem.Letter) digest {
	sum := sha256.Sum256([]byte(l.Key.String()))
	return digest(sum[:16])
}

// valueDigest tells null from empty.
func valueDigest(m *idem.Message) digest {
	sum := sha256.Sum256(fmt.Appendf(nil, "%t:%s", m.Value == nil, m.Value))
	return digest(sum[:16])
}
