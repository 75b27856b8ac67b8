package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/IBM/sarama"

	"github.com/idem-go/idem"
)

// place is a record of a dead-letter topic.
type place struct {
	partition int32
	offset    int64
}

func (p place) String() string { return fmt.Sprintf("%d/%d", p.partition, p.offset) }

// parsePlace reads <partition>/<offset>.
func parsePlace(text string) (place, error) {
	partition, offset, ok := strings.Cut(text, "/")
	p, err := strconv.ParseInt(partition, 10, 32)
	o, err2 := strconv.ParseInt(offset, 10, 64)
	if !ok || err != nil || err2 != nil || p < 0 || o < 0 {
		return place{}, usage("%q is not a record: <partition>/<offset>, such as 0/17", text)
	}
	return place{int32(p), o}, nil
}

// letterFilter chooses dead letters. The zero value chooses all, and records that are no letters too.
type letterFilter struct {
	scope   string // of the event; those without identity have none
	types   []string
	classes []string
	id      string
	at      []place
	// since and until bound the time of the failure: since <= t < until.
	since, until time.Time
}

// foundLetter is a record of a dead-letter topic.
type foundLetter struct {
	place
	topic  string
	record *idem.Message
	letter *idem.Letter // nil if it is not one, and err says why
	err    error
}

// failed is when the event failed for the last time, as well as that is known.
func (l *foundLetter) failed() time.Time {
	if l.letter == nil || l.letter.LastFailure.IsZero() {
		return l.record.Time
	}
	return l.letter.LastFailure
}

// sameEvents reports whether f chooses l by nothing but what all letters of one event have in common.
func (f *letterFilter) sameEvents(l *foundLetter) bool {
	if l.letter == nil {
		return f.scope == "" && len(f.types) == 0 && f.id == ""
	}
	key := l.letter.Key
	return (f.scope == "" || f.scope == key.Scope) && (f.id == "" || f.id == key.ID) &&
		(len(f.types) == 0 || slices.Contains(f.types, key.Type))
}

func (f *letterFilter) match(l *foundLetter) bool {
	if !f.sameEvents(l) {
		return false
	}
	if len(f.classes) > 0 && (l.letter == nil || !slices.Contains(f.classes, string(l.letter.Class))) {
		return false
	}
	if len(f.at) > 0 && !slices.Contains(f.at, l.place) {
		return false
	}
	t := l.failed()
	return (f.since.IsZero() || !t.Before(f.since)) && (f.until.IsZero() || t.Before(f.until))
}

// narrow returns the spans in which f can find anything: one record each if records are named.
func (f *letterFilter) narrow(spans []span) []span {
	if len(f.at) == 0 {
		return spans
	}
	var narrowed []span
	for _, s := range spans {
		for _, at := range f.at {
			if s.partition == at.partition && s.begin <= at.offset && at.offset < s.end {
				narrowed = append(narrowed, span{s.topic, s.partition, at.offset, at.offset + 1})
			}
		}
	}
	slices.SortFunc(narrowed, func(a, b span) int {
		return cmp.Or(cmp.Compare(a.topic, b.topic), cmp.Compare(a.partition, b.partition), cmp.Compare(a.begin, b.begin))
	})
	return slices.Compact(narrowed)
}

// scanLetters reads dead-letter topics from their beginnings to where they end now, partition after partition, since Kafka
// has no index (rule 34), and calls yield with what f chooses until it returns false. scanned counts the records that were
// read, chosen or not. A topic that does not exist is an error that matches sarama.ErrUnknownTopicOrPartition.
func (a *app) scanLetters(ctx context.Context, topics []string, f letterFilter, yield func(*foundLetter) (bool, error)) (scanned int, err error) {
	client, err := a.kafka()
	if err != nil {
		return 0, err
	}
	spans, err := spansOf(client, topics...)
	if err != nil {
		return 0, err
	}
	return scanSpans(ctx, client, f.narrow(spans), func(l *foundLetter) (bool, error) {
		if !f.match(l) {
			return true, nil
		}
		return yield(l)
	})
}

// scanSpans calls yield with every record of the spans.
func scanSpans(ctx context.Context, client sarama.Client, spans []span, yield func(*foundLetter) (bool, error)) (scanned int, err error) {
	for _, s := range spans {
		more, err := readSpan(ctx, client, s, func(m *idem.Message) (bool, error) {
			scanned++
			l := &foundLetter{place: place{m.Partition, m.Offset}, topic: m.Topic, record: m}
			if l.letter, l.err = idem.ParseLetter(m); l.err == nil && !legalTopic.MatchString(l.letter.Message.Topic) {
				l.letter, l.err = nil, fmt.Errorf("%w: header %s: not the name of a topic", idem.ErrNotALetter, idem.HeaderTopic) // G-03
			}
			return yield(l)
		})
		if err != nil || !more {
			return scanned, err
		}
	}
	return scanned, nil
}
