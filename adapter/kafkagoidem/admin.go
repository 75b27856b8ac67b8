package kafkagoidem

import (
	"context"
	"errors"
	"fmt"
	"net"

	"github.com/segmentio/kafka-go"

	"github.com/idem-go/idem/runner"
)

// admin is a [runner.Admin] on clients of kafka-go.
type admin struct {
	s    settings
	addr net.Addr
	cl   *kafka.Client
}

var _ runner.Admin = admin{}

// bounded limits a request, because the context of a caller may be that of the whole run.
func bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, requestTime)
}

// metadata asks on a new connection: a transport of kafka-go answers from its memory. Without names
// it describes all topics.
func (a admin) metadata(ctx context.Context, names []string) (*kafka.MetadataResponse, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	fresh := a.s.transport()
	fresh.MetadataTopics = names
	defer fresh.CloseIdleConnections()
	cl := &kafka.Client{Addr: a.addr, Transport: fresh}
	return cl.Metadata(ctx, &kafka.MetadataRequest{Addr: a.addr, Topics: names})
}

// Topics implements [runner.Admin].
func (a admin) Topics(ctx context.Context, names []string) ([]runner.TopicInfo, error) {
	answer, err := a.metadata(ctx, names)
	if err != nil {
		return nil, fmt.Errorf("look for topics: %w", err)
	}
	topics := make([]runner.TopicInfo, 0, len(answer.Topics))
	for _, t := range answer.Topics {
		topics = append(topics, infoOf(t))
	}
	return topics, nil
}

// infoOf reads the answer of a broker about a topic. kafka-go does not pass the rights on.
func infoOf(t kafka.Topic) runner.TopicInfo {
	info := runner.TopicInfo{Name: t.Name}
	switch {
	case isAny(t.Error, kafka.UnknownTopicOrPartition, kafka.InvalidTopic):
		return info
	case isAny(t.Error, kafka.TopicAuthorizationFailed):
		info.Denied = true
		return info
	case t.Error != nil && !isAny(t.Error, kafka.LeaderNotAvailable):
		info.Err = t.Error
		return info
	}
	info.Exists = true
	for _, p := range t.Partitions {
		info.Partitions = append(info.Partitions, int32(p.ID)) //nolint:gosec // from an int32
		info.Replicas = int16(len(p.Replicas))                 //nolint:gosec // far below
	}
	return info
}

// CheckGroup implements [runner.Admin].
func (a admin) CheckGroup(ctx context.Context, group string) error {
	ctx, cancel := bounded(ctx)
	defer cancel()
	answer, err := a.cl.FindCoordinator(ctx, &kafka.FindCoordinatorRequest{
		Addr: a.addr, Key: group, KeyType: kafka.CoordinatorKeyTypeConsumer,
	})
	if err != nil {
		return fmt.Errorf("look for the coordinator of group %s: %w", group, err)
	}
	if isAny(answer.Error, kafka.GroupAuthorizationFailed) {
		return answer.Error
	}
	return nil
}

// CreateTopic implements [runner.Admin].
func (a admin) CreateTopic(
	ctx context.Context, name string, partitions int32, replicas int16, settings map[string]string,
) (created bool, err error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	topic := kafka.TopicConfig{Topic: name, NumPartitions: int(partitions), ReplicationFactor: int(replicas)}
	for k, v := range settings {
		topic.ConfigEntries = append(topic.ConfigEntries, kafka.ConfigEntry{ConfigName: k, ConfigValue: v})
	}
	answer, err := a.cl.CreateTopics(ctx, &kafka.CreateTopicsRequest{
		Addr: a.addr, Topics: []kafka.TopicConfig{topic},
	})
	if err != nil {
		return false, err
	}
	err, ok := answer.Errors[name]
	switch {
	case !ok:
		return false, runner.ErrNoAnswer
	case errors.Is(err, kafka.TopicAlreadyExists):
		return false, nil
	}
	return err == nil, err
}

// TopicSettings implements [runner.Admin].
func (a admin) TopicSettings(
	ctx context.Context, topic string, settings ...string,
) (map[string]string, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	answer, err := a.cl.DescribeConfigs(ctx, &kafka.DescribeConfigsRequest{
		Addr: a.addr, Resources: []kafka.DescribeConfigRequestResource{{
			ResourceType: kafka.ResourceTypeTopic, ResourceName: topic, ConfigNames: settings,
		}},
	})
	if err != nil {
		return nil, err
	}
	if len(answer.Resources) != 1 {
		return nil, runner.ErrNoAnswer
	}
	if err := answer.Resources[0].Error; err != nil {
		return nil, err
	}
	values := make(map[string]string, len(settings))
	for _, c := range answer.Resources[0].ConfigEntries {
		values[c.ConfigName] = c.ConfigValue
	}
	return values, nil
}

// ChangeTopic implements [runner.Admin].
func (a admin) ChangeTopic(ctx context.Context, topic string, settings map[string]string) error {
	ctx, cancel := bounded(ctx)
	defer cancel()
	change := kafka.IncrementalAlterConfigsRequestResource{
		ResourceType: kafka.ResourceTypeTopic, ResourceName: topic,
	}
	for k, v := range settings {
		change.Configs = append(change.Configs, kafka.IncrementalAlterConfigsRequestConfig{
			Name: k, Value: v, ConfigOperation: kafka.ConfigOperationSet,
		})
	}
	answer, err := a.cl.IncrementalAlterConfigs(ctx, &kafka.IncrementalAlterConfigsRequest{
		Addr: a.addr, Resources: []kafka.IncrementalAlterConfigsRequestResource{change},
	})
	if err != nil {
		return err
	}
	if len(answer.Resources) != 1 {
		return runner.ErrNoAnswer
	}
	return answer.Resources[0].Error
}
