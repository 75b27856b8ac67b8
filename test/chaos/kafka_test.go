package chaos

import (
	"crypto/rand"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/internal/testenv"
)

// cluster is Kafka as an operator sees it: topics and offsets.
type cluster struct {
	t       testing.TB
	brokers []string
	client  sarama.Client
	admin   sarama.ClusterAdmin
}

func newCluster(t testing.TB, brokers []string) *cluster {
	t.Helper()
	cfg := sarama.NewConfig()
	cfg.ClientID = "idem-chaos"
	cfg.Version = sarama.V2_8_0_0
	client, err := sarama.NewClient(brokers, cfg)
	require.NoError(t, err)
	admin, err := sarama.NewClusterAdminFromClient(client)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, admin.Close()) }) // closes the client too
	return &cluster{t: t, brokers: brokers, client: client, admin: admin}
}

// topic creates a topic with a name of its own and, in Cleanup, deletes it with its dead letters
// and its group, which have names made of it.
func (c *cluster) topic(prefix string, partitions int32) (topic, group string) {
	c.t.Helper()
	topic = prefix + "-" + strings.ToLower(rand.Text()[:10])
	group = topic + "-group"
	require.NoError(c.t, c.admin.CreateTopic(topic, &sarama.TopicDetail{NumPartitions: partitions, ReplicationFactor: 1}, false))
	c.t.Cleanup(func() {
		_ = c.admin.DeleteTopic(topic) // names are never used again: leftovers are harmless
		_ = c.admin.DeleteTopic(topic + "." + group + ".dlq")
		_ = c.admin.DeleteConsumerGroup(group)
	})
	testenv.WaitTopic(c.t, c.client, topic, partitions)
	return topic, group
}

// committed returns the offset the group would begin at, per partition. It is 0 without a commit.
func (c *cluster) committed(group, topic string) (offsets []int64, err error) {
	partitions, err := c.client.Partitions(topic)
	if err != nil {
		return nil, err
	}
	reply, err := c.admin.ListConsumerGroupOffsets(group, map[string][]int32{topic: partitions})
	if err != nil {
		return nil, err
	}
	if reply.Err != sarama.ErrNoError {
		return nil, reply.Err
	}
	offsets = make([]int64, len(partitions))
	for _, p := range partitions {
		block := reply.GetBlock(topic, p)
		if block == nil {
			continue
		}
		if block.Err != sarama.ErrNoError {
			return nil, block.Err
		}
		offsets[p] = max(block.Offset, 0)
	}
	return offsets, nil
}

// waitServes waits until the group's coordinator answers for it.
func (c *cluster) waitServes(group, topic string) {
	c.t.Helper()
	require.Eventually(c.t, func() bool {
		_, err := c.committed(group, topic)
		return err == nil
	}, time.Minute, 50*time.Millisecond, "the coordinator does not answer for group %s", group)
}

// ends returns where each partition ends. A broker that has just restarted has no leaders at first:
// it is asked again for half a minute.
func (c *cluster) ends(topic string) (offsets []int64, err error) {
	for began := time.Now(); ; <-time.After(100 * time.Millisecond) {
		offsets, err = c.askEnds(topic)
		leaderless := errors.Is(err, sarama.ErrNotLeaderForPartition) || errors.Is(err, sarama.ErrLeaderNotAvailable)
		if !leaderless || time.Since(began) > 30*time.Second {
			return offsets, err
		}
	}
}

func (c *cluster) askEnds(topic string) ([]int64, error) {
	partitions, err := c.client.Partitions(topic)
	if err != nil {
		return nil, err
	}
	offsets := make([]int64, len(partitions))
	for _, p := range partitions {
		if offsets[p], err = c.client.GetOffset(topic, p, sarama.OffsetNewest); err != nil {
			return nil, err
		}
	}
	return offsets, nil
}

// waitMembers waits until the group has that many members and each has partitions. The first
// members would handle load that is sent earlier.
func (c *cluster) waitMembers(group string, members int) {
	c.t.Helper()
	require.Eventually(c.t, func() bool {
		groups, err := c.admin.DescribeConsumerGroups([]string{group})
		if err != nil || len(groups) != 1 || groups[0].State != "Stable" || len(groups[0].Members) != members {
			return false
		}
		for _, m := range groups[0].Members {
			if a, err := m.GetMemberAssignment(); err != nil || a == nil || len(a.Topics) == 0 {
				return false
			}
		}
		return true
	}, 30*time.Second, 50*time.Millisecond, "the group does not get %d members with partitions", members)
}

// standsStill is how long a group with work left may commit nothing.
const standsStill = 30 * time.Second

// waitNoLag waits until the group has committed the ends of all partitions, and no offset beyond. It
// fails after limit, and earlier for a group that stands still.
func (c *cluster) waitNoLag(group, topic string, limit time.Duration) {
	c.t.Helper()
	ends, err := c.ends(topic)
	require.NoError(c.t, err)
	committed := make([]int64, len(ends))
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	began := time.Now()
	for last := began; sum(committed) < sum(ends); <-tick.C {
		now, err := c.committed(group, topic)
		if err == nil && sum(now) > sum(committed) { // else the group's coordinator is being looked for
			last, committed = time.Now(), now
		}
		require.Less(c.t, time.Since(last), standsStill, "group %s stands still at %v, and its topic ends at %v (%v)", group, committed, ends, err)
		require.Less(c.t, time.Since(began), limit, "group %s is at %v, and its topic ends at %v (%v)", group, committed, ends, err)
	}
	require.Equal(c.t, ends, committed, "committed offsets beyond the end of the log")
}

// hasNoLag reports whether the group has committed all there is at this moment.
func (c *cluster) hasNoLag(group, topic string) bool {
	c.t.Helper()
	ends, err := c.ends(topic)
	require.NoError(c.t, err)
	committed, err := c.committed(group, topic)
	return err == nil && sum(committed) >= sum(ends) // an error: the group's coordinator is being looked for
}

// deadLetters returns how many dead letters the group has written. Without the topic there are no
// dead letters.
func (c *cluster) deadLetters(group, topic string) (n int64) {
	c.t.Helper()
	dlq := topic + "." + group + ".dlq"
	topics, err := c.admin.ListTopics()
	require.NoError(c.t, err)
	if _, ok := topics[dlq]; !ok {
		return 0
	}
	require.NoError(c.t, c.client.RefreshMetadata(dlq))
	ends, err := c.ends(dlq)
	require.NoError(c.t, err)
	return sum(ends)
}

func sum(numbers []int64) (n int64) {
	for _, x := range numbers {
		n += x
	}
	return n
}
