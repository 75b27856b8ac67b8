package outbox

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/deadletter"
	"github.com/idem-go/idem/dedup"
)

// Entry is an event that is published if the transaction commits. Topic and Type are required.
type Entry struct {
	// Topic is the topic of the record. Required: 1 to 249 letters, digits, dots, underscores and
	// hyphens.
	Topic string
	// Key is the Kafka key of the record, such as an order number: any bytes, at most [MaxKey].
	// Topic and Key name the aggregate. The events of an aggregate are published in the order in
	// which their transactions commit, and lie in one partition.
	//
	// Default: empty, which makes a record without a key. Such records have no order.
	Key string
	// Type is the type of the event, such as "order.paid". Required. The record carries Type in the
	// header event-type.
	Type string
	// ID identifies the event: consumers deduplicate by Type and ID. The record carries ID in the
	// header event-id. The ID is fixed when the entry is added.
	//
	// Default: derived from Parent, see [ID]. Without a parent the ID is a new UUID (version 7), so
	// that a second run of the same code makes another event.
	ID string
	// Parent is the key of the event or request that this event follows from.
	//
	// Default: the parent of the context ([dedup.ParentFrom]), which is set for handlers of events,
	// for keyed requests and for [dedup.Do]. A handler of batches must set Parent: e.Identity().
	Parent dedup.Key
	// Name separates two events of one parent that have the same type, topic and key, such as the
	// lines of one order. Required as soon as there are two. Derive Name from the data, never from
	// a running number. The record does not carry Name.
	Name string
	// Payload is the value of the record. Nil makes a tombstone.
	Payload []byte
	// Headers follow event-id and event-type in the record, in this order. Those two names, and
	// names that begin with "idem-", are refused.
	Headers []idem.Header
}

// LogValue returns the topic, type and ID of e for structured logs, without payload and headers.
func (e Entry) LogValue() slog.Value {
	return slog.GroupValue(slog.String("topic", e.Topic), slog.String("type", e.Type),
		slog.String("event_id", e.ID))
}

// The headers of the identity of an event: see [idem.StandardID].
const (
	HeaderID   = "event-id"
	HeaderType = "event-type"
)

// MaxKey is the greatest length of [Entry].Key in bytes.
const MaxKey = 1024

// maxTopic is Kafka's own limit.
const maxTopic = 249

// The errors of adding entries. No entry of the call is added then. The transaction can go on.
var (
	// ErrEntry means that an entry can never be published as it is. The text names the field and
	// the remedy.
	ErrEntry = errors.New("outbox: invalid entry")
	// ErrSameID means that two entries of one transaction have one type and ID. Consumers would
	// drop the second. Set [Entry].Name.
	ErrSameID = errors.New("outbox: two events with one ID")
	// ErrNoParent means that the handler has several events at once, as in a batch. Set
	// [Entry].Parent to the one that the entry follows from.
	ErrNoParent = errors.New("outbox: several events are being handled: set Entry.Parent")
)

// ID returns the ID of the event e that follows from parent: a UUID (version 8).
//
// The ID depends on the parent with its scope, and on Topic, Key, Type and Name of e. Neither other
// entries nor the order of entries matter. Two consumer groups that add the same entry for the same
// parent make two events, because their scopes differ.
func ID(parent dedup.Key, e *Entry) string {
	return parent.UUID("emit", parent.Scope, e.Type, e.Topic, e.Key, e.Name)
}

// Identify sets e.ID if it is empty. parent and ok are the results of [dedup.ParentFrom]; e.Parent
// takes precedence. Without a parent the ID is a new UUID. The error matches [ErrNoParent]: there
// are several parents, and e.Parent is empty.
func (e *Entry) Identify(parent dedup.Key, ok bool) error {
	if e.ID != "" {
		return nil
	}
	if e.Parent != (dedup.Key{}) {
		parent, ok = e.Parent, true
	}
	switch {
	case !ok:
		e.ID = newUUID()
	case parent == dedup.Key{}:
		return fmt.Errorf("%w (type %q, key %q)", ErrNoParent, e.Type, e.Key)
	default:
		e.ID = ID(parent, e)
	}
	return nil
}

// newUUID returns a UUID of version 7 (RFC 9562), which ascends with time: good for indexes.
func newUUID() string {
	var u [16]byte
	_, _ = rand.Read(u[6:]) // it never fails
	ms := uint64(time.Now().UnixMilli())
	for i := range 6 {
		u[i] = byte(ms >> (40 - 8*i))
	}
	u[6], u[8] = u[6]&0x0f|0x70, u[8]&0x3f|0x80
	var text [36]byte
	at := 0
	for i, b := range u {
		if i == 4 || i == 6 || i == 8 || i == 10 {
			text[at] = '-'
			at++
		}
		hex.Encode(text[at:at+2], []byte{b})
		at += 2
	}
	return string(text[:])
}

// Check returns an error that matches [ErrEntry] if e can never be published. The text has the
// remedy. Check needs the ID: call Identify first. limit bounds [Entry.Size], in bytes.
func (e *Entry) Check(limit int) error {
	problem := e.problem()
	if n := e.Size(); problem == "" && n > limit {
		problem = fmt.Sprintf("its record has about %d bytes, the limit is %d: raise the limit "+
			"and max.message.bytes of the topic, or store the large part elsewhere and send "+
			"its address", n, limit)
	}
	if problem == "" {
		return nil
	}
	return fmt.Errorf("%w: event %q of type %q for topic %q: %s",
		ErrEntry, cut(e.ID), cut(e.Type), cut(e.Topic), problem)
}

func (e *Entry) problem() string {
	switch {
	case !isTopic(e.Topic):
		return "Topic must be 1 to 249 letters, digits, dots, underscores and hyphens, " +
			"and neither . nor .."
	case len(e.Key) > MaxKey:
		return fmt.Sprintf("Key has %d bytes, the limit is %d", len(e.Key), MaxKey)
	case e.Type == "":
		return "Type is empty"
	case dedup.Key{Type: e.Type, ID: e.ID}.Validate() != nil:
		return "Type and ID must be at most 255 bytes of UTF-8 without NUL, " +
			"otherwise no store can remember the event"
	}
	for _, h := range e.Headers {
		if problem := e.headerProblem(h); problem != "" {
			return problem
		}
	}
	return ""
}

func (e *Entry) headerProblem(h idem.Header) string {
	switch {
	case h.Key == HeaderID || h.Key == HeaderType:
		return fmt.Sprintf("header %q is made of ID and Type: set those", h.Key)
	case strings.HasPrefix(h.Key, deadletter.HeaderPrefix):
		return fmt.Sprintf("header %q belongs to Idem: names must not begin with %q",
			h.Key, deadletter.HeaderPrefix)
	case h.Key == "ce_id" && string(h.Value) != e.ID,
		h.Key == "ce_type" && string(h.Value) != e.Type:
		return fmt.Sprintf("header %q differs from the entry, and consumers would refuse "+
			"the record: set ID and Type to the values of the headers", h.Key)
	case h.Key == "" || !utf8.ValidString(h.Key) || strings.ContainsRune(h.Key, 0):
		return "a header has a name that is empty, is not UTF-8, or contains NUL"
	}
	return ""
}

func isTopic(s string) bool {
	if s == "" || len(s) > maxTopic || s == "." || s == ".." {
		return false
	}
	return !strings.ContainsFunc(s, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') &&
			r != '.' && r != '_' && r != '-'
	})
}

// Size returns an upper bound of the size of the record in a batch of its own, in bytes. The bound
// is at most a few bytes too large.
func (e *Entry) Size() int {
	const (
		batchSize  = 61 // a record batch without records
		recordSize = 30 // length, attributes, offsets and counts, as the longest varints
		headerSize = 10 // two lengths
	)
	n := batchSize + recordSize + len(e.Key) + len(e.Payload)
	n += headerSize + len(HeaderID) + len(e.ID) + headerSize + len(HeaderType) + len(e.Type)
	for _, h := range e.Headers {
		n += headerSize + len(h.Key) + len(h.Value)
	}
	return n
}

// allHeaders returns the headers of the record.
func (e *Entry) allHeaders() []idem.Header {
	all := make([]idem.Header, 0, 2+len(e.Headers))
	all = append(all, idem.Header{Key: HeaderID, Value: []byte(e.ID)},
		idem.Header{Key: HeaderType, Value: []byte(e.Type)})
	return append(all, e.Headers...)
}

// Sort orders entries by topic and key, and keeps the order within one topic and key. Transactions
// that lock aggregates in this order cannot deadlock with each other.
func Sort(entries []Entry) {
	slices.SortStableFunc(entries, func(a, b Entry) int {
		if c := strings.Compare(a.Topic, b.Topic); c != 0 {
			return c
		}
		return strings.Compare(a.Key, b.Key)
	})
}
