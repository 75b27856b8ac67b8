package consumer

import (
	"slices"
	"sync"
	"time"

	"github.com/idem-go/idem/consumer/internal/topicadmin"
	"github.com/idem-go/idem/deadletter"
)

// groupTopics names the topics of a group.
type groupTopics struct {
	group  string
	delays []time.Duration // of retry topics
}

// Topics returns the topics to subscribe to for the events of sources.
func (g groupTopics) Topics(sources ...string) []string {
	topics := slices.Clone(sources)
	for _, source := range sources {
		topics = append(topics, g.retries(source)...)
		topics = append(topics, g.replays(source))
	}
	return topics
}

// retries returns the retry topics of a source, one for each delay. All are needed: a topic to
// which copies are written must be read.
func (g groupTopics) retries(source string) (topics []string) {
	for _, d := range g.delays {
		topics = append(topics, deadletter.RetryTopic(source, g.group, d))
	}
	return topics
}

// replays returns the retry topic for replayed dead letters of a source.
func (g groupTopics) replays(source string) string { return deadletter.RetryTopic(source, g.group, 0) }

// topicList has the topics of a consumer and the current subscription: those that exist. While one
// topic of the subscription is missing sarama joins no group, so one deleted topic would stop all
// others (K-27).
type topicList struct {
	needed   []string // sources and their retry topics with a delay
	optional []string // topics for replays, and retry topics whose delay was declared once
	every    time.Duration

	suspected chan struct{} // a broker has refused to serve records of a topic

	mu      sync.Mutex
	current []string
	gone    []string // needed topics that are missing or must not be read; sorted
	denied  []string // topics that must not be read; sorted
	asked   bool     // the first look was taken
	logged  time.Time
}

// repeatEvery is how often missing topics are logged again.
const repeatEvery = time.Minute

// lookEvery is how often missing topics are looked for.
const lookEvery = 30 * time.Second

func newTopicList(sources []string, names groupTopics) *topicList {
	t := &topicList{needed: slices.Clone(sources), every: lookEvery,
		suspected: make(chan struct{}, 1)}
	for _, source := range sources {
		t.needed = append(t.needed, names.retries(source)...)
		t.optional = append(t.optional, names.replays(source))
	}
	t.current = t.needed
	return t
}

// suspect makes the next look come soon.
func (t *topicList) suspect() {
	select {
	case t.suspected <- struct{}{}:
	default: // it comes already
	}
}

// add subscribes to one more topic, if the topic exists. The result is false for a topic of the
// list.
func (t *topicList) add(topic string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if slices.Contains(t.needed, topic) || slices.Contains(t.optional, topic) {
		return false
	}
	t.optional = append(t.optional, topic)
	return true
}

// all returns the needed and the optional topics.
func (t *topicList) all() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Concat(t.needed, t.optional)
}

// deniedNow returns the needed topics that must not be read.
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

// now returns the current subscription.
func (t *topicList) now() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.current
}

// missing returns the needed topics that were deleted, or must not be read any longer.
func (t *topicList) missing() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.gone
}

// complete reports whether the subscription has all topics, so that no look is needed.
func (t *topicList) complete() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.current) == len(t.needed)+len(t.optional)
}

// topicChanges are the differences from the last look.
type topicChanges struct {
	gone, back []string // needed topics
	lacking    []string // optional topics that are missing at the first look
	denied     []string // optional topics that must not be read
	again      bool     // the missing topics are to be logged again
}

// set notes the result of a look, and returns the changes since the last one.
func (t *topicList) set(found topicadmin.Access) (c topicChanges) {
	t.mu.Lock()
	defer t.mu.Unlock()
	was, wasDenied := t.gone, t.denied
	t.current, t.gone, t.denied = nil, nil, found.Denied
	for _, topic := range t.needed {
		if slices.Contains(found.Missing, topic) || slices.Contains(found.Denied, topic) {
			t.gone = append(t.gone, topic)
		} else {
			t.current = append(t.current, topic)
		}
	}
	for _, topic := range t.optional {
		switch {
		case slices.Contains(found.Denied, topic):
			c.denied = append(c.denied, topic)
		case !slices.Contains(found.Missing, topic):
			t.current = append(t.current, topic)
		case !t.asked:
			c.lacking = append(c.lacking, topic)
		}
	}
	t.asked = true
	slices.Sort(t.gone)
	c.gone, c.back, c.denied = without(t.gone, was), without(was, t.gone), without(c.denied,
		wasDenied)
	if now := time.Now(); len(c.gone) > 0 || len(t.gone) > 0 && now.Sub(t.logged) >= repeatEvery {
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
