package consumer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/IBM/sarama"

	"github.com/idem-go/idem"
)

// topicList is what a consumer subscribes to: what of its topics exists. sarama joins no group while one topic of a
// subscription is missing, so one that is deleted would stop all others (K-27).
type topicList struct {
	needed   []string // sources and their topics for later attempts
	optional []string // for replayed dead letters, and those of delays that were declared once
	every    time.Duration

	mu      sync.Mutex
	current []string
	gone    []string // of those that are needed, sorted
	asked   bool     // the first look was taken
}

func newTopicList(h *GroupHandler, sources []string) *topicList {
	t := &topicList{needed: slices.Clone(sources), every: goneLook}
	for _, source := range sources {
		t.needed = append(t.needed, h.retryTopics(source)...)
		t.optional = append(t.optional, idem.RetryTopic(source, h.cfg.Group, 0))
	}
	t.current = t.needed
	return t
}

// also subscribes to one more topic, if it exists. It reports false if it is known.
func (t *topicList) also(topic string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if slices.Contains(t.needed, topic) || slices.Contains(t.optional, topic) {
		return false
	}
	t.optional = append(t.optional, topic)
	return true
}

// now is the present subscription.
func (t *topicList) now() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.current
}

// missing are the topics that were deleted.
func (t *topicList) missing() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.gone
}

// complete reports whether all topics are subscribed to, so that there is nothing to look for.
func (t *topicList) complete() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.current) == len(t.needed)+len(t.optional)
}

// set notes which topics are missing, and returns which of those that are needed have gone and come since the last look.
func (t *topicList) set(missing []string) (gone, back, lacking []string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	was := t.gone
	t.current, t.gone = nil, nil
	for _, topic := range t.needed {
		if slices.Contains(missing, topic) {
			t.gone = append(t.gone, topic)
		} else {
			t.current = append(t.current, topic)
		}
	}
	for _, topic := range t.optional {
		if !slices.Contains(missing, topic) {
			t.current = append(t.current, topic)
		} else if !t.asked {
			lacking = append(lacking, topic)
		}
	}
	t.asked = true
	slices.Sort(t.gone)
	return without(t.gone, was), without(was, t.gone), lacking
}

func without(all, some []string) (rest []string) {
	for _, s := range all {
		if !slices.Contains(some, s) {
			rest = append(rest, s)
		}
	}
	return rest
}

// look finds out which topics exist, and tells what has changed.
func (c *Consumer) look(client sarama.Client) (back []string, err error) {
	admin, err := sarama.NewClusterAdminFromClient(client) // closing it would close the client
	if err != nil {
		return nil, fmt.Errorf("look for topics: %w", err)
	}
	missing, err := missingTopics(admin, slices.Concat(c.topics.needed, c.topics.optional))
	if err != nil {
		return nil, err
	}
	gone, back, lacking := c.topics.set(missing)
	for _, topic := range gone {
		c.log.Error("topic does not exist any longer, going on with the others", "topic", topic)
		c.handler.tellTopic(topic, true)
	}
	for _, topic := range back {
		c.log.Info("topic is there again", "topic", topic)
		c.handler.tellTopic(topic, false)
	}
	if len(lacking) > 0 {
		c.log.Warn("dead letters cannot be replayed until their topics exist: create them, or set CreateDeadLetterTopics",
			"topics", lacking)
	}
	return back, nil
}

func (h *GroupHandler) tellTopic(topic string, missing bool) {
	for _, o := range h.obs.topic {
		o.ObserveTopic(context.Background(), TopicEvent{Group: h.cfg.Group, Topic: topic, Missing: missing})
	}
}

// subscription returns what to consume. It looks again after trouble and while something is missing, else the group would
// wait at each rebalance for a question whose answer is known.
func (c *Consumer) subscription(client sarama.Client, troubled bool) ([]string, error) {
	if troubled || !c.topics.complete() {
		if _, err := c.look(client); err != nil {
			return nil, err
		}
	}
	if topics := c.topics.now(); len(topics) > 0 {
		return topics, nil
	}
	return nil, &TopicError{Topics: c.topics.missing()}
}

// goneLook is how often topics that were deleted are looked for.
const goneLook = 30 * time.Second

var errTopicBack = errors.New("a topic is there again")

// awaitGone looks for topics that were deleted until ctx ends, and joins again when one is back.
func (c *Consumer) awaitGone(ctx context.Context, client sarama.Client) {
	for pause(ctx, c.topics.every) == nil {
		if len(c.topics.missing()) == 0 {
			continue
		}
		if back, err := c.look(client); err == nil && len(back) > 0 {
			c.handler.endSession(errTopicBack)
		}
	}
}
