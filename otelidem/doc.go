// Package otelidem turns what Idem tells its observers into OpenTelemetry metrics and traces, after the semantic conventions
// for messaging. It needs the OpenTelemetry API only: which SDK and which exporters there are is for the program to say.
//
// One [Observer] serves everything in a process: consumers, processors, relays, outboxes, HTTP handlers and guards.
//
//	telemetry, err := otelidem.New()
//	...
//	c, err := consumer.New(consumer.Config{Observers: []idem.Observer{telemetry}, ...}, router)
//
// # Metrics
//
// [Metrics] lists them; docs/telemetry.md shows how to read them. No label ever has an identity, a key, a tenant, a path or the
// text of an error: labels are topics, consumer groups, the event types that handlers were registered for, and words from
// fixed lists. At most 1,000 sets of labels are told apart by each kind of event; what goes beyond is counted under "_OTHER" (G-15).
//
// # Traces
//
// A run of the engine, which is the events that share a round trip or a transaction, is a span "process <topic>", with links to at most 32
// spans of producers that were sampled. With [ContinueTraces] what is made of one event alone is a child of its
// producer's span instead. Spans carry the identity of an event, and of errors only what kind they are: no payload, no text.
package otelidem
