package main

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/IBM/sarama"
)

// member is one of a consumer group, and what it reads.
type member struct {
	client   string // its client ID and host
	instance string // of a static member
	assigned map[string][]int32
}

func (m member) String() string {
	if m.instance != "" {
		return m.instance + " (" + m.client + ")"
	}
	return m.client
}

// membersOf returns who is in a group now, none if there is no such group.
func membersOf(client sarama.Client, group string) ([]member, error) {
	admin, err := sarama.NewClusterAdminFromClient(client) // closing it would close the client
	if err != nil {
		return nil, err
	}
	described, err := admin.DescribeConsumerGroups([]string{group})
	if err != nil {
		return nil, groupError(group, err)
	}
	var members []member
	for _, g := range described {
		if g.Err != sarama.ErrNoError {
			if errors.Is(g.Err, sarama.ErrGroupIDNotFound) {
				continue
			}
			return nil, groupError(group, g.Err)
		}
		for _, m := range g.Members {
			one := member{client: m.ClientId + " " + m.ClientHost}
			if m.GroupInstanceId != nil {
				one.instance = *m.GroupInstanceId
			}
			a, err := m.GetMemberAssignment()
			if err != nil {
				return nil, fmt.Errorf("assignment of a member of group %s: %w", group, err)
			}
			if a != nil {
				one.assigned = a.Topics
			}
			members = append(members, one)
		}
	}
	slices.SortFunc(members, func(a, b member) int { return cmp.Compare(a.String(), b.String()) })
	return members, nil
}

// groupError names the right that is missing, if it is that (rule 46).
func groupError(group string, err error) error {
	if errors.Is(err, sarama.ErrGroupAuthorizationFailed) {
		return fmt.Errorf("group %s: %w (grant Describe on the group)", group, err)
	}
	return fmt.Errorf("group %s: %w", group, err)
}

// committedBy returns the offsets that a group has committed, of all its topics.
func committedBy(client sarama.Client, group string) (map[string]map[int32]int64, error) {
	admin, err := sarama.NewClusterAdminFromClient(client)
	if err != nil {
		return nil, err
	}
	response, err := admin.ListConsumerGroupOffsets(group, nil)
	if err != nil && !errors.Is(err, sarama.ErrGroupIDNotFound) {
		return nil, groupError(group, err)
	}
	offsets := make(map[string]map[int32]int64)
	if response == nil {
		return offsets, nil
	}
	for topic, blocks := range response.Blocks {
		for id, block := range blocks {
			if block.Err != sarama.ErrNoError {
				return nil, fmt.Errorf("offset of group %s on %s/%d: %w", group, topic, id, block.Err)
			}
			if block.Offset < 0 {
				continue
			}
			if offsets[topic] == nil {
				offsets[topic] = make(map[int32]int64)
			}
			offsets[topic][id] = block.Offset
		}
	}
	return offsets, nil
}
