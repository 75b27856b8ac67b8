package consumer

import (
	"context"
	"errors"
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

	suspected chan struct{} // a broker has refused to give records of one

	mu      sync.Mutex
	current []string
	gone    []string // of those that are needed: missing, or not to be read; sorted
	denied  []string // not to be read; sorted
	asked   bool     // the first look was taken
	told    time.Time
}

// suspect lets the topics be looked at soon.
func (t *topicList) suspect() {
	select {
	case t.suspected <- struct{}{}:
	default: // they will be
	}
}

func newTopicList(h *GroupHandler, sources []string) *topicList {
	t := &topicList{needed: slices.Clone(sources), every: goneLook, suspected: make(chan struct{}, 1)}
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

// others are the topics that it can do without.
func (t *topicList) others() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.optional)
}

// deniedNow are the needed topics that must not be read.
func (t *topicList) deniedNow() (denied []string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, topic := range t.gone {
		if slices.Contains(t.denied, topic) {
			denied = append(denied, topic)
		}
	}
	return denied
}

// now is the present subscription.
func (t *topicList) now() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.current
}

// missing are the topics that were deleted, or may no longer be read.
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

// changes are what differs from the last look.
type changes struct {
	gone, back []string // of those that are needed
	lacking    []string // of the others: missing at the first look
	denied     []string // of the others: not to be read
	again      bool     // what is gone is to be told again
}

// set notes what was found, and returns what has changed since the last look.
func (t *topicList) set(found access) (c changes) {
	t.mu.Lock()
	defer t.mu.Unlock()
	was, wasDenied := t.gone, t.denied
	t.current, t.gone, t.denied = nil, nil, found.denied
	for _, topic := range t.needed {
		if slices.Contains(found.missing, topic) || slices.Contains(found.denied, topic) {
			t.gone = append(t.gone, topic)
		} else {
			t.current = append(t.current, topic)
		}
	}
	for _, topic := range t.optional {
		switch {
		case slices.Contains(found.denied, topic):
			c.denied = append(c.denied, topic)
		case !slices.Contains(found.missing, topic):
			t.current = append(t.current, topic)
		case !t.asked:
			c.lacking = append(c.lacking, topic)
		}
	}
	t.asked = true
	slices.Sort(t.gone)
	c.gone, c.back, c.denied = without(t.gone, was), without(was, t.gone), without(c.denied, wasDenied)
	if now := time.Now(); len(c.gone) > 0 || len(t.gone) > 0 && now.Sub(t.told) >= detailEvery {
		t.told, c.again = now, true
	}
	return c
}

func without(all, some []string) (rest []string) {
	for _, s := range all {
		if !slices.Contains(some, s) {
			rest = append(rest, s)
		}
	}
	return rest
}

// look finds out which topics can be read, and tells what has changed. It reports whether the subscription should be renewed.
func (c *Consumer) look(client sarama.Client) (renew bool, err error) {
	topics, err := askTopics(client, slices.Concat(c.topics.needed, c.topics.others()))
	if err != nil {
		return false, err
	}
	found, err := accessOf(topics, opRead)
	if err != nil {
		return false, err
	}
	change := c.topics.set(found)
	for _, topic := range c.topics.missing() {
		switch fresh := slices.Contains(change.gone, topic); {
		case !change.again && !fresh:
		case slices.Contains(found.denied, topic):
			c.log.Error("topic must not be read any longer, going on with the others", "topic", topic, "grant", c.cfg.topicACLs([]string{topic}, opRead))
		default:
			c.log.Error("topic does not exist any longer, going on with the others", "topic", topic)
		}
	}
	for _, topic := range change.gone {
		c.handler.tellTopic(topic, true)
	}
	for _, topic := range change.back {
		c.log.Info("topic is there again", "topic", topic)
		c.handler.tellTopic(topic, false)
	}
	if len(change.lacking) > 0 {
		c.log.Warn("dead letters cannot be replayed until their topics exist: create them, or set CreateDeadLetterTopics",
			"topics", change.lacking, "create", c.cfg.createCommands(change.lacking, nil, settingRetries))
	}
	if len(change.denied) > 0 { // only replays need them (rule 46)
		c.log.Warn("retry topics must not be read: dead letters cannot be replayed, and copies that were left there wait",
			"topics", change.denied, "grant", c.cfg.topicACLs(change.denied, opRead))
	}
	return len(change.back) > 0 || slices.ContainsFunc(found.denied, func(topic string) bool {
		return slices.Contains(change.gone, topic) || slices.Contains(change.denied, topic)
	}), nil
}

func (h *GroupHandler) tellTopic(topic string, missing bool) {
	for _, o := range h.obs.topic {
		o.ObserveTopic(context.Background(), idem.TopicEvent{Group: h.cfg.Group, Topic: topic, Missing: missing})
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
	if denied := c.topics.deniedNow(); len(denied) > 0 {
		return nil, c.cfg.deniedError(denied, opRead)
	}
	return nil, &TopicError{Topics: c.topics.missing()}
}

// goneLook is how often topics that were deleted are looked for.
const goneLook = 30 * time.Second

var errTopicBack = errors.New("a topic is there again")

// suspectPause is how long after a look a broker's refusal leads to the next one at the earliest.
const suspectPause = 5 * time.Second

// awaitGone looks for topics that were deleted or are not to be read until ctx ends, and joins again when one is back, or when
// one of the subscription must not be read any longer.
func (c *Consumer) awaitGone(ctx context.Context, client sarama.Client) {
	every := time.NewTicker(c.topics.every)
	defer every.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-c.topics.suspected:
		case <-every.C:
			if len(c.topics.missing()) == 0 {
				continue
			}
		}
		if renew, err := c.look(client); err == nil && renew {
			c.handler.endSession(errTopicBack)
		}
		if pause(ctx, min(suspectPause, c.topics.every)) != nil {
			return
		}
	}
}
