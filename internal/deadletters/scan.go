package deadletters

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/IBM/sarama"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/deadletter"
	"github.com/idem-go/idem/internal/kafkalog"
)

// Place is where a record of a dead-letter topic is.
type Place struct {
	Partition int32
	Offset    int64
}

// String is <partition>/<offset>.
func (p Place) String() string { return fmt.Sprintf("%d/%d", p.Partition, p.Offset) }

func (p Place) compare(q Place) int {
	return cmp.Or(cmp.Compare(p.Partition, q.Partition), cmp.Compare(p.Offset, q.Offset))
}

// ErrPlace is that a text is no [Place].
var ErrPlace = errors.New("is not a record")

// ParsePlace reads <partition>/<offset>. An error matches [ErrPlace].
func ParsePlace(text string) (Place, error) {
	partition, offset, ok := strings.Cut(text, "/")
	p, err := strconv.ParseInt(partition, 10, 32)
	o, err2 := strconv.ParseInt(offset, 10, 64)
	if !ok || err != nil || err2 != nil || p < 0 || o < 0 {
		return Place{}, fmt.Errorf("%q %w: <partition>/<offset>, such as 0/17", text, ErrPlace)
	}
	return Place{int32(p), o}, nil
}

// Filter chooses dead letters. The zero value chooses all records, dead letters or not.
type Filter struct {
	// Scope, Types and ID are those of the event. An undecodable record has no identity. The filter
	// finds it by the ID in the default places (idem.StandardID), in any scope.
	Scope string
	Types []string
	ID    string
	// Classes are those of the errors.
	Classes []string
	// At names records; only these are read. Naming a record decides between dead letters of one
	// event with different values.
	At []Place
	// Twins turns that decision off, for all rows of a list at once. A dead letter is left alone if
	// another one of its event differs. The whole topic is read for that.
	Twins bool
	// Since and Until bound the time of the last failure: Since <= t < Until.
	Since, Until time.Time
	// After, if not nil, leaves out this dead letter and those before it in the order of
	// [Queue.Newest].
	After *Cursor
}

// Found is a record of a dead-letter topic.
type Found struct {
	Place
	// Topic is the dead-letter topic.
	Topic  string
	Record *idem.Message
	// DeadLetter is nil if the record is not a dead letter. Err is then the reason.
	DeadLetter *deadletter.Event
	Err        error
}

// Failed is when the event failed for the last time, as well as that is known.
func (l *Found) Failed() time.Time {
	if l.DeadLetter == nil || l.DeadLetter.LastFailure.IsZero() {
		return l.Record.Time
	}
	return l.DeadLetter.LastFailure
}

// sameEvents reports whether f chooses l by properties that all dead letters of one event share.
func (f *Filter) sameEvents(l *Found) bool {
	if l.DeadLetter == nil {
		return f.Scope == "" && len(f.Types) == 0 && f.ID == ""
	}
	key := l.DeadLetter.Key
	if key.ID == "" {
		return f.sameFound(l.DeadLetter)
	}
	return (f.Scope == "" || f.Scope == key.Scope) && (f.ID == "" || f.ID == key.ID) &&
		(len(f.Types) == 0 || slices.Contains(f.Types, key.Type))
}

// sameFound is sameEvents for a dead letter without identity, by the parts that were found.
func (f *Filter) sameFound(l *deadletter.Event) bool {
	found := f.Scope == "" && (f.ID == "" || f.ID == l.ID) &&
		(len(f.Types) == 0 || slices.Contains(f.Types, l.Type))
	return found || f.ID != "" && f.carriedBy(l.Message)
}

// carriedBy reports whether a record without identity carries the chosen ID.
func (f *Filter) carriedBy(m *idem.Message) bool {
	id, err := idem.StandardID().Extract(m)
	if err != nil || id != f.ID {
		return false
	}
	if len(f.Types) == 0 {
		return true
	}
	typ, err := idem.StandardType().Extract(m)
	return err == nil && slices.Contains(f.Types, typ)
}

func (f *Filter) match(l *Found) bool {
	if !f.sameEvents(l) {
		return false
	}
	if len(f.Classes) > 0 &&
		(l.DeadLetter == nil || !slices.Contains(f.Classes, string(l.DeadLetter.Class))) {
		return false
	}
	if len(f.At) > 0 && !slices.Contains(f.At, l.Place) {
		return false
	}
	t := l.Failed()
	if f.After != nil && f.After.compare(Cursor{t, l.Place}) >= 0 {
		return false
	}
	return (f.Since.IsZero() || !t.Before(f.Since)) && (f.Until.IsZero() || t.Before(f.Until))
}

// narrow returns the spans that f has to see: one record each if records are named.
func (f *Filter) narrow(spans []kafkalog.Span) []kafkalog.Span {
	if len(f.At) == 0 || f.Twins {
		return spans
	}
	var narrowed []kafkalog.Span
	for _, s := range spans {
		for _, at := range f.At {
			if s.Partition == at.Partition && s.Begin <= at.Offset && at.Offset < s.End {
				narrowed = append(
					narrowed,
					kafkalog.Span{
						Topic: s.Topic, Partition: s.Partition, Begin: at.Offset,
						End: at.Offset + 1,
					},
				)
			}
		}
	}
	slices.SortFunc(narrowed, func(a, b kafkalog.Span) int {
		return cmp.Or(
			cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition),
			cmp.Compare(a.Begin, b.Begin),
		)
	})
	return joined(slices.Compact(narrowed))
}

// joined joins sorted spans that follow each other, so that many records are read at once.
func joined(spans []kafkalog.Span) []kafkalog.Span {
	var all []kafkalog.Span
	for _, s := range spans {
		if n := len(all); n > 0 && all[n-1].Topic == s.Topic &&
			all[n-1].Partition == s.Partition && all[n-1].End == s.Begin {
			all[n-1].End = s.End
			continue
		}
		all = append(all, s)
	}
	return all
}

// chosenBy calls yield with the records that f chooses.
func chosenBy(f Filter, yield func(*Found) (bool, error)) func(*Found) (bool, error) {
	return func(l *Found) (bool, error) {
		if !f.match(l) {
			return true, nil
		}
		return yield(l)
	}
}

// scan calls yield with every record of the spans.
func scan(
	ctx context.Context, client sarama.Client, spans []kafkalog.Span,
	yield func(*Found) (bool, error),
) (scanned int, err error) {
	for _, s := range spans {
		more, err := kafkalog.Read(ctx, client, s, func(m *idem.Message) (bool, error) {
			scanned++
			return yield(foundIn(m))
		})
		if err != nil || !more {
			return scanned, err
		}
	}
	return scanned, nil
}

// legalTopic matches valid names of Kafka topics.
var legalTopic = regexp.MustCompile(`^[a-zA-Z0-9._-]{1,249}$`)

func foundIn(m *idem.Message) *Found {
	l := &Found{Place: Place{m.Partition, m.Offset}, Topic: m.Topic, Record: m}
	if l.DeadLetter, l.Err = deadletter.Parse(m); l.Err == nil &&
		!legalTopic.MatchString(l.DeadLetter.Message.Topic) {
		l.DeadLetter, l.Err = nil, fmt.Errorf(
			"%w: header %s: not the name of a topic", deadletter.ErrNotDeadLetter,
			deadletter.HeaderTopic,
		) // G-03
	}
	return l
}
