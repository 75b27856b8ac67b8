package groups

import (
	"errors"
	"fmt"

	"github.com/IBM/sarama"
)

// NextGeneration describes a group of the protocol of KIP-848. The request of the classic protocol
// shows such a group as dead and without members. ok is false if the group is classic or does not
// exist, or if the brokers do not serve the protocol. The error matches
// [sarama.ErrTopicAuthorizationFailed] if the user may not describe one of the topics of the group:
// Kafka 4 then tells nothing of the group.
func NextGeneration(
	client sarama.Client, group string,
) (d sarama.ConsumerGroupDescription, ok bool, err error) {
	d, err = askNextGeneration(client, group)
	if err == nil && d.ErrorCode != sarama.ErrNoError {
		err = d.ErrorCode
	}
	switch {
	case errors.Is(err, sarama.ErrGroupIDNotFound), errors.Is(err, sarama.ErrUnsupportedVersion):
		return d, false, nil
	case errors.Is(err, sarama.ErrTopicAuthorizationFailed):
		return d, false, fmt.Errorf(
			"group %s: %w (grant Describe on all topics that the group reads)", group, err)
	case err != nil:
		return d, false, Error(group, err)
	}
	return d, true, nil
}

// askNextGeneration uses a connection of its own: a client with the version of an older Kafka, as
// is sarama's default, does not send this request. Its metrics are its own too, because the end of
// the connection would remove those of the client.
func askNextGeneration(
	client sarama.Client, group string,
) (d sarama.ConsumerGroupDescription, err error) {
	coordinator, err := client.Coordinator(group)
	if err != nil {
		return d, err
	}
	conf := *client.Config()
	conf.MetricRegistry = sarama.NewConfig().MetricRegistry
	conf.ApiVersionsRequest = true // the versions that the broker serves bound the request
	if !conf.Version.IsAtLeast(sarama.V4_0_0_0) {
		conf.Version = sarama.V4_0_0_0
	}
	broker := sarama.NewBroker(coordinator.Addr())
	if err := broker.Open(&conf); err != nil {
		return d, err
	}
	defer broker.Close() // the answer is known
	req := sarama.NewConsumerGroupDescribeRequest(conf.Version)
	req.GroupIDs = []string{group}
	resp, err := broker.ConsumerGroupDescribe(req)
	if err != nil {
		return d, err
	}
	if len(resp.Groups) != 1 {
		return d, sarama.ErrIncompleteResponse
	}
	return resp.Groups[0], nil
}

// membersOf returns the members of a group of the protocol of KIP-848.
func membersOf(d *sarama.ConsumerGroupDescription) (members []Member) {
	for _, m := range d.Members {
		one := Member{
			Client: m.ClientID + " " + m.ClientHost, Assigned: make(map[string][]int32),
		}
		if m.InstanceID != nil {
			one.Instance = *m.InstanceID
		}
		for _, of := range m.Assignment.TopicPartitions {
			if of.TopicName != "" {
				one.Assigned[of.TopicName] = of.Partitions
			}
		}
		members = append(members, one)
	}
	return members
}
