package consumer

// minQueueShare is the least share of a partition in Config.QueueBytes: room for some dozens of
// small events, so that lanes and batches are of use.
const minQueueShare = 64 << 10

// queueShare divides total among the assigned partitions.
func queueShare(total int, claims map[string][]int32) int {
	partitions := 0
	for _, of := range claims {
		partitions += len(of)
	}
	return max(total/max(partitions, 1), minQueueShare)
}
