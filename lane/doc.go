// Package lane does the ordered work inside one partition, for any Kafka client: a bounded queue in front of a
// [idem.Processor], a worker, and the watermark that says what may be committed.
//
// One [Partition] serves one assignment of one partition. Whoever fetches pushes messages in; whoever commits reads
// [Partition.Watermark], and nothing beyond it is ever committed (K-01). When the partition is taken away the object is
// closed and never used again, so that what an old owner finishes late cannot move the offset of a new one (K-39).
package lane
