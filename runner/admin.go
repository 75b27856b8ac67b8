package runner

import (
	"context"
	"fmt"
	"slices"
)

// Operations is a set of rights on a topic.
type Operations uint8

// The rights that a runner needs or knows.
const (
	OpDescribe Operations = 1 << iota
	OpRead
	OpWrite
)

// Admin asks and changes the cluster for a runner. An implementation wraps a Kafka client. Errors
// are those of the client, so that [Classify] knows them. Safe for concurrent use.
type Admin interface {
	// Topics describes topics, and the rights of this client. Without names Topics describes all
	// topics that the client may describe. A topic without an answer is left out.
	Topics(ctx context.Context, names []string) ([]TopicInfo, error)
	// CreateTopic creates a topic. The result is false, without an error, for a topic that exists.
	CreateTopic(
		ctx context.Context, name string, partitions int32, replicas int16,
		settings map[string]string,
	) (created bool, err error)
	// TopicSettings returns the values of the named settings of a topic.
	TopicSettings(
		ctx context.Context, topic string, settings ...string,
	) (values map[string]string, err error)
	// ChangeTopic sets settings of a topic. Other settings stay.
	ChangeTopic(ctx context.Context, topic string, settings map[string]string) error
	// CheckGroup returns an error of class [DeniedGroup] if the client must not read the group.
	// Joining the group returns that error only after a long time. Joining finds other mistakes.
	CheckGroup(ctx context.Context, group string) error
}

// TopicInfo describes a topic.
type TopicInfo struct {
	Name string
	// Exists is false for a topic that does not exist, also for an invalid name.
	Exists bool
	// Denied is set if the client must not describe the topic, which may be missing then.
	Denied bool
	// Partitions has the numbers of all partitions. It is empty while the topic has no leader.
	Partitions []int32
	// Replicas is the number of replicas of a partition.
	Replicas int16
	// Operations has the rights of the client. Zero means that they are unknown, as with brokers
	// before Kafka 2.3.
	Operations Operations
	// Err is another error about the topic: ask again.
	Err error
}

// deleted reports whether the topic surely does not exist.
func (t TopicInfo) deleted() bool { return !t.Exists && !t.Denied && t.Err == nil }

// may reports whether the client has all of ops on the topic, as far as that is known.
func (t TopicInfo) may(ops Operations) bool {
	return t.Operations&OpDescribe == 0 || t.Operations&ops == ops
}

// access has the topics that cannot be used. All lists are sorted.
type access struct {
	missing []string // do not exist
	denied  []string // the client lacks a right
}

// accessOf returns the topics that cannot be used with all of ops. After an error, ask again.
func accessOf(topics []TopicInfo, ops Operations) (a access, err error) {
	for _, t := range topics {
		switch {
		case t.Denied: // without Describe, a missing topic is denied too
			a.denied = append(a.denied, t.Name)
		case t.Err != nil:
			return access{}, fmt.Errorf("topic %s: %w", t.Name, t.Err)
		case !t.Exists:
			a.missing = append(a.missing, t.Name)
		case !t.may(ops):
			a.denied = append(a.denied, t.Name)
		}
	}
	slices.Sort(a.missing)
	slices.Sort(a.denied)
	return a, nil
}
