// Package watermillidem runs Idem in a Watermill router. The package is a module of its own.
//
// [Handler] settles each message with an [idem.Processor]. Typed handlers, retries, dead letters
// and all stores work as in a consumer of Idem:
//
//	router.AddConsumerHandler("billing", "payments", subscriber, watermillidem.Handler(processor))
//
// [Collector] does the same for batches. [Middleware] makes an existing handler of Watermill run
// once for each message, and publishes the same messages again when the message comes again.
//
// The event ID is found by the processor's router. [ID] finds the one of messages that Watermill
// published. A message is acknowledged after it is settled, and the error of an unsettled one makes
// Watermill deliver it again.
package watermillidem
