package consumer

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/idem-go/idem"
)

// K-37: sarama asks brokers for their versions, and a Version above theirs does not harm: workers
// join, commit and publish dead letters.
func TestKfake_VersionAboveBrokers_K37(t *testing.T) {
	for name, version := range map[string]sarama.KafkaVersion{"default": sarama.DefaultVersion, "newest": sarama.MaxVersion} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "a", "a.g.dlq"),
				kfake.MaxVersions(kversion.V2_4_0()), kfake.GroupMinSessionTimeout(time.Second))
			require.NoError(t, err)
			t.Cleanup(cluster.Close)
			brokers := cluster.ListenAddrs()
			produceEvents(t, brokers, "a", 0, 3)
			var ran atomic.Int32
			m := start(t, Config{Brokers: brokers, Group: "g", Topics: []string{"a"}, Sarama: func(sc *sarama.Config) {
				quick(sc)
				sc.Version = version
			}}, routed(func(_ context.Context, msg *idem.Message) error {
				ran.Add(1)
				if msg.Offset == 1 {
					return idem.Permanent(errors.New("broken"))
				}
				return nil
			}))
			require.Eventually(t, func() bool { return ran.Load() == 3 }, soon, poll)
			require.NoError(t, m.end())
			require.EqualValues(t, 3, committed(t, brokers, "g", "a", 0)[0])
			require.Len(t, readAll(t, brokers, "a.g.dlq", 1), 1)
		})
	}
}
