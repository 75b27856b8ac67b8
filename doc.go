// Package idem makes Kafka consumers effectively once. The effect of an event happens once,
// although Kafka, a producer, a rebalance, a crash or an operator may deliver the event again.
//
// A store remembers events by the ID that their producer gave them, never by offset. Handlers are
// typed functions that a [Router] chooses by event type. Package consumer runs them:
//
//	router := idem.NewRouter()
//	idem.On(router, "order.created", func(ctx context.Context, e idem.Event[OrderCreated]) error {
//		return mail.Send(ctx, e.Data.Email, e.IdempotencyKey())
//	})
//	c, err := consumer.New(consumer.Config{
//		Brokers: brokers, Group: "mailer", Topics: []string{"orders"}, Store: store,
//	}, router)
//	if err != nil {
//		return err
//	}
//	return c.Run(ctx) // blocks; finishes running handlers and returns nil when ctx ends
//
// # Choosing a registration function
//
//   - [OnTx]: the effects are writes to the database that keeps the store, such as Postgres. The
//     mark in the store and the effects are one transaction, so the effects happen exactly once.
//   - [On]: the effects are elsewhere, such as mail or an HTTP call. The store grants a claim, the
//     handler runs, and the store records the completion. A crash between effect and completion
//     leaves the event uncertain.
//   - [OnBatch] and [OnBatchTx]: the same for handlers that take many events in one call. Examples
//     are a bulk API, and one UPDATE statement for hundreds of rows.
//
// For an uncertain event, [WhenUncertain] chooses between two policies. By default the handler runs
// again with the same [Event.IdempotencyKey]. Or the event becomes a dead letter for a person to
// decide.
//
// # Failing handlers
//
// An error is transient by default, and [RetryPolicy] limits the attempts. A handler marks an error
// to change that: [Permanent], [NotApplied], [RetryAfter], [Unavailable]. [Blocking], [RetryTopics]
// and [KeyOrdered] choose whether the events behind a failing one wait. An event that is given up
// goes to the dead-letter topic of the group. The dead letter is acknowledged first, then the store
// records the event as dead, and then the offset may be committed.
//
// While the store or the producer of dead letters does not answer, work pauses and no event is
// given up.
//
// # Packages
//
//   - consumer runs a router on Kafka with sarama.
//   - dedup defines the store. Its sub-packages pgstore, sqlstore, redisstore, dynamostore and
//     memstore are stores, and storetest tests a store of your own.
//   - outbox publishes events if and only if their transaction commits.
//   - httpidem handles HTTP requests that carry an Idempotency-Key.
//   - lane handles the keys of a partition side by side, for a poll loop of your own.
//   - adapter/kgoidem and adapter/kafkagoidem, modules of their own, are the runners on franz-go
//     and kafka-go.
//   - adapter/watermillidem, a module of its own, runs Idem in a Watermill router.
//   - codec/jsonv2, codec/schemaregistry and codec/cloudevents are modules of their own: faster
//     JSON; Avro, Protobuf and JSON Schema with a schema registry; CloudEvents.
//   - otelidem exports metrics and traces to OpenTelemetry. ops is a web page for operators.
//
// For another Kafka client, create a [Processor] and call [Processor.HandleBatch] from your poll
// loop. Commit only the messages that it reports as settled.
//
// Besides packages of this module, package idem imports the standard library only.
package idem
