// Package kafkagoidem runs an [idem.Router] on Kafka with segmentio/kafka-go. [New] and
// [Runner.Run] make a whole consumer, with the settings and guarantees of package consumer, which
// uses sarama.
//
// The runner commits the watermark of each partition: on a timer, before the partition is given
// back, and at the end. No offset above an unfinished event is ever committed. After a crash or a
// rebalance Kafka may deliver an event again; the store recognises the duplicate.
//
// # Settings
//
// These settings replace the defaults of kafka-go that lose events without an error:
//   - A committed offset that is no longer in the log is an error ([runner.GapPolicy]), not a jump.
//   - Records of aborted transactions are not handled. A Reader of kafka-go returns them.
//   - Offsets are committed only for settled events.
//   - A partition that another member may have is lost, and the handlers end. kafka-go itself does
//     not report why a generation ends.
//
// # Limits
//
// kafka-go lacks features that the other runners use:
//   - Rebalances are eager: all members give back all partitions, and wait for the slowest handler.
//   - There is no static membership: each restart of a member is a rebalance.
//   - Producers are not idempotent. A dead letter or a copy for a retry may be written twice after
//     an answer was lost. The store recognises a second copy; readers of dead letters must expect
//     it.
//   - Missing rights on topics are found when they are used, not at the start.
//   - The size of a decompressed batch has no bound.
//   - With LogAppendTime a record has no time, because the time at which a broker appended the
//     record is lost. The store never calls the event too old.
package kafkagoidem
