package publish

import (
	"fmt"
	"iter"

	"github.com/IBM/sarama"
)

// maxSequence is where a new producer ID begins at 0 again. Sequence numbers have 31 bits.
const maxSequence = 1 << 30

// producerID numbers the batches of a producer for the brokers (KIP-98).
type producerID struct {
	id    int64
	epoch int16
	next  map[partition]int32 // the sequence number of the next record
	ended map[partition]bool  // a batch may still be appended: its number is taken
}

// serves reports whether the ID has a number for the next batch of every partition.
func (p *producerID) serves(partitions iter.Seq[partition]) bool {
	for at := range partitions {
		if p.ended[at] || p.next[at] > maxSequence {
			return false
		}
	}
	return true
}

// idAnswer is the brokers' answer to a question for a producer ID.
type idAnswer struct {
	id  *producerID
	err error
}

// askProducerID returns within the time-outs of the client.
func askProducerID(client sarama.Client) idAnswer {
	r, err := client.InitProducerID()
	if err == nil && r.Err != sarama.ErrNoError {
		err = r.Err
	}
	if err != nil {
		return idAnswer{err: fmt.Errorf("producer ID: %w", err)}
	}
	return idAnswer{id: &producerID{
		r.ProducerID, r.ProducerEpoch, map[partition]int32{}, map[partition]bool{},
	}}
}
