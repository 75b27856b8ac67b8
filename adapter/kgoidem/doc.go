// Package kgoidem runs an [idem.Router] on Kafka with franz-go. [New] and [Runner.Run] make a whole
// consumer, with the settings and guarantees of package consumer, which uses sarama.
//
// The runner commits the watermark of each partition: on a timer, before the partition is given
// back, and at the end. No offset above an unfinished event is ever committed. After a crash or a
// rebalance Kafka may deliver an event again; the store recognises the duplicate.
//
// # Settings
//
// These settings replace the defaults of franz-go that lose events without an error:
//   - A committed offset that is no longer in the log is an error ([runner.GapPolicy]), not a jump.
//   - Aborted transactions are not read.
//   - Offsets are committed only for settled events.
//
// As in franz-go, a group without committed offsets begins at the oldest record, the checksums of
// records are checked, and no topic is created by reading. Producers are idempotent and wait for
// all in-sync replicas. [Config].Options cannot change any of this.
package kgoidem
