// Package idem makes consumers of Kafka effectively once: a business event changes the world once, however often a
// producer, a rebalance, a crash or an operator delivers it.
//
// Handlers are typed functions, registered by event type:
//
//	router := idem.NewRouter()
//	idem.On(router, "order.created", func(ctx context.Context, e idem.Event[OrderCreated]) error {
//		return mail.Send(ctx, e.Data.Email, e.IdempotencyKey())
//	})
//
// A [Processor] takes each message through one gate: it finds the handler and the identity of the event (made once by its
// producer, never an offset), asks a store for the right to handle it, runs the handler, records the end, and only then
// calls the message settled. What is settled may be committed to Kafka.
//
// # Two ways to be once
//
// [OnTx] is for effects in the database that keeps the store: the mark and the effects are one transaction, so they
// happen exactly once there, with no window.
//
// [On] is for effects elsewhere: the event is claimed under a lease, handled, completed. A crash between the effect and
// its completion leaves a doubt that nobody can remove from outside. [WhenUncertain] decides it: run again with the same
// [Event.IdempotencyKey] (the default), or leave it to a person.
//
// # When a handler fails
//
// Any error is transient and tried again as [RetryPolicy] says, unless it is marked: [Permanent], [NotApplied],
// [RetryAfter], [Unavailable]. What will never work goes to a dead-letter topic, in the order that loses nothing: dead letter
// acknowledged, event recorded as dead, offset marked. An outage of store or producer is nobody's fault: work pauses and
// nothing is given up.
//
// # Where it runs
//
// Package consumer runs a Processor on sarama. A loop of your own, with whatever client, calls [Processor.HandleBatch]
// and commits the first messages it says are settled.
//
// The package imports the standard library and [github.com/idem-go/idem/dedup] only.
package idem
