// Package lane processes one partition at a time, for any Kafka client. The package has a
// bounded queue in front of an [idem.Processor], workers that settle deliveries in order, and
// the watermark to commit.
//
// One [Partition] serves one assignment of one partition. The fetching side calls [Partition.Push],
// and the committing side reads [Partition.Watermark] and commits no offset beyond that. Close a
// Partition when the assignment ends, and create a new one for the next assignment. Deliveries that
// a closed Partition finishes late therefore cannot move the offset of the next owner.
//
// With one lane, the default, the messages of the partition are settled in the order of
// [Partition.Push]. With more lanes, only messages with the same order key keep the order, see
// [idem.Processor.OrderKey]. A key is bound to a lane only while some of its events are in flight,
// so that every lane finds work. A fixed assignment of keys to lanes by hash would leave about half
// of the lanes idle.
package lane
