package publish

import (
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/IBM/sarama"

	"github.com/idem-go/idem"
)

// topicLookup asks brokers whether a topic exists, before sarama gets messages for it. Inside
// sarama a missing topic would delay all other topics, and the error would look like brokers that
// are down. One goroutine asks for a topic at a time, and ends with the time-outs of the client.
type topicLookup struct {
	client  sarama.Client
	running sync.WaitGroup

	mu    sync.Mutex
	asked map[question][]chan<- topicAnswer // the callers that wait for each answer
	known map[string][]int32                // the partitions of the topics that were found
}

// question asks for a topic, and for its partitions with a leader too if writable is set.
type question struct {
	topic    string
	writable bool
}

// topicAnswer has a nil error for a topic that messages may be sent to. The error matches
// idem.ErrNoTopic if the topic is known to be unusable.
type topicAnswer struct {
	topic    string
	err      error
	all      []int32 // the partitions; empty if no broker answers
	writable []int32 // those with a leader; all if each is without one; nil: not asked for
}

func newTopicLookup(client sarama.Client) *topicLookup {
	return &topicLookup{
		client: client, asked: map[question][]chan<- topicAnswer{}, known: map[string][]int32{},
	}
}

// lookUp sends the answer to answers, which must have room for it.
func (t *topicLookup) lookUp(q question, answers chan<- topicAnswer) {
	t.mu.Lock()
	defer t.mu.Unlock()
	waiting, running := t.asked[q]
	t.asked[q] = append(waiting, answers)
	if running {
		return
	}
	t.running.Go(func() {
		a := t.find(q)
		t.mu.Lock()
		defer t.mu.Unlock()
		t.note(a)
		for _, ch := range t.asked[q] {
			ch <- a
		}
		delete(t.asked, q)
	})
}

// note keeps the partitions of an answer. The caller holds the mutex.
func (t *topicLookup) note(a topicAnswer) {
	switch {
	case a.err == nil:
		t.known[a.topic] = a.all
	case errors.Is(a.err, idem.ErrNoTopic):
		delete(t.known, a.topic)
	}
}

// partitions returns the partitions of a topic at the last look, and nil for an unknown topic. It
// waits for no broker.
func (t *topicLookup) partitions(topic string) []int32 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.known[topic]
}

// find takes no time for a topic that the client knows.
func (t *topicLookup) find(q question) topicAnswer {
	a := topicAnswer{topic: q.topic}
	a.all, a.err = t.client.Partitions(q.topic)
	switch {
	case a.err == nil:
	case errors.Is(a.err, sarama.ErrLeaderNotAvailable): // some partitions may be usable
		a.err = nil
		a.all, _ = t.client.Partitions(q.topic) // the client has them, unless the topic has none
	case isNoTopic(a.err):
		a.err = fmt.Errorf("%w: %w", idem.ErrNoTopic, a.err)
	default:
		a.err = fmt.Errorf("topic %q: %w", q.topic, a.err)
	}
	if q.writable {
		a.writable = t.withLeader(q.topic, a.all)
	}
	return a
}

// withLeader returns the partitions with a leader, or all if each is without one. It asks no
// broker.
func (t *topicLookup) withLeader(topic string, all []int32) []int32 {
	some := slices.DeleteFunc(slices.Clone(all), func(id int32) bool {
		return t.client.PartitionNotReadable(topic, id)
	})
	if len(some) == 0 {
		return all
	}
	return some
}
