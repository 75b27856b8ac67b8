// Package groups reports the state of consumer groups: the members, the committed offsets, and the
// lag on source topics, retry topics and dead-letter topics. It only reads.
package groups

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/IBM/sarama"
	"github.com/idem-go/idem/deadletter"
)

// Member is a member of a consumer group with its assignment.
type Member struct {
	// Client is the client ID and the host. Instance is the name of a static member, else empty.
	// The client chooses these texts: they may contain any characters.
	Client, Instance string
	// Assigned has the partitions of the member, by topic.
	Assigned map[string][]int32
}

// String returns the instance, if any, and the client.
func (m Member) String() string {
	if m.Instance != "" {
		return m.Instance + " (" + m.Client + ")"
	}
	return m.Client
}

// List returns the names of all groups of the cluster, sorted.
func List(client sarama.Client) ([]string, error) {
	admin, err := sarama.NewClusterAdminFromClient(client) // closing it would close the client
	if err != nil {
		return nil, err
	}
	all, err := admin.ListConsumerGroups()
	if err != nil {
		return nil, fmt.Errorf("list groups: %w", err)
	}
	return slices.Sorted(maps.Keys(all)), nil
}

// Members returns the current members of a group of either protocol, sorted. A group that does not
// exist has no members.
func Members(client sarama.Client, group string) ([]Member, error) {
	admin, err := sarama.NewClusterAdminFromClient(client)
	if err != nil {
		return nil, err
	}
	described, err := admin.DescribeConsumerGroups([]string{group})
	if err != nil {
		return nil, Error(group, err)
	}
	var members []Member
	for _, g := range described {
		if g.Err != sarama.ErrNoError {
			if errors.Is(g.Err, sarama.ErrGroupIDNotFound) {
				continue
			}
			return nil, Error(group, g.Err)
		}
		for _, m := range g.Members {
			one := Member{Client: m.ClientId + " " + m.ClientHost}
			if m.GroupInstanceId != nil {
				one.Instance = *m.GroupInstanceId
			}
			a, err := m.GetMemberAssignment()
			if err != nil {
				return nil, fmt.Errorf("assignment of a member of group %s: %w", group, err)
			}
			if a != nil {
				one.Assigned = a.Topics
			}
			members = append(members, one)
		}
	}
	if len(members) == 0 {
		d, ok, err := NextGeneration(client, group)
		if err != nil {
			return nil, err
		}
		if ok {
			members = membersOf(&d)
		}
	}
	slices.SortFunc(members, func(a, b Member) int { return cmp.Compare(a.String(), b.String()) })
	return members, nil
}

// Committed returns all committed offsets of a group, by topic and partition, in one request. A
// group that does not exist has no offsets.
func Committed(client sarama.Client, group string) (map[string]map[int32]int64, error) {
	admin, err := sarama.NewClusterAdminFromClient(client)
	if err != nil {
		return nil, err
	}
	response, err := admin.ListConsumerGroupOffsets(group, nil)
	if err != nil && !errors.Is(err, sarama.ErrGroupIDNotFound) {
		return nil, Error(group, err)
	}
	committed := make(map[string]map[int32]int64)
	if response == nil {
		return committed, nil
	}
	for topic, blocks := range response.Blocks {
		for id, block := range blocks {
			if block.Err != sarama.ErrNoError {
				return nil, fmt.Errorf("offset of group %s on %s/%d: %w", group, topic, id,
					block.Err)
			}
			if block.Offset < 0 {
				continue
			}
			if committed[topic] == nil {
				committed[topic] = make(map[int32]int64)
			}
			committed[topic][id] = block.Offset
		}
	}
	return committed, nil
}

// Error adds the group to an error, and the missing right to an authorization error (rule 46).
func Error(group string, err error) error {
	if errors.Is(err, sarama.ErrGroupAuthorizationFailed) {
		return fmt.Errorf("group %s: %w (grant Describe on the group)", group, err)
	}
	return fmt.Errorf("group %s: %w", group, err)
}

// IsRetryOf reports whether topic is a retry topic of the group for events of source.
func IsRetryOf(topic, source, group string) bool {
	retry := deadletter.RetryTopic(source, group, 0)
	return topic == retry || strings.HasPrefix(topic, retry+".")
}
