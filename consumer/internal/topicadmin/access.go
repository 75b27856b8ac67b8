package topicadmin

import (
	"errors"
	"fmt"
	"slices"

	"github.com/IBM/sarama"
)

// Operations on topics.
const (
	OpRead  = sarama.AclOperationRead
	OpWrite = sarama.AclOperationWrite
)

// Ask returns the metadata of topics and the rights of this client. Without names Ask returns all
// topics.
func Ask(client sarama.Client, names []string) ([]*sarama.TopicMetadata, error) {
	ask := func(broker *sarama.Broker, err error) (*sarama.MetadataResponse, error) {
		if err != nil {
			return nil, err
		}
		request := sarama.NewMetadataRequest(client.Config().Version, names)
		request.IncludeTopicAuthorizedOperations = true
		return broker.GetMetadata(request)
	}
	answer, err := ask(client.Controller())
	if err != nil { // there may be a new controller
		answer, err = ask(client.RefreshController())
	}
	if err != nil {
		return nil, fmt.Errorf("look for topics: %w", err)
	}
	return answer.Topics, nil
}

// Access has the topics that cannot be used. All lists are sorted.
type Access struct {
	Missing []string // do not exist
	Denied  []string // the client lacks a right
}

// AccessOf returns the topics that cannot be used with all of ops. After an error, ask again.
func AccessOf(topics []*sarama.TopicMetadata, ops ...sarama.AclOperation) (a Access, err error) {
	for _, t := range topics {
		switch {
		case errors.Is(t.Err, sarama.ErrUnknownTopicOrPartition),
			errors.Is(t.Err, sarama.ErrInvalidTopic):
			a.Missing = append(a.Missing, t.Name)
		case errors.Is(t.Err, sarama.ErrTopicAuthorizationFailed), !may(t, ops...):
			a.Denied = append(a.Denied, t.Name) // without Describe, a missing topic is denied too
		case t.Err != sarama.ErrNoError && !errors.Is(t.Err, sarama.ErrLeaderNotAvailable):
			return Access{}, fmt.Errorf("topic %s: %w", t.Name, t.Err)
		}
	}
	slices.Sort(a.Missing)
	slices.Sort(a.Denied)
	return a, nil
}

// may reports whether the client has all of ops on a topic. Brokers before Kafka 2.3 do not report
// rights: then the answer is true.
func may(t *sarama.TopicMetadata, ops ...sarama.AclOperation) bool {
	has := func(op sarama.AclOperation) bool {
		return t.TopicAuthorizedOperations&(1<<uint(op)) != 0
	}
	if !has(sarama.AclOperationDescribe) { // no rights reported: a described topic may be described
		return true
	}
	return !slices.ContainsFunc(ops, func(op sarama.AclOperation) bool { return !has(op) })
}

// CheckGroup returns sarama's error if the client may not read the group. Joining the group returns
// that error only after a long time. Joining the group finds other mistakes.
func CheckGroup(client sarama.Client, group string) error {
	broker, err := client.Controller()
	if err != nil {
		return err
	}
	answer, err := broker.FindCoordinator(&sarama.FindCoordinatorRequest{
		Version: 1, CoordinatorKey: group, CoordinatorType: sarama.CoordinatorGroup,
	})
	if err == nil && errors.Is(answer.Err, sarama.ErrGroupAuthorizationFailed) {
		return answer.Err
	}
	return nil
}
