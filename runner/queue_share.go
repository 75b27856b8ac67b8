package runner

// minQueueShare is the least share of a partition in Config.QueueBytes: room for some dozens of
// small events, so that lanes and batches are of use.
const minQueueShare = 64 << 10

// queueShare divides total among the assigned partitions.
func queueShare(total, partitions int) int {
	return max(total/max(partitions, 1), minQueueShare)
}
