// Package runner has what a consumer of a group does besides fetching and committing, for any Kafka
// client: checks of stores, topics and offsets at the start, the way of records into lanes, marks
// and commits, progress, stalls, probes. Package consumer is a runner on sarama.
//
// Package runner imports no Kafka client. A runner on a client implements [Admin], [Offsets],
// [Claim] and [Session], and classifies the errors of the client with [Class].
package runner
