package idem

import (
	"log/slog"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/idemtype"
)

// Message is one delivery of a record, see [idemtype.Message].
type Message = idemtype.Message

// Header is one header of a record, see [idemtype.Header].
type Header = idemtype.Header

// Event is an event with the decoded value, as passed to a handler.
type Event[T any] struct {
	// ID is the event ID: given once by the producer and equal in every copy. For CloudEvents, the
	// ID is "joined:" followed by source and id, see [StandardID].
	ID string
	// Type is the event type that the handler was registered for.
	Type string
	// Tenant is the tenant of the event; empty without the option [Tenant].
	Tenant string
	// Data is the decoded value. The zero value for a tombstone, see [Tombstones].
	Data T
	// Attempt is 1 in the first run. Each failed run adds 1. In a transactional handler only the
	// runs of this process count, because a rollback removes the trace of a run.
	Attempt int
	// Uncertain means that an earlier run was cut short and may have had its effect. Always false
	// in a transactional handler.
	Uncertain bool
	// Message is the delivery, valid during the call only.
	Message *Message

	meta meta
}

// meta is the part of an Event behind the methods.
type meta struct {
	key   dedup.Key
	name  string
	fence uint64
}

// IdempotencyKey returns a UUID for a call of an outside API, such as the value of the
// Idempotency-Key header of the IETF draft. The key is equal in every attempt and every process,
// and stays the same if the consumer group changes.
//
// A handler that makes several calls of one API gives each a purpose: e.IdempotencyKey("capture").
// Otherwise the API takes the second call for a repetition of the first. Handlers of different
// services that call the same API for the same event need different names, see [Name].
func (e Event[T]) IdempotencyKey(purpose ...string) string {
	return e.meta.key.UUID(append([]string{e.meta.name}, purpose...)...)
}

// Identity returns the key under which the store remembers the event. A batch handler passes the
// key as the parent of the events that it emits: outbox.Entry{Parent: e.Identity()}.
func (e Event[T]) Identity() dedup.Key { return e.meta.key }

// Fence returns a number that grows with every claim of the event, for as long as the store
// remembers the event. Zero in a transactional handler, where the transaction itself is the fence.
//
// A worker that was paused for longer than a lease may wake up after another worker took over. To
// refuse a late effect, store the fence with the effect and refuse a lower one in the WHERE
// clause.
func (e Event[T]) Fence() uint64 { return e.meta.fence }

// LogValue implements [slog.LogValuer] with the ID, the type, the tenant and the place of the
// record. The value and the Kafka key are not logged.
func (e Event[T]) LogValue() slog.Value {
	attrs := []slog.Attr{slog.String("event_id", e.ID), slog.String("type", e.Type)}
	if e.Tenant != "" {
		attrs = append(attrs, slog.String("tenant", e.Tenant))
	}
	if m := e.Message; m != nil {
		attrs = append(attrs, m.LogValue().Group()...)
	}
	return slog.GroupValue(attrs...)
}
