package publish

import (
	"errors"
	"fmt"
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
	asked map[string][]chan<- topicAnswer // the callers that wait for each topic
}

// topicAnswer has a nil error for a topic that messages may be sent to. The error matches
// idem.ErrNoTopic if the topic is known to be unusable.
type topicAnswer struct {
	topic string
	err   error
}

func newTopicLookup(client sarama.Client) *topicLookup {
	return &topicLookup{client: client, asked: make(map[string][]chan<- topicAnswer)}
}

// lookUp sends the answer for a topic to answers, which must have room for it.
func (t *topicLookup) lookUp(topic string, answers chan<- topicAnswer) {
	t.mu.Lock()
	defer t.mu.Unlock()
	waiting, running := t.asked[topic]
	t.asked[topic] = append(waiting, answers)
	if running {
		return
	}
	t.running.Go(func() {
		a := topicAnswer{topic, t.find(topic)}
		t.mu.Lock()
		defer t.mu.Unlock()
		for _, ch := range t.asked[topic] {
			ch <- a
		}
		delete(t.asked, topic)
	})
}

// find takes no time for a topic that the client knows.
func (t *topicLookup) find(topic string) error {
	_, err := t.client.Partitions(topic)
	switch {
	case err == nil, errors.Is(err, sarama.ErrLeaderNotAvailable): // some partitions may be usable
		return nil
	case isNoTopic(err):
		return fmt.Errorf("%w: %w", idem.ErrNoTopic, err)
	}
	return fmt.Errorf("topic %q: %w", topic, err)
}
