// Package outbox publishes the events of a service if, and only if, the transaction that made them
// commits. The service writes its events as rows of a table in its own database, in that
// transaction. A [Relay] publishes the rows afterwards. This package has the types and the relay.
// Package pgoutbox has the table in Postgres. Module sqloutbox has the table in MySQL and MariaDB,
// and adds to both by database/sql.
//
// # Guarantees
//
// An event is published if and only if its transaction commits. Publication is at least once,
// always with the same ID in the header event-id. If a relay stops between the broker's
// acknowledgement and the record in the table, the event is published again. Consumers that
// deduplicate by the ID, such as those of package consumer with [idem.StandardID], handle each
// event once.
//
// The events of one aggregate, which is a topic and key, lie in one partition. Their first
// appearances are in the order in which their transactions committed. This holds for any number of
// relays, also when relays fail. Later appearances may come out of order; consumers that
// deduplicate skip those.
//
// The package does not promise:
//
//   - any order between aggregates, or for events without a key
//   - a time of publication, while the broker or the database is down
//   - a replacement for events that the broker acknowledged and then lost
//   - publication of events that the broker can never take, such as an event that is too large or
//     has a missing topic
//
// # Running the relay
//
// Run the relay inside the service:
//
//	box := pgoutbox.New(pool)
//	producer, err := consumer.OpenProducer(consumer.Config{Brokers: brokers})
//	...
//	relay, err := outbox.NewRelay(outbox.RelayConfig{Store: box, Producer: producer})
//	...
//	err = relay.Run(ctx) // until ctx ends
//
// or as a program of its own, `idem relay`. Any number of relays may run, such as one in each
// instance of the service. The relays share the [Shards] parts of the outbox evenly. When the
// [RelayConfig].Lease of a relay that is gone has ended, the others take its parts over. Relays
// look for free parts every third of a Lease. The parts of a relay that has ended in order, or the
// share of a new one, wait for that time at most.
//
// When ctx ends, Run waits for the messages that the producer already has, for at most 10 s or a
// lease, whichever is less. Run then waits for the database, for at most 6 s. Give the process that
// much time. [Relay.Ready] is for a readiness probe.
//
// The producer must be idempotent, must wait for all in-sync replicas, and must not reorder
// messages of a partition. The function consumer.OpenProducer makes such a producer, and spreads
// keys over partitions as Java's clients do.
//
// # Tuning
//
// A committed event waits for half a [RelayConfig].Interval on average. With a shorter Interval the
// relay asks an idle database more often, with one query that reads an index. While rows wait there
// is no pause. [RelayConfig].Wake shortens the wait to some milliseconds.
//
// With an [OrderedProducer], such as consumer.Producer, a batch is one call. The events for a
// partition are one record batch, which a broker appends as a whole or not at all. So the events of
// an aggregate keep their order without a wait between them. The number of aggregates does not
// matter.
//
// Events without an acknowledgement go on in waves, and so do all events while the broker fails or
// with another producer. A wave has at most one event of each aggregate, and the next wave waits
// for the acknowledgements of this one. A single aggregate then gets one event per round trip, a
// few hundred per second.
//
// Batches have 100 rows at first, and grow while a backlog is published quickly. More relays help,
// up to [Shards].
//
// The memory of a relay is bounded by one batch, for any backlog. That is about twice
// [RelayConfig].BatchBytes, because the producer has a copy. Writers are not slowed down during an
// outage of the broker. The backlog uses disk of the database: add a [BacklogObserver].
//
// During an outage of a part of the broker, such as one partition, the aggregates in that part wait
// and others go on. Each relay remembers up to 1,000 such aggregates. With more, other aggregates
// may have to wait until the outage ends. All aggregates wait once while the producer detects the
// outage: 15 s to 30 s with consumer.OpenProducer.
//
// Each fetch reads the waiting events of those aggregates, and leaves them out. A million of such
// events delay each batch by some seconds. After several millions a fetch exceeds its limit of
// 10 s, and all aggregates of the relay wait. The page about the outbox has figures and the remedy.
//
// An event without a key may go to any partition, so a relay cannot leave it out in advance. With
// many such events, each batch may take that long.
//
// # Parked events
//
// An event that the broker refuses for good is parked. The row stays in the table with the reason.
// The relay logs the event at level ERROR, without the payload, and calls [ParkedObserver]. With
// [Halt], the default, the later events of the aggregate wait, so that their order is kept. With
// [Skip] the later events are published. All other aggregates go on in any case.
//
// A person decides about a parked event:
//
//   - The event is too large: raise max.message.bytes of the topic and the limit of the producer,
//     then retry the event.
//   - The topic is missing or may not be written to: create the topic or grant the right, then
//     retry the event.
//   - The event should not be published: skip the event. The later events go on.
//
// `idem outbox parked` lists parked events, `idem outbox retry` and `idem outbox skip` act on one.
// Programs use the methods of [Operator]. With [Skip] as the policy, a parked event that is retried
// comes after the events that went on. An outage of the broker or the database never parks an
// event.
//
// A change from [Halt] to [Skip] frees no event that is blocked. Otherwise a later event could
// overtake it. An aggregate with blocked events stays halted until a person has retried or skipped
// the parked event in front, with `idem outbox retry` or `idem outbox skip`.
package outbox
