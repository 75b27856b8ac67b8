package runner

import (
	"slices"
	"sync"
	"time"

	"github.com/idem-go/idem/deadletter"
	"github.com/idem-go/idem/internal/setupwait"
)

// GroupTopics names the topics of a group.
type GroupTopics struct {
	Group  string
	Delays []time.Duration // of retry topics, see [idem.Processor.RetryDelays]
}

// Topics returns the topics to subscribe to for the events of sources.
func (g GroupTopics) Topics(sources ...string) []string {
	topics := slices.Clone(sources)
	for _, source := range sources {
		topics = append(topics, g.retries(source)...)
		topics = append(topics, g.replays(source))
	}
	return topics
}

// retries returns the retry topics of a source, one for each delay. All are needed: a topic to
// which copies are written must be read.
func (g GroupTopics) retries(source string) (topics []string) {
	for _, d := range g.Delays {
		topics = append(topics, deadletter.RetryTopic(source, g.Group, d))
	}
	return topics
}

// replays returns the retry topic for replayed dead letters of a source.
func (g GroupTopics) replays(source string) string { return deadletter.RetryTopic(source, g.Group, 0) }

// TopicList has the topics of a runner and the current subscription: those that exist. While one
// topic of the subscription is missing some clients join no group, so one deleted topic would stop
// all others (K-27). Create a TopicList with [NewTopicList]. Safe for concurrent use.
type TopicList struct {
	// Every is how often missing topics are looked for, 30 s. Change it before the first use only.
	Every time.Duration

	needed   []string // sources and their retry topics with a delay
	optional []string // topics for replays, and retry topics whose delay was declared once

	suspected chan struct{} // a broker has refused to serve records of a topic

	mu      sync.Mutex
	current []string
	gone    []string // needed topics that are missing or must not be read; sorted
	denied  []string // topics that must not be read; sorted
	asked   bool     // the first look was taken
	logged  time.Time
}

// lookEvery is how often missing topics are looked for.
const lookEvery = 30 * time.Second

// NewTopicList returns the topics of a group, before the first look.
func NewTopicList(names GroupTopics, sources ...string) *TopicList {
	t := &TopicList{needed: slices.Clone(sources), Every: lookEvery,
		suspected: make(chan struct{}, 1)}
	for _, source := range sources {
		t.needed = append(t.needed, names.retries(source)...)
		t.optional = append(t.optional, names.replays(source))
	}
	t.current = t.needed
	return t
}

// Suspect makes the next look of [TopicWatch.Run] come soon, after a broker refused to serve
// records of a topic.
func (t *TopicList) Suspect() {
	select {
	case t.suspected <- struct{}{}:
	default: // it comes already
	}
}

// add subscribes to one more topic, if the topic exists. The result is false for a topic of the
// list.
func (t *TopicList) add(topic string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if slices.Contains(t.needed, topic) || slices.Contains(t.optional, topic) {
		return false
	}
	t.optional = append(t.optional, topic)
	return true
}

// all returns the needed and the optional topics.
func (t *TopicList) all() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Concat(t.needed, t.optional)
}

// deniedNow returns the needed topics that must not be read.
func (t *TopicList) deniedNow() (denied []string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, topic := range t.gone {
		if slices.Contains(t.denied, topic) {
			denied = append(denied, topic)
		}
	}
	return denied
}

// Now returns the current subscription.
func (t *TopicList) Now() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.current
}

// Missing returns the needed topics that were deleted, or must not be read any longer.
func (t *TopicList) Missing() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.gone
}

// notReady returns why a runner is not ready: each needed topic that cannot be read.
func (t *TopicList) notReady() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return topicReasons(t.gone, t.denied)
}

// complete reports whether the subscription has all topics, so that no look is needed for now.
func (t *TopicList) complete() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.current) == len(t.needed)+len(t.optional)
}

// topicChanges are the differences from the last look.
type topicChanges struct {
	gone, back []string // needed topics
	lacking    []string // optional topics that are missing at the first look
	denied     []string // optional topics that must not be read
	opened     []string // optional topics that can be read since this look
	again      bool     // the missing topics are to be logged again
}

// set notes the result of a look, and returns the changes since the last one.
func (t *TopicList) set(found access) (c topicChanges) {
	t.mu.Lock()
	defer t.mu.Unlock()
	was, wasDenied, subscribed := t.gone, t.denied, t.current
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
			if t.asked && !slices.Contains(subscribed, topic) {
				c.opened = append(c.opened, topic)
			}
		case !t.asked:
			c.lacking = append(c.lacking, topic)
		}
	}
	t.asked = true
	slices.Sort(t.gone)
	c.gone, c.back, c.denied = without(t.gone, was), without(was, t.gone), without(c.denied,
		wasDenied)
	now := time.Now()
	repeat := now.Sub(t.logged) >= setupwait.RepeatEvery
	if len(c.gone) > 0 || len(t.gone) > 0 && repeat {
		t.logged, c.again = now, true
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
