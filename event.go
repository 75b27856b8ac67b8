package idem

import (
	"log/slog"
	"time"

	"github.com/idem-go/idem/dedup"
)

// Message is one delivery of a record, whatever client fetched it. Nil and empty values stay apart: a nil Value is a
// tombstone.
type Message struct {
	Topic      string
	Partition  int32
	Offset     int64
	Key, Value []byte
	Headers    []Header
	Time       time.Time

	copied *copied // not nil: this is the record that a copy in a retry topic was made of

	seen time.Time // by us first, of a copy that must wait

	trace *description // if not nil, an IDFunc is asked where it looks, see recipeWord
}

// Header is one header of a record. Names may repeat.
type Header struct {
	Key   string
	Value []byte
}

// LogValue shows a message in structured logs: where it lies, neither value nor key nor headers (G-04).
func (m *Message) LogValue() slog.Value {
	if m == nil {
		return slog.Value{}
	}
	return slog.GroupValue(slog.String("topic", m.Topic), slog.Int("partition", int(m.Partition)), slog.Int64("offset", m.Offset))
}

// origin is where m came from, for the store.
func (m *Message) origin() dedup.Origin {
	return dedup.Origin{Topic: m.Topic, Partition: m.Partition, Offset: m.Offset, Time: m.Time}
}

// Event is a business fact with its decoded payload, as a handler gets it.
type Event[T any] struct {
	// ID is the business identity, made once by the producer and the same in every copy. With CloudEvents it is "joined:" and
	// source and id together, see [StandardID].
	ID string
	// Type is the type the handler was registered for.
	Type string
	// Tenant is empty without the option [Tenant].
	Tenant string
	// Data is the decoded value.
	Data T
	// Attempt is 1 for the first run and counts the runs that failed before. In a transactional handler it counts within
	// this process only, since a transaction that is rolled back leaves no trace.
	Attempt int
	// Uncertain says that an earlier run was cut short and may have had its effect already. Always false in a
	// transactional handler.
	Uncertain bool
	// Message is the delivery. It is valid during the call only.
	Message *Message

	meta meta
}

// meta is what an Event knows but does not show as fields.
type meta struct {
	key   dedup.Key
	name  string
	fence uint64
}

// IdempotencyKey returns a UUID to send along with a call to an outside API, in its Idempotency-Key header for example:
// the same for this event at every attempt, in every process and after a change of the consumer group. A handler that
// calls one API twice for one event tells the calls apart with a purpose, e.IdempotencyKey("capture"), else the API
// takes the second for a repeat of the first (rule 38). Handlers of different services that call the same API for the same event
// should differ in [Name].
func (e Event[T]) IdempotencyKey(purpose ...string) string {
	return e.meta.key.UUID(append([]string{e.meta.name}, purpose...)...)
}

// Identity returns the key that the store remembers this event by. It is the parent of what a handler of batches emits:
// outbox.Entry{Parent: e.Identity()} (rule 23).
func (e Event[T]) Identity() dedup.Key { return e.meta.key }

// Fence returns a number that grows with every claim of this event and never goes back while the store remembers it. An effect that stores it, and
// refuses a lower one in its WHERE clause, is safe from a holder that was paused and wakes up late (K-12, rule 41). Zero
// in a transactional handler, where the transaction itself is the fence.
func (e Event[T]) Fence() uint64 { return e.meta.fence }

// LogValue shows the event in structured logs: identity and origin, never the payload (G-04).
func (e Event[T]) LogValue() slog.Value {
	attrs := []slog.Attr{slog.String("event_id", e.ID), slog.String("type", e.Type)}
	if e.Tenant != "" {
		attrs = append(attrs, slog.String("tenant", e.Tenant))
	}
	if m := e.Message; m != nil {
		attrs = append(attrs, slog.String("topic", m.Topic), slog.Int("partition", int(m.Partition)), slog.Int64("offset", m.Offset))
	}
	return slog.GroupValue(attrs...)
}
