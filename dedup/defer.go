package dedup

import (
	"context"
	"time"
)

// DeferredPartition is where the waiting events of one partition are.
type DeferredPartition struct {
	Scope     string
	Topic     string
	Partition int32
}

// Deferred is an event that waits in the store for a later attempt, or behind one that does, in the order of its Kafka
// key (rule 4).
type Deferred struct {
	// Key of the event. Its scope is that of the partition.
	Key Key
	// Queue is the Kafka key, any bytes of any length: its events run in the order in which they were deferred.
	Queue string
	// Position of the copy that is to run. Higher by one with each attempt.
	Position Position
	// Wait is how long it must not run yet, at least, counted from the call. Zero or less: it is due.
	Wait time.Duration
	// Blocked says that it was given up and that those behind it wait for a person. Never set by Defer.
	Blocked bool
	// Origin of its first delivery.
	Origin Origin
	// Data is the message and its history, in the caller's encoding.
	Data []byte
}

// Queue is what is known of the queue of one Kafka key.
type Queue struct {
	Name    string
	Length  int
	Wait    time.Duration // until its head is due
	Blocked bool          // its head was given up
}

// Deferrer is an ability of a [Store]: to keep events in the order of their Kafka keys until they may run. Only the owner of
// a partition defers its events and takes them up; should two take themselves for it, the claim of the event keeps them
// apart, and nothing is lost or runs out of turn: each verb names what it expects to find.
//
// A queue is one in its scope and topic, and in the partition of its last Defer: only Queues and Due ask for that, so that
// a queue which went to another partition ends as it began.
type Deferrer interface {
	// Defer puts events at the ends of their queues, in their order, in one transaction. An event whose key is deferred in the
	// scope and topic already stays as it is, wherever it stands (a repeat after an error changes nothing). Keys that
	// are not valid or of another scope are refused, with all others of the call.
	Defer(ctx context.Context, part DeferredPartition, events []Deferred) error
	// Queues returns the queues of a lot in the order of their names (the store's own for names of more than 255 bytes), at
	// most limit of those after the given one. Empty is before all names, the empty one included: ask for two at least.
	Queues(ctx context.Context, part DeferredPartition, after string, limit int) ([]Queue, error)
	// Due returns the heads of queues that may run now, the longest due first, at most limit. next is how long until another one
	// is due: zero if one is that limit kept back, negative if none will be without a person or another Defer.
	Due(ctx context.Context, part DeferredPartition, limit int) (heads []Deferred, next time.Duration, err error)
	// First returns the first events of a queue in their order, at most limit. None: there is no such queue.
	First(ctx context.Context, part DeferredPartition, queue string, limit int) ([]Deferred, error)
	// Postpone replaces Position, Wait, Blocked and Data of a deferred event; its place in the queue and its Origin stay. moved
	// is false, and nothing changes, if the event is not in its queue any longer or its position is not before the new one.
	// (Blocked may be set with the position unchanged, and again.)
	Postpone(ctx context.Context, part DeferredPartition, e Deferred) (moved bool, err error)
	// Remove takes events out of a queue, of which Key and Position count: each that is still there at this position or a
	// lower one of its generation. If the head was among them, what follows is due from now on, behind the heads that are due
	// already, or once a Wait of its own is over. empty reports that the queue has ended, which is decided in the same
	// transaction, or was not there.
	Remove(ctx context.Context, part DeferredPartition, queue string, events ...Deferred) (empty bool, err error)
	// Delay gives queues their next turn no earlier than after wait: until then Due leaves them out. It is for queues whose heads
	// cannot run now, so that they keep no other queue from its turn. Nothing else of a queue changes. A Postpone of its head, or
	// another head, ends the delay. Queues that are blocked or not there stay as they are.
	Delay(ctx context.Context, part DeferredPartition, wait time.Duration, queues ...string) error
	// DeferredOf returns those of some events that are deferred in a topic, in any partition and queue, in no order: what Defer would
	// leave as it is.
	DeferredOf(ctx context.Context, scope, topic string, keys ...Key) ([]Deferred, error)
	// FindDeferred returns an event that is deferred in a topic, in whatever partition and queue. ok is false if it is not.
	FindDeferred(ctx context.Context, scope, topic string, key Key) (part DeferredPartition, e Deferred, ok bool, err error)
}

// TxRunner is an ability of a [TxStore]: a transaction with no claim in it, for a consumer that only watches ([TxStore] in
// a shadow mode) and for what must run whatever the store says.
type TxRunner[Tx any] interface {
	// RunTx begins a transaction, runs fn, and commits, with the errors and limits of ClaimTx. fn runs once.
	RunTx(ctx context.Context, limit time.Duration, fn func(tx Tx) error) error
}
