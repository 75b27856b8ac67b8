package groups

import (
	"net"
	"strconv"
	"testing"

	"github.com/IBM/sarama"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// TestLag_TopicWithoutLeader: a topic without any leader has an error on each partition. The
// numbers of the other topics are known.
func TestLag_TopicWithoutLeader(t *testing.T) {
	p := newPlace(t, 1, "orders")
	p.create("orders.g.dlq", 1)
	p.produce("orders", 3, 0)
	p.commit("g", "orders", map[int32]int64{0: 1})
	p.leaderless(map[string]int32{"orders": 4, "orders.g.dlq": 1}, "orders.g.dlq")
	s, err := p.reader().Lag(t.Context(), Query{Group: "g"})
	require.NoError(t, err)
	require.Equal(t, map[string]int64{"source orders/0": 2}, lags(s))
	require.Len(t, s.Partitions, 5)
	for _, part := range s.Partitions {
		if part.Topic == "orders" {
			require.NoError(t, part.Err, "%+v", part)
			continue
		}
		require.Equal(t, DeadLetters, part.Kind)
		require.ErrorIs(t, part.Err, sarama.ErrLeaderNotAvailable)
	}
}

// leaderless answers every question about the topics, with no leader for one of them.
func (p *place) leaderless(topics map[string]int32, without string) {
	p.Helper()
	host, text, err := net.SplitHostPort(p.cluster.ListenAddrs()[0])
	require.NoError(p, err)
	port, err := strconv.ParseInt(text, 10, 32)
	require.NoError(p, err)
	p.cluster.ControlKey(int16(kmsg.Metadata), func(r kmsg.Request) (kmsg.Response, error, bool) {
		p.cluster.KeepControl()
		answer := r.ResponseKind().(*kmsg.MetadataResponse)
		broker := kmsg.NewMetadataResponseBroker()
		broker.NodeID, broker.Host, broker.Port = p.cluster.CurrentNode(), host, int32(port)
		answer.Brokers, answer.ControllerID = append(answer.Brokers, broker), broker.NodeID
		for name, partitions := range topics {
			topic := kmsg.NewMetadataResponseTopic()
			topic.Topic = &name
			for id := range partitions {
				part := kmsg.NewMetadataResponseTopicPartition()
				part.Partition, part.Leader, part.LeaderEpoch = id, broker.NodeID, -1
				if name == without {
					part.Leader, part.ErrorCode = -1, kerr.LeaderNotAvailable.Code
				}
				topic.Partitions = append(topic.Partitions, part)
			}
			answer.Topics = append(answer.Topics, topic)
		}
		return answer, nil, true
	})
}
