// Package lane does the work inside one partition, for any Kafka client: a bounded queue in front of an [idem.Processor],
// workers that settle it in order, and the watermark that says what may be committed.
//
// One [Partition] serves one assignment of one partition. Whoever fetches pushes messages in; whoever commits reads
// [Partition.Watermark], and nothing beyond it is ever committed (K-01). When the partition is taken away the object is
// closed and never used again, so that what an old owner finishes late cannot move the offset of a new one (K-39).
//
// With one lane, which is the default, the messages of the partition are settled one after the other in the order of
// [Partition.Push]. With more lanes only those stay in order that share an order key, see [idem.Processor.OrderKey]. A
// key is bound to a lane only while some of its events are in flight, so that no lane is idle while there is work that
// may be done: keys that are spread over lanes by their hash keep half of the lanes busy (rule 25).
package lane
