package deadletter

import (
	"strconv"
	"time"

	"github.com/idem-go/idem/idemtype"
	"github.com/idem-go/idem/internal/safetext"
)

// maxErrorText limits the text of an error in a header (T-04).
const maxErrorText = 1 << 10

// DeadLetter returns the dead letter of the event for a topic.
func (e *Event) DeadLetter(topic string) *idemtype.Message {
	m := e.Message
	return &idemtype.Message{
		Topic: topic, Key: m.Key, Value: m.Value, Time: m.Time,
		Headers: append(kept(m.Headers), e.deadLetterHeaders()...),
	}
}

// Pointer returns a dead letter without value and headers of the record, for a record that is too
// large to be copied. The origin headers have the place of the record (T-04, rule 45).
func (e *Event) Pointer(topic string) *idemtype.Message {
	m := e.Message
	p := &idemtype.Message{Topic: topic, Key: m.Key, Time: m.Time, Headers: e.deadLetterHeaders()}
	if len(p.Key) > maxErrorText {
		p.Key = nil
	}
	p.Headers = append(p.Headers,
		header(HeaderValueOmitted, strconv.Itoa(len(m.Value))),
		header(HeaderHeadersOmitted, strconv.Itoa(len(m.Headers))))
	return p
}

// Copy returns the copy of the event for the retry topic with that delay. The time of the copy is
// the present time. Otherwise Kafka's retention could delete the copy of an old record at once.
func (e *Event) Copy(delay time.Duration) *idemtype.Message {
	m := e.Message
	hs := append(e.headers(), header(HeaderRetry, number(e.Position.Retry)))
	if !e.Due.IsZero() {
		hs = append(hs, header(HeaderDue, stamp(e.Due)))
	}
	if e.NotBefore.After(e.Due) {
		hs = append(hs, header(HeaderNotBefore, stamp(e.NotBefore)))
	}
	return &idemtype.Message{
		Topic: RetryTopic(m.Topic, e.Group, delay), Key: m.Key, Value: m.Value, Time: time.Now(),
		Headers: append(kept(m.Headers), hs...),
	}
}

func (e *Event) deadLetterHeaders() []idemtype.Header {
	hs := e.headers()
	if e.Position.Retry > 0 {
		hs = append(hs, header(HeaderRetry, number(e.Position.Retry)))
	}
	return hs
}

// headers returns the headers of the origin and the history. They follow those of the record.
func (e *Event) headers() []idemtype.Header {
	m := e.Message
	hs := make([]idemtype.Header, 0, 20)
	add := func(name, value string) { hs = append(hs, header(name, value)) }
	add(HeaderTopic, m.Topic)
	origin := m.Origin()
	add(HeaderPartition, strconv.Itoa(int(origin.Partition)))
	add(HeaderOffset, strconv.FormatInt(origin.Offset, 10))
	add(HeaderTime, stamp(m.Time))
	add(HeaderGroup, e.Group)
	if e.Key.ID != "" {
		add(HeaderScope, e.Key.Scope)
		add(HeaderEventType, e.Key.Type)
		add(HeaderEventID, e.Key.ID)
		if e.Key.Tenant != "" {
			add(HeaderTenant, e.Key.Tenant)
		}
	} else {
		if e.Type != "" {
			add(HeaderEventType, e.Type)
		}
		if e.ID != "" {
			add(HeaderEventID, e.ID)
		}
	}
	add(HeaderAttempts, strconv.Itoa(e.Attempts))
	add(HeaderFirstFailure, stamp(e.FirstFailure))
	add(HeaderLastFailure, stamp(e.LastFailure))
	add(HeaderErrorClass, string(e.Class))
	add(HeaderError, safetext.Cut(e.Error, maxErrorText))
	if e.Replays > e.Position.Generation {
		add(HeaderReplays, number(e.Replays))
	}
	if e.Edited != "" {
		add(HeaderEdited, e.Edited)
	}
	if e.Position.Generation > 0 {
		add(HeaderGeneration, number(e.Position.Generation))
	}
	return hs
}

func header(name, value string) idemtype.Header {
	return idemtype.Header{Key: name, Value: []byte(value)}
}

func number(n uint32) string { return strconv.FormatUint(uint64(n), 10) }

// stamp formats a time as RFC 3339, which ends with the year 9999. A producer that counts in
// microseconds writes times far beyond that; those become milliseconds since 1970, Kafka's unit.
func stamp(t time.Time) string {
	if t = t.UTC(); t.Year() < 0 || t.Year() > 9999 {
		return strconv.FormatInt(t.UnixMilli(), 10)
	}
	return t.Format("2006-01-02T15:04:05.000Z07:00")
}
