// Package consumer runs an [idem.Router] on Kafka with sarama: [New] and [Consumer.Run] for a whole consumer,
// [NewGroupHandler] for a sarama.ConsumerGroup that exists already.
//
// Offsets are committed up to the last event below which all are settled and never beyond, on a timer, when a partition is
// given back, and at the end. Kafka may deliver an event again after a crash or a rebalance; the store knows it then.
//
// # Settings
//
// [DefaultSaramaConfig] builds the settings of sarama. They differ from sarama's own where those lose events in silence:
// a group without committed offsets begins at the oldest record, a committed offset that is no longer in the log is an error
// ([GapPolicy]) instead of a jump, aborted transactions are not read, producers wait for all in-sync replicas, and a
// misspelt topic is an error instead of a new topic. One log line shows the effective values at start.
package consumer
