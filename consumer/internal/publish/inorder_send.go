package publish

import (
	"maps"
	"slices"
	"sync"

	"github.com/IBM/sarama"
)

// batchAnswer is a broker's answer to a batch, or the error of the connection.
type batchAnswer struct {
	batch  *orderedBatch
	err    error
	unsent bool // the batch has no leader, and was not sent
}

// sendBatches sends each batch to the leader of its partition, one request for each leader. answers
// gets one answer for each batch. The result is false if the producer is closed.
func (s *sender) sendBatches(
	id *producerID, batches []*orderedBatch, msgs []*sarama.ProducerMessage,
	answers chan<- batchAnswer,
) bool {
	conf := s.client.Config()
	records := make([]*sarama.RecordBatch, len(batches))
	for n, b := range batches {
		records[n] = b.record(conf, id, id.next[b.at], msgs)
	}
	return s.start(func() {
		requests := map[*sarama.Broker]*leaderRequest{}
		s.refreshLeaders(batches)
		for n, b := range batches {
			leader, err := s.leaderOf(b)
			if err != nil {
				answers <- batchAnswer{batch: b, err: err, unsent: true}
				continue
			}
			r := requests[leader]
			if r == nil {
				r = &leaderRequest{body: newRequest(conf), answers: answers}
				requests[leader] = r
			}
			r.body.AddBatch(b.at.topic, b.at.id, records[n])
			r.batches = append(r.batches, b)
		}
		var sent sync.WaitGroup
		for leader, r := range requests {
			sent.Go(func() { r.send(leader) })
		}
		sent.Wait()
	})
}

// refreshLeaders asks the brokers once for the leaders of all topics with a failed attempt. An
// error may be about another partition of a topic, so leaderOf finds out.
func (s *sender) refreshLeaders(batches []*orderedBatch) {
	topics := map[string]bool{}
	for _, b := range batches {
		if b.attempts > 0 {
			topics[b.at.topic] = true
		}
	}
	if len(topics) > 0 {
		_ = s.client.RefreshMetadata(slices.Collect(maps.Keys(topics))...)
	}
}

// leaderOf returns the leader of a batch's partition. The client asks brokers for each partition
// without a leader, and would delay the others: refreshLeaders does so once for all.
func (s *sender) leaderOf(b *orderedBatch) (*sarama.Broker, error) {
	if s.client.PartitionNotReadable(b.at.topic, b.at.id) {
		return nil, sarama.ErrLeaderNotAvailable
	}
	return s.client.Leader(b.at.topic, b.at.id)
}

// leaderRequest is the batches of one round for the partitions of one broker.
type leaderRequest struct {
	body    *sarama.ProduceRequest
	batches []*orderedBatch
	answers chan<- batchAnswer
}

// send waits for the response, at most for the time-outs of the connection. A failed connection is
// closed, so that the next attempt opens a new one.
func (r *leaderRequest) send(leader *sarama.Broker) {
	type answer struct {
		response *sarama.ProduceResponse
		err      error
	}
	for _, b := range r.batches {
		b.waits.Store(true)
	}
	came := make(chan answer, 1)
	err := leader.AsyncProduce(r.body, func(response *sarama.ProduceResponse, err error) {
		came <- answer{response, err}
	})
	var a answer
	if err == nil {
		a = <-came
		err = a.err
	}
	if verdictOf(err) == batchUnknown {
		_ = leader.Close() // the error of a second close has no meaning
	}
	r.answer(a.response, err)
}

// answer gives each batch its part of the response.
func (r *leaderRequest) answer(response *sarama.ProduceResponse, err error) {
	for _, b := range r.batches {
		a := batchAnswer{batch: b, err: err}
		if err == nil {
			a.err = errNoAnswer
			if block := response.GetBlock(b.at.topic, b.at.id); block != nil {
				a.err = nil
				if block.Err != sarama.ErrNoError {
					a.err = block.Err
				}
			}
		}
		r.answers <- a
	}
}
