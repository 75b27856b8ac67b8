package topicadmin

import (
	"testing"

	"github.com/IBM/sarama"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/runner"
)

// TestInfoOf reads what a broker answers. Brokers before 2.3 do not tell rights.
func TestInfoOf(t *testing.T) {
	const describe, read, write = 1 << sarama.AclOperationDescribe, 1 << sarama.AclOperationRead, 1 << sarama.AclOperationWrite
	partitions := []*sarama.PartitionMetadata{{ID: 0, Replicas: []int32{1, 2, 3}}, {ID: 1, Replicas: []int32{2, 3, 1}}}
	for name, c := range map[string]struct {
		err    sarama.KError
		rights int32
		want   runner.TopicInfo
	}{
		"missing":     {sarama.ErrUnknownTopicOrPartition, 0, runner.TopicInfo{}},
		"invalid":     {sarama.ErrInvalidTopic, 0, runner.TopicInfo{}},
		"hidden":      {sarama.ErrTopicAuthorizationFailed, 0, runner.TopicInfo{Denied: true}},
		"described":   {sarama.ErrNoError, describe, runner.TopicInfo{Exists: true, Operations: runner.OpDescribe}},
		"readable":    {sarama.ErrNoError, describe | read, runner.TopicInfo{Exists: true, Operations: runner.OpDescribe | runner.OpRead}},
		"all":         {sarama.ErrNoError, describe | read | write, runner.TopicInfo{Exists: true, Operations: runner.OpDescribe | runner.OpRead | runner.OpWrite}},
		"unknown":     {sarama.ErrNoError, 0, runner.TopicInfo{Exists: true}},
		"not told":    {sarama.ErrNoError, -1 << 31, runner.TopicInfo{Exists: true}},
		"leaderless":  {sarama.ErrLeaderNotAvailable, describe | read, runner.TopicInfo{Exists: true, Operations: runner.OpDescribe | runner.OpRead}},
		"other error": {sarama.ErrBrokerNotAvailable, 0, runner.TopicInfo{Err: sarama.ErrBrokerNotAvailable}},
	} {
		t.Run(name, func(t *testing.T) {
			got := infoOf(&sarama.TopicMetadata{Name: "t", Err: c.err, TopicAuthorizedOperations: c.rights, Partitions: partitions})
			if c.want.Name = "t"; c.want.Exists {
				c.want.Partitions, c.want.Replicas = []int32{0, 1}, 3
			}
			require.Equal(t, c.want, got)
		})
	}
}

// away is a client that finds no controller.
type away struct{ sarama.Client }

func (away) Controller() (*sarama.Broker, error)        { return nil, sarama.ErrControllerNotAvailable }
func (away) RefreshController() (*sarama.Broker, error) { return nil, sarama.ErrControllerNotAvailable }

// TestNew_NoController: a controller that is away fails the calls, which are repeated, and not the
// start of a membership.
func TestNew_NoController(t *testing.T) {
	a, ctx := New(away{}), t.Context()
	_, err := a.Topics(ctx, []string{"orders"})
	require.ErrorIs(t, err, sarama.ErrControllerNotAvailable)
	_, err = a.CreateTopic(ctx, "orders", 1, 1, nil)
	require.ErrorIs(t, err, sarama.ErrControllerNotAvailable)
	_, err = a.TopicSettings(ctx, "orders", "retention.ms")
	require.ErrorIs(t, err, sarama.ErrControllerNotAvailable)
	require.ErrorIs(t, a.ChangeTopic(ctx, "orders", nil), sarama.ErrControllerNotAvailable)
	require.ErrorIs(t, a.CheckGroup(ctx, "g"), sarama.ErrControllerNotAvailable)
}
