package topicadmin

import (
	"context"
	"strings"
	"time"

	"github.com/IBM/sarama"
)

const (
	// awaitTopics is how long missing topics are waited for. A new topic is not known to all
	// brokers at once.
	awaitTopics = 3 * time.Second
	// awaitPause is the pause between two looks.
	awaitPause = 250 * time.Millisecond
)

// MissingError names topics that do not exist.
type MissingError struct {
	Topics []string // sorted
}

// Error names the topics.
func (e *MissingError) Error() string {
	return "topics do not exist: " + strings.Join(e.Topics, ", ")
}

// Await returns the topics when all exist and this client has all of ops on each. After 3 s, the
// error is a [*MissingError], or matches [ErrUnauthorized].
func Await(
	ctx context.Context, client sarama.Client, commands Commands, names []string,
	ops ...sarama.AclOperation,
) ([]*sarama.TopicMetadata, error) {
	if len(names) == 0 {
		return nil, nil
	}
	deadline := time.Now().Add(awaitTopics)
	for {
		topics, err := Ask(client, names)
		if err != nil {
			return nil, err
		}
		found, err := AccessOf(topics, ops...)
		switch late := !time.Now().Before(deadline); {
		case err != nil:
			return nil, err
		case len(found.Missing)+len(found.Denied) == 0:
			return topics, nil
		// a denied topic may be missing too, and is reported next
		case late && len(found.Missing) > 0:
			return nil, &MissingError{Topics: found.Missing}
		case late:
			return nil, commands.DeniedError(found.Denied, ops...)
		}
		select {
		case <-time.After(awaitPause):
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}
