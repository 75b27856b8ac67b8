package consumer

import (
	"errors"
	"fmt"
	"sync"

	"github.com/IBM/sarama"

	"github.com/idem-go/idem"
)

// topicAsks asks brokers whether topics are there, before sarama has messages for them: there, a topic that does not exist would
// hold up all others, and then be spoken of as if the brokers were away. One goroutine asks for a topic at a time, and ends with
// the time-outs of the client at the latest.
type topicAsks struct {
	client  sarama.Client
	running sync.WaitGroup

	mu    sync.Mutex
	asked map[string][]chan<- topicAnswer // who waits
}

// topicAnswer: err is nil for a topic that messages may be sent to, and matches idem.ErrNoTopic if that is known to be of no use.
type topicAnswer struct {
	topic string
	err   error
}

// ask asks for topics. It reports false if the producer is closed.
func (p *Producer) ask(topics map[string][]int) (<-chan topicAnswer, bool) {
	p.closing.RLock()
	defer p.closing.RUnlock()
	if p.closed {
		return nil, false
	}
	answers := make(chan topicAnswer, len(topics)) // nobody who answers ever waits
	for topic := range topics {
		p.topics.ask(topic, answers)
	}
	return answers, true
}

func (t *topicAsks) ask(topic string, answers chan<- topicAnswer) {
	t.mu.Lock()
	defer t.mu.Unlock()
	waiting, running := t.asked[topic]
	t.asked[topic] = append(waiting, answers)
	if running {
		return
	}
	t.running.Go(func() {
		a := topicAnswer{topic, t.lookUp(topic)}
		t.mu.Lock()
		defer t.mu.Unlock()
		for _, ch := range t.asked[topic] {
			ch <- a
		}
		delete(t.asked, topic)
	})
}

// lookUp takes no time for a topic that the client knows.
func (t *topicAsks) lookUp(topic string) error {
	_, err := t.client.Partitions(topic)
	switch {
	case err == nil, errors.Is(err, sarama.ErrLeaderNotAvailable): // it is there, for some partitions at least
		return nil
	case isNoTopic(err):
		return fmt.Errorf("%w: %w", idem.ErrNoTopic, err)
	}
	return fmt.Errorf("topic %q: %w", topic, err)
}
