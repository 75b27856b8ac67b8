package deadletter

import (
	"strings"
	"time"
)

// Topic returns the default names of the dead-letter topics of a group: "<topic>.<group>.dlq".
func Topic(group string) func(topic string) string {
	return func(topic string) string { return topic + "." + group + ".dlq" }
}

// RetryTopic returns the name of a retry topic of a group: "<topic>.<group>.retry.<delay>", such as
// orders.billing.retry.5s. A delay of zero gives "<topic>.<group>.retry", to which dead letters
// are replayed.
func RetryTopic(topic, group string, delay time.Duration) string {
	name := topic + infix(group)
	if delay > 0 {
		name += "." + delayText(delay)
	}
	return name
}

func infix(group string) string { return "." + group + ".retry" }

// delayText returns 1m instead of 1m0s.
func delayText(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// RetryTopics recognizes the retry topics of one group.
type RetryTopics struct{ group, infix string }

// RetryTopicsOf returns the retry topics of a group.
func RetryTopicsOf(group string) RetryTopics { return RetryTopics{group, infix(group)} }

// Source returns the topic that a retry topic belongs to, and its delay. ok is false if topic is no
// retry topic of the group.
func (r RetryTopics) Source(topic string) (source string, delay time.Duration, ok bool) {
	at := strings.LastIndex(topic, r.infix)
	if at <= 0 {
		return "", 0, false
	}
	source, rest := topic[:at], topic[at+len(r.infix):]
	if rest == "" {
		return source, 0, true
	}
	delay, err := time.ParseDuration(strings.TrimPrefix(rest, "."))
	return source, delay, rest[0] == '.' && err == nil && RetryTopic(source, r.group, delay) == topic
}
