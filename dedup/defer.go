package dedup

import (
	"context"
	"time"
)

// DeferredPartition names the partition of the deferred events of a call.
type DeferredPartition struct {
	Scope     string
	Topic     string
	Partition int32
}

// Deferred is an event that waits in the store for a later attempt, or behind a failing event of
// its Kafka key.
type Deferred struct {
	// Key of the event. The scope is that of the partition.
	Key Key
	// Queue is the Kafka key, any bytes of any length. Events of a queue run in the order in which
	// they were deferred.
	Queue string
	// Position of the copy that is to run. Each attempt raises it.
	Position Position
	// Wait is the minimum time until the event may run, counted from the call. Zero or less: it is
	// due.
	Wait time.Duration
	// Blocked means that the event was given up and the events behind it wait for a person. Defer
	// ignores this field.
	Blocked bool
	// Origin of the first delivery.
	Origin Origin
	// Data is the message with the history of attempts, in the caller's encoding.
	Data []byte
}

// Queue describes the deferred events of one Kafka key.
type Queue struct {
	Name   string
	Length int
	// Wait is the time until the head is due.
	Wait time.Duration
	// Blocked means that the head was given up.
	Blocked bool
}

// Deferrer is an ability of a [Store]: events wait in the order of Kafka keys until they may run.
// Handlers with KeyOrdered need the ability.
//
// Only the owner of a partition defers events and runs them. After a rebalance two workers may act
// as owner for a moment. The claim of the event keeps the two apart, and each method names the
// expected state, so that no event is lost or runs out of order.
//
// A queue is one in a scope and topic. Its partition is that of the last Defer. Only Queues and
// Due use the partition, so a queue that went to another partition is still worked off.
type Deferrer interface {
	// Defer appends events to their queues, in their order, in one transaction. An event with a
	// key that is deferred already in the scope and topic stays as it is, in any queue, so a
	// call may be repeated. If a key is invalid or of another scope, no event is deferred.
	Defer(ctx context.Context, part DeferredPartition, events []Deferred) error
	// Queues returns the queues of a partition ordered by name, at most limit of those after the
	// given name. For names of more than 255 bytes the order is the store's. Empty comes before
	// all names, the empty one included: use a limit of at least 2.
	Queues(ctx context.Context, part DeferredPartition, after string, limit int) ([]Queue, error)
	// Due returns the heads of queues that may run now, the longest due first, at most limit.
	// The result next is the time until another head is due. Zero means that the limit held one
	// back. Negative means that no head will be due without a person or another Defer.
	Due(ctx context.Context, part DeferredPartition, limit int) (
		heads []Deferred, next time.Duration, err error)
	// First returns the first events of a queue in their order, at most limit. Without a queue of
	// that name, the result is empty.
	First(ctx context.Context, part DeferredPartition, queue string, limit int) ([]Deferred, error)
	// Postpone replaces Position, Wait, Blocked and Data of a deferred event. The place in the
	// queue and the Origin stay. If the event has left the queue, or has a position not before
	// the new one, moved is false and the event stays unchanged. Blocked may be set with the
	// position unchanged, and again.
	Postpone(ctx context.Context, part DeferredPartition, e Deferred) (moved bool, err error)
	// Remove takes events out of a queue, by their Key and Position. An event goes if it is still
	// there, at this position or a lower one of its generation. If the head was among them, the
	// next event is due from now on, behind the heads that are due already, or when its Wait is
	// over. The result empty is true if the queue has ended, decided in the same transaction, or
	// was not there.
	Remove(ctx context.Context, part DeferredPartition, queue string, events ...Deferred) (
		empty bool, err error)
	// Delay keeps queues out of Due for at least wait, so that queues with a head that cannot
	// run now do not hold others up. The queue is unchanged otherwise. A Postpone of the head,
	// or another head, ends the delay. Queues that are blocked or not there stay as they are.
	Delay(ctx context.Context, part DeferredPartition, wait time.Duration, queues ...string) error
	// DeferredOf returns those of the given events that are deferred in a topic, in any partition
	// and queue, without order. Defer would leave these events as they are.
	DeferredOf(ctx context.Context, scope, topic string, keys ...Key) ([]Deferred, error)
	// FindDeferred returns an event that is deferred in a topic, in any partition and queue. ok is
	// false if it is not.
	FindDeferred(ctx context.Context, scope, topic string, key Key) (
		part DeferredPartition, e Deferred, ok bool, err error)
}
