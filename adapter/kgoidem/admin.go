package kgoidem

import (
	"context"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/idem-go/idem/runner"
)

// admin is a [runner.Admin] on a franz-go client.
type admin struct{ cl *kgo.Client }

var _ runner.Admin = admin{}

// Topics implements [runner.Admin].
func (a admin) Topics(ctx context.Context, names []string) ([]runner.TopicInfo, error) {
	req := kmsg.NewPtrMetadataRequest()
	req.IncludeTopicAuthorizedOperations = true
	for _, name := range names {
		t := kmsg.NewMetadataRequestTopic()
		t.Topic = kmsg.StringPtr(name)
		req.Topics = append(req.Topics, t)
	}
	answer, err := req.RequestWith(ctx, a.cl)
	if err != nil {
		return nil, fmt.Errorf("look for topics: %w", err)
	}
	var topics []runner.TopicInfo
	for _, t := range answer.Topics {
		if t.Topic != nil {
			topics = append(topics, infoOf(t))
		}
	}
	return topics, nil
}

// infoOf reads the answer of a broker about a topic.
func infoOf(t kmsg.MetadataResponseTopic) runner.TopicInfo {
	info := runner.TopicInfo{Name: *t.Topic}
	switch err := kerr.ErrorForCode(t.ErrorCode); {
	case isAny(err, kerr.UnknownTopicOrPartition, kerr.InvalidTopicException):
		return info
	case isAny(err, kerr.TopicAuthorizationFailed):
		info.Denied = true
		return info
	case err != nil && !isAny(err, kerr.LeaderNotAvailable):
		info.Err = err
		return info
	}
	info.Exists = true
	for _, p := range t.Partitions {
		info.Partitions = append(info.Partitions, p.Partition)
		info.Replicas = int16(len(p.Replicas)) //nolint:gosec // far below
	}
	for op, known := range map[kmsg.ACLOperation]runner.Operations{
		kmsg.ACLOperationDescribe: runner.OpDescribe,
		kmsg.ACLOperationRead:     runner.OpRead,
		kmsg.ACLOperationWrite:    runner.OpWrite,
	} {
		if t.AuthorizedOperations > 0 && t.AuthorizedOperations&(1<<op) != 0 {
			info.Operations |= known
		}
	}
	return info
}

// CheckGroup implements [runner.Admin].
func (a admin) CheckGroup(ctx context.Context, group string) error {
	req := kmsg.NewPtrFindCoordinatorRequest()
	req.CoordinatorKey, req.CoordinatorKeys = group, []string{group}
	answer, err := req.RequestWith(ctx, a.cl)
	if err != nil {
		return fmt.Errorf("look for the coordinator of group %s: %w", group, err)
	}
	errs := []error{kerr.ErrorForCode(answer.ErrorCode)}
	for _, c := range answer.Coordinators {
		errs = append(errs, kerr.ErrorForCode(c.ErrorCode))
	}
	for _, err := range errs {
		if isAny(err, kerr.GroupAuthorizationFailed) {
			return err
		}
	}
	return nil
}

// CreateTopic implements [runner.Admin].
func (a admin) CreateTopic(
	ctx context.Context, name string, partitions int32, replicas int16, settings map[string]string,
) (created bool, err error) {
	req := kmsg.NewPtrCreateTopicsRequest()
	req.TimeoutMillis = 15_000
	t := kmsg.NewCreateTopicsRequestTopic()
	t.Topic, t.NumPartitions, t.ReplicationFactor = name, partitions, replicas
	for k, v := range settings {
		c := kmsg.NewCreateTopicsRequestTopicConfig()
		c.Name, c.Value = k, kmsg.StringPtr(v)
		t.Configs = append(t.Configs, c)
	}
	req.Topics = append(req.Topics, t)
	answer, err := req.RequestWith(ctx, a.cl)
	if err != nil {
		return false, err
	}
	if len(answer.Topics) != 1 {
		return false, runner.ErrNoAnswer
	}
	err = kerr.ErrorForCode(answer.Topics[0].ErrorCode)
	if errors.Is(err, kerr.TopicAlreadyExists) {
		return false, nil
	}
	if text := answer.Topics[0].ErrorMessage; err != nil && text != nil {
		err = fmt.Errorf("%w: %s", err, *text)
	}
	return err == nil, err
}

// TopicSettings implements [runner.Admin].
func (a admin) TopicSettings(
	ctx context.Context, topic string, settings ...string,
) (map[string]string, error) {
	req := kmsg.NewPtrDescribeConfigsRequest()
	r := kmsg.NewDescribeConfigsRequestResource()
	r.ResourceType, r.ResourceName, r.ConfigNames = kmsg.ConfigResourceTypeTopic, topic, settings
	req.Resources = append(req.Resources, r)
	answer, err := req.RequestWith(ctx, a.cl)
	if err != nil {
		return nil, err
	}
	if len(answer.Resources) != 1 {
		return nil, runner.ErrNoAnswer
	}
	if err := kerr.ErrorForCode(answer.Resources[0].ErrorCode); err != nil {
		return nil, err
	}
	values := make(map[string]string, len(settings))
	for _, c := range answer.Resources[0].Configs {
		if c.Value != nil {
			values[c.Name] = *c.Value
		}
	}
	return values, nil
}

// ChangeTopic implements [runner.Admin].
func (a admin) ChangeTopic(ctx context.Context, topic string, settings map[string]string) error {
	req := kmsg.NewPtrIncrementalAlterConfigsRequest()
	r := kmsg.NewIncrementalAlterConfigsRequestResource()
	r.ResourceType, r.ResourceName = kmsg.ConfigResourceTypeTopic, topic
	for k, v := range settings {
		c := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
		c.Name, c.Op, c.Value = k, kmsg.IncrementalAlterConfigOpSet, kmsg.StringPtr(v)
		r.Configs = append(r.Configs, c)
	}
	req.Resources = append(req.Resources, r)
	answer, err := req.RequestWith(ctx, a.cl)
	if err != nil {
		return err
	}
	if len(answer.Resources) != 1 {
		return runner.ErrNoAnswer
	}
	return kerr.ErrorForCode(answer.Resources[0].ErrorCode)
}
