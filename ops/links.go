package ops

import (
	"fmt"
	"net/url"
	"strconv"
	"strings"

	"github.com/idem-go/idem/dedup"
)

// This file has the links of pages, relative to all pages.

// eventLink is the address of the look-up of an event, relative to all pages.
func eventLink(k dedup.Key) string {
	q := url.Values{"id": {k.ID}}
	if k.Type != "" {
		q.Set("type", k.Type)
	}
	if k.Tenant != "" {
		q.Set("tenant", k.Tenant)
	}
	for _, text := range [...]string{k.ID, k.Type, k.Tenant} {
		if clipped(text) != text { // typed text is trimmed
			q.Set("exact", "1")
		}
	}
	return "event?" + q.Encode()
}

// queueName returns the Kafka key of a queue. The processor makes the name from the key.
func queueName(name string) string {
	if key, ok := strings.CutPrefix(name, "k"); ok {
		return fmt.Sprintf("key %q", key)
	}
	return "without Kafka key"
}

// deadLetterLink is the address of a dead letter, relative to all pages.
func deadLetterLink(p deadLetterPlace) string {
	return "dead-letter?" + url.Values{
		"topic": {p.Topic}, "partition": {strconv.Itoa(int(p.Partition))},
		"offset": {strconv.FormatInt(p.Offset, 10)},
	}.Encode()
}

// deadLetterPlace is the place of a dead letter in its topic.
type deadLetterPlace struct {
	Topic     string
	Partition int32
	Offset    int64
}

func (p deadLetterPlace) String() string {
	return fmt.Sprintf("%s/%d/%d", p.Topic, p.Partition, p.Offset)
}

// parsePlace reads the place of a dead letter.
func parsePlace(topic, at string) (deadLetterPlace, error) {
	partition, offset, _ := strings.Cut(at, "/")
	p, err1 := strconv.ParseInt(partition, 10, 32)
	o, err2 := strconv.ParseInt(offset, 10, 64)
	if topic == "" || err1 != nil || err2 != nil || p < 0 || o < 0 {
		return deadLetterPlace{}, &pageError{
			400, "Not understood", "That names no record of a dead-letter topic.",
		}
	}
	return deadLetterPlace{topic, int32(p), o}, nil
}
