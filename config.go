package idem

import (
	"log/slog"
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/observe"
)

// Config is the configuration of a [Processor].
type Config struct {
	// Store is the store of handlers without the option [Store].
	Store dedup.Store
	// Scope is the scope of handlers without the option [Scope]. Required. A consumer sets it to
	// its group.
	Scope string
	// Group is the consumer group, which is part of the names of dead-letter topics and retry
	// topics. The default is Scope.
	Group string
	// Lease is the duration of a claim without renewal. After a crash another worker takes the
	// event over after at most this time. A handler may run for longer than a lease, because its
	// claim is renewed. The default is 30 s, the minimum 1 s.
	Lease time.Duration
	// StoreTimeout limits one call of the store for a claim. After the limit the processor
	// abandons the call, even if the client of the store ignores contexts, and asks again with the
	// same token. The limit doubles for a slow store, up to a lease. The default is 2 s, or a
	// lease if that is shorter.
	StoreTimeout time.Duration
	// BusyWait limits how long one call of HandleBatch waits, in all, for an event that is claimed
	// elsewhere, for its turn to read the deferred events of a partition, or for a store or a
	// producer that is down. Then HandleBatch returns a [WaitError]. Keep BusyWait below the poll
	// interval of the client. The default is 1 s; [Forever] waits until the context ends.
	//
	// A completed effect is recorded for longer, up to a lease, because a lost record would repeat
	// the effect.
	//
	// With a finite BusyWait, each call of HandleBatch forgets the outages of an event in earlier
	// calls, and the failures of an [OnTx] handler. So an outage may never reach
	// [RetryPolicy].Outage, or the number of outages that counts as a failure. These limits hold
	// with Forever, as the runners set it.
	BusyWait time.Duration
	// Grace limits how long running handlers may go on after the context of HandleBatch has ended.
	// Two seconds before the limit their contexts are cancelled with the cause [ErrStopping]. At
	// the limit they are abandoned. Transactions are cancelled and rolled back at once. The
	// default is 10 s.
	Grace time.Duration
	// Producer publishes dead letters and copies for delayed retries. If Producer is nil,
	// HandleBatch returns [ErrNoProducer] for an event that needs one.
	Producer Producer
	// DeadLetterTopic returns the dead-letter topic for a topic. The default is
	// "<topic>.<group>.dlq". Dead letters belong to one group, because another group may have
	// handled the event.
	DeadLetterTopic func(topic string) string
	// Shadow turns shadow mode on. Shadow mode records events as usual and runs every one. It only
	// counts the events it would have skipped: see [observe.DuplicateEvent].Shadow and the log at
	// level DEBUG. Handlers must be [Blocking].
	//
	// Use shadow mode to move an existing consumer to Idem: run it with Shadow until it would skip
	// the expected events only, then remove Shadow.
	Shadow bool
	// Replay prepares the processor for records that the group has consumed before, beside the live
	// group: see [Replay]. Set by package replay. The default, nil, is the processor of a group.
	Replay *Replay
	// Observers get the events of the processor, see package observe.
	Observers []observe.Observer
	// Logger is the logger. The default is slog.Default(). Payloads are never logged.
	Logger *slog.Logger
	// ErrorText returns the text of an error for logs, dead letters and the store, which keep at
	// most 1 KiB of it. The default is the function [ErrorText]. The argument is never nil. The
	// function must be safe for concurrent use. Observers get the errors themselves.
	ErrorText func(error) string
}
