package lane

import "cmp"

// Config of a [Partition]. The zero value is ready to use.
type Config struct {
	// Lanes is the number of events that may be handled at a time; each lane is a goroutine.
	// Defaults to 1: all messages are settled in the order of Push. A handler that takes batches is
	// an exception: one call handles several events at the place of the first, and may overtake
	// events without a key. With more lanes, only events with equal order keys keep the order (see
	// [idem.Processor.OrderKey]).
	Lanes int
	// Queue is the number of messages that the partition holds from the watermark on before Push
	// blocks. Messages that wait, that are being handled, and that are settled behind an older
	// unsettled one all count. Queue limits how far the lanes continue while one event holds the
	// watermark. Lanes that share few events form small batches. Defaults to 256 for each lane, at
	// least 1,024 and at most 16,384. Memory: 24 bytes for each place, and about 100 more for each
	// message of the largest number held at a time.
	Queue int
	// QueueBytes bounds the unsettled messages, in bytes of keys, values and headers, and about 500
	// more for each message. A single larger message is accepted when the queue is empty. Defaults
	// to 64 MiB. A program with many partitions sets a share of the memory that all may take.
	QueueBytes int
	// Batch is the largest number of messages in one call of the processor. A lane does not wait
	// for a batch to fill. With several lanes, a batch is also limited to the lane's share of the
	// messages that may begin, and to about 50 ms of work. The watermark moves within a batch.
	// Defaults to 512.
	Batch int
	// BatchBytes bounds a batch in bytes. A single larger message is a batch of its own. Defaults
	// to 4 MiB.
	BatchBytes int
	// OwnProgress means that the caller records progress with [idem.Processor.RecordProgress], as
	// package consumer does. By default, false, the lane reports the watermark with
	// [idem.Processor.NoteProgress], so that a store in Postgres can delete expired records. In
	// that case commit the watermark well within the retention. A partition without new messages
	// delays the deletion for the whole scope: call RecordProgress to report that the partition is
	// caught up.
	OwnProgress bool
}

func (c Config) withDefaults() Config {
	c.Lanes = max(c.Lanes, 1)
	c.Queue = cmp.Or(max(c.Queue, 0), min(max(1024, 256*c.Lanes), 16384))
	c.QueueBytes = cmp.Or(max(c.QueueBytes, 0), 64<<20)
	c.Batch = cmp.Or(max(c.Batch, 0), 512)
	c.BatchBytes = cmp.Or(max(c.BatchBytes, 0), 4<<20)
	return c
}
