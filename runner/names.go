package runner

import (
	"strings"
	"time"

	"github.com/idem-go/idem/deadletter"
)

// SourceOf returns the source topic of one of the group's retry topics, for delayed retries or for
// replays.
func SourceOf(topic, group string) (source string, ok bool) {
	infix := deadletter.RetryTopic("", group, 0)
	at := strings.LastIndex(topic, infix)
	if at <= 0 {
		return "", false
	}
	source, rest := topic[:at], topic[at+len(infix):]
	if rest == "" {
		return source, true
	}
	delay, err := time.ParseDuration(strings.TrimPrefix(rest, "."))
	return source, err == nil && deadletter.RetryTopic(source, group, delay) == topic
}

// IsRetry reports whether a topic is one of the group's retry topics.
func IsRetry(topic, group string) bool {
	_, ok := SourceOf(topic, group)
	return ok
}
