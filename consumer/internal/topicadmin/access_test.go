package topicadmin

import (
	"testing"

	"github.com/IBM/sarama"
	"github.com/stretchr/testify/require"
)

// TestAccessOf sorts what a broker answers. Brokers before 2.3 do not tell rights.
func TestAccessOf(t *testing.T) {
	const describe, read, write = 1 << sarama.AclOperationDescribe, 1 << sarama.AclOperationRead, 1 << sarama.AclOperationWrite
	topic := func(name string, err sarama.KError, rights int32) *sarama.TopicMetadata {
		return &sarama.TopicMetadata{Name: name, Err: err, TopicAuthorizedOperations: rights}
	}
	found, err := AccessOf([]*sarama.TopicMetadata{
		topic("z", sarama.ErrUnknownTopicOrPartition, 0),
		topic("y", sarama.ErrTopicAuthorizationFailed, 0),
		topic("x", sarama.ErrNoError, describe),
		topic("w", sarama.ErrNoError, describe|read),
		topic("v", sarama.ErrNoError, describe|read|write),
		topic("u", sarama.ErrNoError, 0),
		topic("t", sarama.ErrNoError, -1<<31),
		topic("s", sarama.ErrLeaderNotAvailable, describe|read|write),
		topic("r", sarama.ErrInvalidTopic, 0),
	}, OpRead, OpWrite)
	require.NoError(t, err)
	require.Equal(t, Access{Missing: []string{"r", "z"}, Denied: []string{"w", "x", "y"}}, found)
	_, err = AccessOf([]*sarama.TopicMetadata{topic("a", sarama.ErrBrokerNotAvailable, 0)})
	require.ErrorIs(t, err, sarama.ErrBrokerNotAvailable)
}
