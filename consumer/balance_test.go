package consumer

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/IBM/sarama"
	"github.com/stretchr/testify/require"
)

// TestSticky_ByKind: retry topics do not count in the assignment of sources. For all former owners,
// and for all members that know the retry topics, no member ends with more than one partition of
// the sources above another.
func TestSticky_ByKind(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 1))
	sources, all := []string{"a", "b"}, []string{"a", "b", "a.g.retry", "b.g.retry", "a.g.retry.5s", "b.g.retry.5s"}
	topics := make(map[string][]int32)
	for _, topic := range all {
		topics[topic] = []int32{0, 1, 2, 3, 4, 5}
	}
	for range 200 {
		s := newSticky("g")
		owned := make(map[string]map[string][]int32)
		for topic, ids := range topics {
			for _, id := range ids {
				member := fmt.Sprint("m", rnd.IntN(5)) // m4 has come anew
				if owned[member] == nil {
					owned[member] = make(map[string][]int32)
				}
				owned[member][topic] = append(owned[member][topic], id)
			}
		}
		for range 2 { // moved partitions are free after the first round, owned after the second
			members := make(map[string]sarama.ConsumerGroupMemberMetadata)
			for i := range 5 {
				m := sarama.ConsumerGroupMemberMetadata{Version: 2, Topics: all, GenerationID: 7}
				if i == 0 {
					m.Topics = sources
				}
				for topic, ids := range owned[fmt.Sprint("m", i)] {
					if i > 0 || len(topic) == 1 {
						m.OwnedPartitions = append(m.OwnedPartitions, &sarama.OwnedPartition{Topic: topic, Partitions: ids})
					}
				}
				members[fmt.Sprint("m", i)] = m
			}
			plan, err := s.Plan(members, topics)
			require.NoError(t, err)
			owned = plan
		}
		seen, least, most := 0, 100, 0
		for i := range 5 {
			n := 0
			for topic, ids := range owned[fmt.Sprint("m", i)] {
				seen += len(ids)
				if len(topic) == 1 {
					n += len(ids)
				}
			}
			least, most = min(least, n), max(most, n)
		}
		require.Equal(t, 36, seen, "each has one owner")
		require.LessOrEqual(t, most-least, 1)
	}
}
