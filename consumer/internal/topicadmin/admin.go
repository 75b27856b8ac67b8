package topicadmin

import (
	"context"
	"errors"
	"fmt"

	"github.com/IBM/sarama"

	"github.com/idem-go/idem/runner"
)

// Admin is a [runner.Admin] on a sarama client. The calls take no context: cut the connections of
// the client to end them.
type Admin struct{ client sarama.Client }

var _ runner.Admin = (*Admin)(nil)

// New returns an Admin. It asks no broker. The client stays the caller's to close.
func New(client sarama.Client) *Admin { return &Admin{client} }

// cluster returns sarama's own admin. Closing it would close the client. It needs the controller, so
// it is made for each call: a controller that is away for a moment fails that call only.
func (a *Admin) cluster() (sarama.ClusterAdmin, error) {
	admin, err := sarama.NewClusterAdminFromClient(a.client)
	if err != nil {
		return nil, fmt.Errorf("find the controller: %w", err)
	}
	return admin, nil
}

// Topics implements [runner.Admin].
func (a *Admin) Topics(_ context.Context, names []string) ([]runner.TopicInfo, error) {
	broker, err := a.client.Controller()
	topics, err := describe(a.client, names, broker, err)
	if err != nil { // there may be a new controller
		broker, err = a.client.RefreshController()
		topics, err = describe(a.client, names, broker, err)
	}
	return topics, err
}

// Describe asks any broker about topics. A client that knows only the topics of its messages
// (Metadata.Full is false) does not know the controller. If the first broker gives no answer, the
// client looks for one that does.
func Describe(client sarama.Client, names []string) ([]runner.TopicInfo, error) {
	topics, err := describeAny(client, names)
	if err != nil {
		_ = client.RefreshMetadata(names...) // asks all brokers in turn; topics may be missing
		topics, err = describeAny(client, names)
	}
	return topics, err
}

func describeAny(client sarama.Client, names []string) ([]runner.TopicInfo, error) {
	broker := client.LeastLoadedBroker()
	if broker == nil {
		return nil, fmt.Errorf("look for topics: %w", sarama.ErrOutOfBrokers)
	}
	if err := broker.Open(client.Config()); !errors.Is(err, sarama.ErrAlreadyConnected) && err != nil {
		return nil, fmt.Errorf("look for topics: %w", err)
	}
	return describe(client, names, broker, nil)
}

func describe(
	client sarama.Client, names []string, broker *sarama.Broker, err error,
) ([]runner.TopicInfo, error) {
	var answer *sarama.MetadataResponse
	if err == nil {
		request := sarama.NewMetadataRequest(client.Config().Version, names)
		request.IncludeTopicAuthorizedOperations = true
		answer, err = broker.GetMetadata(request)
	}
	if err != nil {
		return nil, fmt.Errorf("look for topics: %w", err)
	}
	topics := make([]runner.TopicInfo, len(answer.Topics))
	for i, t := range answer.Topics {
		topics[i] = infoOf(t)
	}
	return topics, nil
}

// infoOf reads the answer of a broker about a topic.
func infoOf(t *sarama.TopicMetadata) runner.TopicInfo {
	info := runner.TopicInfo{Name: t.Name}
	switch {
	case errors.Is(t.Err, sarama.ErrUnknownTopicOrPartition),
		errors.Is(t.Err, sarama.ErrInvalidTopic):
		return info
	case errors.Is(t.Err, sarama.ErrTopicAuthorizationFailed):
		info.Denied = true
		return info
	case !errors.Is(t.Err, sarama.ErrNoError) && !errors.Is(t.Err, sarama.ErrLeaderNotAvailable):
		info.Err = t.Err
		return info
	}
	info.Exists = true
	for _, p := range t.Partitions {
		info.Partitions = append(info.Partitions, p.ID)
	}
	if len(t.Partitions) > 0 {
		info.Replicas = int16(len(t.Partitions[0].Replicas)) //nolint:gosec // far below
	}
	for op, known := range map[sarama.AclOperation]runner.Operations{
		sarama.AclOperationDescribe: runner.OpDescribe,
		sarama.AclOperationRead:     runner.OpRead,
		sarama.AclOperationWrite:    runner.OpWrite,
	} {
		if t.TopicAuthorizedOperations&(1<<uint(op)) != 0 {
			info.Operations |= known
		}
	}
	return info
}

// CheckGroup implements [runner.Admin].
func (a *Admin) CheckGroup(_ context.Context, group string) error {
	broker, err := a.client.Controller()
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

// CreateTopic implements [runner.Admin].
func (a *Admin) CreateTopic(
	_ context.Context, name string, partitions int32, replicas int16, settings map[string]string,
) (created bool, err error) {
	admin, err := a.cluster()
	if err != nil {
		return false, err
	}
	entries := make(map[string]*string, len(settings))
	for k, v := range settings {
		entries[k] = &v
	}
	err = admin.CreateTopic(name, &sarama.TopicDetail{
		NumPartitions: partitions, ReplicationFactor: replicas, ConfigEntries: entries,
	}, false)
	if errors.Is(err, sarama.ErrTopicAlreadyExists) {
		return false, nil
	}
	return err == nil, err
}

// TopicSettings implements [runner.Admin].
func (a *Admin) TopicSettings(
	_ context.Context, topic string, settings ...string,
) (map[string]string, error) {
	admin, err := a.cluster()
	if err != nil {
		return nil, err
	}
	answers, err := admin.DescribeConfigs([]*sarama.ConfigResource{{
		Type: sarama.TopicResource, Name: topic, ConfigNames: settings,
	}}, sarama.DescribeConfigsOptions{})
	if err != nil {
		return nil, err
	}
	if len(answers) != 1 {
		return nil, sarama.ErrIncompleteResponse
	}
	if code := answers[0].ErrorCode; !errors.Is(code, sarama.ErrNoError) {
		return nil, code
	}
	values := make(map[string]string, len(settings))
	for _, e := range answers[0].Configs {
		values[e.Name] = e.Value
	}
	return values, nil
}

// ChangeTopic implements [runner.Admin].
func (a *Admin) ChangeTopic(
	_ context.Context, topic string, settings map[string]string,
) error {
	admin, err := a.cluster()
	if err != nil {
		return err
	}
	entries := make(map[string]sarama.IncrementalAlterConfigsEntry, len(settings))
	for k, v := range settings {
		entries[k] = sarama.IncrementalAlterConfigsEntry{
			Operation: sarama.IncrementalAlterConfigsOperationSet, Value: &v,
		}
	}
	return admin.IncrementalAlterConfig(sarama.TopicResource, topic, entries, false)
}
