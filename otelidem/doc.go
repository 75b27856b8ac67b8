// Package otelidem turns the events of Idem's observers into OpenTelemetry metrics and traces, by
// the semantic conventions for messaging. The package needs the OpenTelemetry API only: the program
// chooses the SDK and the exporters.
//
// One [Observer] serves everything in a process: consumers, processors, relays, outboxes, HTTP
// handlers and guards.
//
//	telemetry, err := otelidem.New()
//	...
//	c, err := consumer.New(consumer.Config{Observers: []observe.Observer{telemetry}, ...}, router)
//
// # Metrics
//
// [Metrics] lists the metrics; docs/telemetry.md shows how to read them. Labels are topics,
// consumer groups, the event types of registered handlers, and words from fixed lists. No label
// contains an event ID, a key, a tenant, a path or the text of an error. Each kind of event has at
// most 1,000 sets of labels; further ones are counted under "_OTHER".
//
// # Traces
//
// A claim group, the events that share a round trip or a transaction, is one span, "process
// <topic>". The span has links to at most 32 sampled spans of producers. With [ContinueTraces], the
// span of a single event is a child of the producer's span instead. Spans contain the key of an
// event and the kind of an error, but no payload and no error text.
package otelidem
