package engine

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/idem-go/idem/deadletter"
	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/idemtype"
	"github.com/idem-go/idem/internal/decoded"
	"github.com/idem-go/idem/internal/safetext"
)

// deferredRecord is the message and the history of a deferred event, as stored in the table.
type deferredRecord struct {
	V           int      `json:"v"`
	Topic       string   `json:"topic"`
	Partition   int32    `json:"partition"`
	Offset      int64    `json:"offset"`
	Time        millis   `json:"time"`
	Key         []byte   `json:"key"`
	Value       []byte   `json:"value"`
	HeaderNames [][]byte `json:"header_names"` // bytes: a name need not be UTF-8
	Headers     [][]byte `json:"headers"`

	Attempts  int            `json:"attempts"`
	First     millis         `json:"first_failure"`
	Last      millis         `json:"last_failure"`
	Class     idemtype.Class `json:"class"`
	Error     string         `json:"error"`
	NotBefore millis         `json:"not_before"`
	Edited    string         `json:"edited,omitempty"`
	Replays   uint32         `json:"replays,omitempty"`
}

// millis is a time in Kafka's unit: milliseconds since 1970. Null is the zero time.
type millis struct{ ms *int64 }

func toMillis(t time.Time) millis {
	if t.IsZero() {
		return millis{}
	}
	ms := t.UnixMilli()
	return millis{&ms}
}

func (m millis) time() time.Time {
	if m.ms == nil {
		return time.Time{}
	}
	return time.UnixMilli(*m.ms).UTC()
}

// MarshalJSON writes a number, or null for the zero time.
func (m millis) MarshalJSON() ([]byte, error) { return json.Marshal(m.ms) }

func (m *millis) UnmarshalJSON(b []byte) error { return json.Unmarshal(b, &m.ms) }

// recordVersion is written with each record. Records of another version are not read (rule 35).
const recordVersion = 1

func newDeferred(
	t *task, queue string, e deadletter.Event, wait time.Duration,
) (dedup.Deferred, error) {
	m := t.message
	r := deferredRecord{
		V: recordVersion, Topic: m.Topic, Partition: m.Partition, Offset: m.Offset,
		Time: toMillis(m.Time), Key: m.Key, Value: m.Value,
		Attempts: e.Attempts, First: toMillis(e.FirstFailure), Last: toMillis(e.LastFailure),
		Class: e.Class, Error: safetext.Cut(e.Error, maxErrorText),
		NotBefore: toMillis(e.NotBefore), Edited: t.editedFrom(), Replays: t.replays(),
	}
	for _, header := range m.Headers {
		r.HeaderNames = append(r.HeaderNames, []byte(header.Key))
		r.Headers = append(r.Headers, header.Value)
	}
	data, err := json.Marshal(r)
	if err != nil {
		return dedup.Deferred{}, fmt.Errorf("defer event %s: %w", t.request.Key, err)
	}
	return dedup.Deferred{
		Key: t.request.Key, Queue: queue, Position: e.Position, Wait: wait,
		Origin: t.request.Origin, Data: data,
	}, nil
}

// fromDeferred returns the message of a deferred event, and the history.
func fromDeferred(e dedup.Deferred) (*idemtype.Message, *copied, error) {
	var r deferredRecord
	if err := json.Unmarshal(e.Data, &r); err != nil {
		return nil, nil, fmt.Errorf("deferred event %s: %w", e.Key, err)
	}
	if r.V != recordVersion {
		return nil, nil, fmt.Errorf(
			"deferred event %s was written by another release (version %d)", e.Key, r.V,
		)
	}
	m := &idemtype.Message{
		Topic: r.Topic, Partition: r.Partition, Offset: r.Offset, Time: r.Time.time(), Key: r.Key,
		Value: r.Value,
	}
	for i, name := range r.HeaderNames {
		m.Headers = append(m.Headers, idemtype.Header{Key: string(name), Value: r.Headers[i]})
	}
	return m, &copied{Event: deadletter.Event{
		Key: e.Key, Class: r.Class, Error: r.Error, Attempts: r.Attempts,
		FirstFailure: r.First.time(), LastFailure: r.Last.time(), Position: e.Position,
		Edited: r.Edited, Replays: r.Replays,
	}}, nil
}

// contentOf returns the message of a deferred event and its fingerprint. ok is false if the event
// cannot be read.
func contentOf(
	route *bound, e dedup.Deferred,
) (m *idemtype.Message, content dedup.Fingerprint, ok bool) {
	var err error
	m, _, err = fromDeferred(e)
	if err == nil {
		err = guard(func() (err error) {
			contents, err := route.fingerprintOf(decoded.Known(nil), m)
			content = contents.First
			return err
		})
	}
	return m, content, err == nil
}
