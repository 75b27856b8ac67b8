// Package consumer runs an [idem.Router] on Kafka with sarama. [New] and [Consumer.Run] make a
// whole consumer; [NewGroupHandler] serves a sarama.ConsumerGroup that exists already.
//
// The consumer commits the watermark of each partition: on a timer, when the partition is given
// back, and at the end. No offset above an unfinished event is ever committed. After a crash or a
// rebalance Kafka may deliver an event again; the store recognises the duplicate.
//
// # Settings
//
// [DefaultSaramaConfig] builds the settings of sarama. These settings replace the defaults of
// sarama that lose events without an error:
//   - A group without committed offsets begins at the oldest record.
//   - A committed offset that is no longer in the log is an error ([GapPolicy]), not a jump.
//   - Aborted transactions are not read.
//   - Producers wait for all in-sync replicas.
//   - A misspelt topic is an error, not a new topic.
//
// One log line shows the effective values at the start.
package consumer
