package idemtest

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/idem-go/idem"
)

// The headers in which a record carries its identity. The default extractors of package idem read
// them.
const (
	headerID   = "event-id"
	headerType = "event-type"
)

// Record is a record that a test delivers.
type Record struct {
	// ID and Type are the identity of the event, in the headers that the default extractors read.
	// An empty ID or Type has no header, for routers with other extractors. With such a router the
	// ID may still name the record in the test.
	ID, Type string
	// Value is the value. Bytes and json.RawMessage are taken as they are, and nil is a tombstone.
	// Everything else is encoded as JSON.
	Value any
	// Key is the Kafka key. Empty: a record without a key.
	Key string
	// Headers are further headers.
	Headers []idem.Header
	// Topic is the topic. The default is [DefaultTopic].
	Topic string
	// Partition is the partition. The default is 0.
	Partition int32
	// Time is the time of the record. The default is the present time.
	Time time.Time
}

// DefaultTopic is the topic of records without one.
const DefaultTopic = "events"

// message makes a message without an offset. The error is that of the JSON encoder, or the reason
// why no topic has such a partition.
func (r Record) message(now time.Time) (*idem.Message, error) {
	if r.Partition < 0 {
		return nil, fmt.Errorf("record %q has the partition %d: partitions begin at 0", r.ID, r.Partition)
	}
	m := &idem.Message{Topic: r.Topic, Partition: r.Partition, Time: r.Time}
	if m.Topic == "" {
		m.Topic = DefaultTopic
	}
	if m.Time.IsZero() {
		m.Time = now
	}
	if r.Key != "" {
		m.Key = []byte(r.Key)
	}
	for _, h := range []idem.Header{
		{Key: headerID, Value: []byte(r.ID)}, {Key: headerType, Value: []byte(r.Type)},
	} {
		if len(h.Value) > 0 {
			m.Headers = append(m.Headers, h)
		}
	}
	m.Headers = append(m.Headers, r.Headers...)
	value, err := r.encoded()
	if err != nil {
		return nil, fmt.Errorf("value of record %q: %w", r.ID, err)
	}
	m.Value = value
	return m, nil
}

// encoded returns the value of the Kafka record. It is nil for a tombstone.
func (r Record) encoded() ([]byte, error) {
	switch v := r.Value.(type) {
	case nil:
		return nil, nil
	case []byte:
		return v, nil
	case json.RawMessage: // may be no JSON, and keeps its spaces
		return v, nil
	default:
		return json.Marshal(v)
	}
}

// copyOf returns a copy of m for another offset. The copy shares no memory that a consumer writes.
func copyOf(m *idem.Message) *idem.Message {
	c := *m
	c.Received = time.Time{}
	return &c
}

// reordered returns the records with their keys in reverse order. Records of one key stay in order.
func reordered(records []Record) []Record {
	var groups [][]Record
	at := make(map[string]int) // index of the group of a key
	for _, r := range records {
		i, known := at[r.Key]
		if !known || r.Key == "" {
			i = len(groups)
			groups = append(groups, nil)
			at[r.Key] = i
		}
		groups[i] = append(groups[i], r)
	}
	slices.Reverse(groups)
	return slices.Concat(groups...)
}
