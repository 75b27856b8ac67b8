package outbox

import (
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/dedup"
)

// Entry is an event that is to leave when the transaction commits.
type Entry struct {
	// Topic it is published to. Required; the letters, digits, dots, underscores and hyphens of a Kafka topic, at most 249.
	Topic string
	// Key is the Kafka key, and with Topic the aggregate: what the event is about, such as the number of an order. Events of one
	// aggregate are published in the order in which their transactions were committed, and stay in one partition. Any bytes, at most
	// [MaxKey]; empty: a record without a key, which has no order.
	Key string
	// Type of the event, such as "order.paid". Required; it travels in the header event-type.
	Type string
	// ID is the business identity of the event, which travels in the header event-id: consumers deduplicate by Type and ID. It is fixed when the
	// entry is added (O-14). Empty, the default: made of Parent, see [ID]; without a parent a new UUID (version 7), so that a second
	// run of the same code makes another event.
	ID string
	// Parent is what the event follows from. Zero, the default: what is being handled according to the context ([dedup.ParentFrom]), which
	// handlers of events, keyed requests and [dedup.Do] have. A handler of batches must say it: Parent: e.Identity().
	Parent dedup.Key
	// Name tells apart two events of one parent that have the same type and aggregate, such as two lines of one order: required as soon
	// as there are two (rule 23). Take what they are about, never a running number. It does not travel.
	Name string
	// Payload is the value of the record. Nil is a tombstone.
	Payload []byte
	// Headers travel in this order, behind event-id and event-type. Names beginning with "idem-" and those two are refused.
	Headers []idem.Header
}

// LogValue shows an entry in structured logs: what it is, neither payload nor headers (G-04).
func (e Entry) LogValue() slog.Value {
	return slog.GroupValue(slog.String("topic", e.Topic), slog.String("type", e.Type), slog.String("event_id", e.ID))
}

// The headers that an event is recognised by at the other end, see [idem.StandardID].
const (
	HeaderID   = "event-id"
	HeaderType = "event-type"
)

// MaxKey is the greatest length of [Entry].Key in bytes.
const MaxKey = 1024

// maxTopic is Kafka's own limit.
const maxTopic = 249

// The errors of adding entries. Nothing is added then, and the transaction can go on.
var (
	// ErrEntry says that an entry can never be published as it is.
	ErrEntry = errors.New("outbox: invalid entry")
	// ErrSameID says that two entries of one transaction have one type and ID: consumers would drop the second. Give them names (rule 23).
	ErrSameID = errors.New("outbox: two events with one ID")
	// ErrNoParent says that several events are handled at once, and the entry does not say which of them it follows from (rule 23).
	ErrNoParent = errors.New("outbox: which event does this one follow from? set Entry.Parent")
)

// ID is the identity of the event that follows from parent: a UUID (version 8) made of the parent with its scope, of type, topic and key of
// the new event, and of its name. It does not depend on the order in which a handler emits, nor on what else it emits (rule 23). As the
// scope counts, two consumer groups that emit the same type from the same event make two events.
func ID(parent dedup.Key, e *Entry) string {
	return parent.UUID("emit", parent.Scope, e.Type, e.Topic, e.Key, e.Name)
}

// Identify sets e.ID if it is empty. parent and ok are what [dedup.ParentFrom] says.
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

// newUUID makes a UUID of version 7 (RFC 9562): stores and indexes like identities that ascend with time.
func newUUID() string {
	var u [16]byte
	_, _ = rand.Read(u[6:]) // it never fails
	ms := uint64(time.Now().UnixMilli())
	for i := range 6 {
		u[i] = byte(ms >> (40 - 8*i))
	}
	u[6], u[8] = u[6]&0x0f|0x70, u[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", u[:4], u[4:6], u[6:8], u[8:10], u[10:])
}

// Check reports what would keep e from ever being published: its error matches [ErrEntry] and says what to do. e has its ID. max is the
// greatest size that Size may have.
func (e *Entry) Check(max int) error {
	problem := e.problem()
	if n := e.Size(); problem == "" && n > max {
		problem = fmt.Sprintf("its record has about %d bytes, the limit is %d: raise it here and max.message.bytes of the topic, or store "+
			"the large part elsewhere and send its address", n, max)
	}
	if problem == "" {
		return nil
	}
	return fmt.Errorf("%w: event %q of type %q for topic %q: %s", ErrEntry, cut(e.ID), cut(e.Type), cut(e.Topic), problem)
}

func (e *Entry) problem() string {
	switch {
	case !isTopic(e.Topic):
		return "Topic must be 1 to 249 letters, digits, dots, underscores and hyphens, and neither . nor .."
	case len(e.Key) > MaxKey:
		return fmt.Sprintf("Key has %d bytes, the limit is %d", len(e.Key), MaxKey)
	case e.Type == "":
		return "Type is empty"
	case dedup.Key{Type: e.Type, ID: e.ID}.Validate() != nil:
		return "Type and ID must be at most 255 bytes of UTF-8 without NUL, else no store can remember the event"
	}
	for _, h := range e.Headers {
		switch {
		case h.Key == HeaderID || h.Key == HeaderType:
			return fmt.Sprintf("header %q is made of ID and Type: set those", h.Key)
		case strings.HasPrefix(h.Key, idem.HeaderPrefix):
			return fmt.Sprintf("header %q is Idem's own: names must not begin with %q", h.Key, idem.HeaderPrefix)
		case h.Key == "ce_id" && string(h.Value) != e.ID || h.Key == "ce_type" && string(h.Value) != e.Type:
			return fmt.Sprintf("header %q has another value than the entry, and consumers take neither: set ID and Type to what the headers say", h.Key)
		case h.Key == "" || !utf8.ValidString(h.Key) || strings.ContainsRune(h.Key, 0):
			return "a header has a name that is empty, or no UTF-8, or contains NUL"
		}
	}
	return ""
}

func isTopic(s string) bool {
	if s == "" || len(s) > maxTopic || s == "." || s == ".." {
		return false
	}
	return !strings.ContainsFunc(s, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '.' && r != '_' && r != '-'
	})
}

// cut shortens what may be anything for an error's text.
func cut(s string) string { return s[:min(len(s), 100)] }

// Size is about how many bytes the record takes in a batch of its own, at most a few more than it does.
func (e *Entry) Size() int {
	const (
		batch  = 61 // what a record batch has before its records
		record = 30 // length, attributes, offsets, counts: variable numbers at their longest
		header = 10 // two lengths
	)
	n := batch + record + len(e.Key) + len(e.Payload)
	for _, h := range e.allHeaders() {
		n += header + len(h.Key) + len(h.Value)
	}
	return n
}

// allHeaders are those of the record.
func (e *Entry) allHeaders() []idem.Header {
	own := []idem.Header{{Key: HeaderID, Value: []byte(e.ID)}, {Key: HeaderType, Value: []byte(e.Type)}}
	return append(own, e.Headers...)
}

// Sort orders entries by aggregate, those of one aggregate as they were added (rule 22): transactions that lock in this order never wait
// for each other crosswise.
func Sort(entries []Entry) {
	slices.SortStableFunc(entries, func(a, b Entry) int {
		if c := strings.Compare(a.Topic, b.Topic); c != 0 {
			return c
		}
		return strings.Compare(a.Key, b.Key)
	})
}
