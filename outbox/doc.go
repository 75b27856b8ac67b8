// Package outbox lets events leave a service exactly when the transaction that made them commits: they are rows of a table in the service's
// own database, written in that transaction, and a [Relay] publishes them afterwards. It has the words and the relay; package pgoutbox has
// the table in Postgres.
//
// # What it promises
//
// An event is published if and only if its transaction was committed: at least once to Kafka, always with the same ID in the header event-id.
// A relay that dies between the broker's acknowledgement and its record publishes again (O-07), as any relay must. Consumers that
// deduplicate by the ID, such as those of package consumer with [idem.StandardID], handle each event once.
//
// Events of one aggregate, which is a topic and key, are published in the order in which their transactions were committed, and lie in one
// partition: their first appearances in it are in that order, however many relays there are and whatever happens to them (O-04, O-09, O-13).
// An event that appears again may do so after later ones; whoever deduplicates does not see it. Nothing is promised between
// aggregates, and nothing for events without a key.
//
// It does not promise: that an event is published soon while the broker or the database is away; that a broker that forgets what it has
// acknowledged is made up for; that an event which can never be taken, as it is too large or its topic is missing, is published.
//
// # Running the relay
//
// Run it inside the service, next to its other work:
//
//	box := pgoutbox.New(pool)
//	producer, err := consumer.OpenProducer(consumer.Config{Brokers: brokers})
//	...
//	relay, err := outbox.NewRelay(outbox.RelayConfig{Store: box, Producer: producer})
//	...
//	err = relay.Run(ctx) // until ctx ends
//
// or as a program of its own, `idem relay`. As many as you like may run, such as one in each instance of the service: they share the
// [Shards] parts of the outbox evenly, and take over from one that is gone when its [RelayConfig].Lease is over. They look every third of
// a Lease for what is free, also when one has come, or has ended in order. When ctx ends Run waits for what it has given to the producer, at most 10 s or a lease, and for the database, at most 6 s: give
// the process that long. [Relay.Ready] is for a probe of readiness.
//
// The producer must not lose, nor reorder messages of a partition by itself: all in-sync replicas acknowledge, and it is idempotent.
// consumer.OpenProducer makes one that does, and puts keys where the clients in Java put them.
//
// # Tuning
//
// What is committed waits for half a [RelayConfig].Interval on average. A shorter one asks an idle database more often, with one query that
// reads an index; while there is a backlog nothing waits. [RelayConfig].Wake removes the wait at the price of a lock that all commits share
// (O-12).
//
// A batch is published in waves, each with at most one event of an aggregate, and the next wave waits for the acknowledgements of the one
// before. Many aggregates are therefore as fast as batches are, up to [RelayConfig].Batch events per round trip and relay; a single
// aggregate has one event per round trip to the broker, a few hundred in a second. If that is too slow, choose a finer key. More relays help
// when there are many aggregates, up to [Shards].
//
// Memory is one batch: [RelayConfig].BatchBytes, about twice as the producer has a copy, whatever the backlog (O-15). Nothing slows
// writers down while the broker is away: watch the backlog ([BacklogObserver]), it is disk of the database.
//
// While a part of the broker is away, such as one partition, its aggregates rest and others go on, as long as there are no more than 1,000 such
// aggregates with waiting events for each relay; with more, others may be held up until it is back. All wait while the producer finds out, which with
// consumer.OpenProducer is 15 s to 30 s, once. An event without a key may go to any partition, so that nobody knows beforehand that its one is
// away: with many of those each batch may take that long.
//
// # Parked events
//
// An event that the broker refuses for good is parked: it stays in the table with the reason, is logged at level ERROR, without its
// payload, and told to [ParkedObserver]. With [Halt], the default, what is behind it in its aggregate waits, so that its order is kept;
// with [Skip] it goes on without it. All other aggregates go on in any case (O-10). A person decides:
//
//   - too large: raise max.message.bytes of the topic, and the limit of the producer; then let it be tried again
//   - topic is missing, or must not be written to: create it, or grant the right; then let it be tried again
//   - it should never have been published: skip it, and what is blocked behind it goes on
//
// `idem outbox parked` lists them, `idem outbox retry` and `idem outbox skip` decide; pgoutbox has Parked, Retry and Skip for programs.
// An event that is tried again after others of its aggregate went on, under [Skip], comes after them. A broker or a database that is away
// parks nothing, however long.
package outbox
