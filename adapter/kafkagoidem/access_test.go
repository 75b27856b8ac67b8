package kafkagoidem

import (
	"strings"
	"testing"
	"time"

	"github.com/segmentio/kafka-go/sasl/plain"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	fplain "github.com/twmb/franz-go/pkg/sasl/plain"
)

// TestKfake_WithdrawnRight: a right that is withdrawn while the runner runs is waited for. The
// other topics go on, and each event is handled once.
func TestKfake_WithdrawnRight(t *testing.T) {
	for name, acls := range map[string]*kadm.ACLBuilder{
		"topic": kadm.NewACLs().Topics("b"), "group": kadm.NewACLs().Groups("g-a"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "a", "b"),
				kfake.GroupMinSessionTimeout(time.Second), kfake.EnableSASL(), kfake.EnableACLs(),
				kfake.Superuser("PLAIN", "admin", "secret"), kfake.User("PLAIN", "app", "secret"))
			require.NoError(t, err)
			t.Cleanup(cluster.Close)
			brokers := cluster.ListenAddrs()
			boss := clientOf(t, brokers, kgo.SASL(fplain.Auth{User: "admin", Pass: "secret"}.AsMechanism()))
			admin := kadm.NewClient(boss)
			all := toApp(kadm.NewACLs().Groups("g-a").Topics("a", "b", "a.g-a.dlq", "b.g-a.dlq",
				"a.g-a.retry", "b.g-a.retry"))
			_, err = admin.CreateACLs(t.Context(), all)
			require.NoError(t, err)
			produce := func(topic string, from, to int) {
				t.Helper()
				for i := from; i < to; i++ {
					require.NoError(t, boss.ProduceSync(t.Context(), record(topic, i)).FirstErr())
				}
			}
			cfg := configFor(brokers, "a")
			cfg.Topics, cfg.AllowInsecure = []string{"a", "b"}, true
			cfg.SASL = plain.Mechanism{Username: "app", Password: "secret"}
			produce("a", 0, 5)
			produce("b", 5, 10)
			var got tally
			m := start(t, cfg, routed(got.handle), func(r *Runner) { r.life.Topics.Every = time.Second })
			require.Eventually(t, func() bool { return got.events() == 10 }, soon, poll)
			_, err = admin.DeleteACLs(t.Context(), toApp(acls))
			require.NoError(t, err)
			produce("b", 10, 15)
			require.Eventually(t, func() bool { return m.Ready() != nil }, soon, poll)
			produce("a", 15, 20)
			if name == "topic" {
				require.Eventually(t, func() bool { return got.events() >= 15 }, soon, poll)
			} else {
				require.Eventually(t, func() bool {
					return strings.Contains(m.String(), "--operation Read --group g-a")
				}, soon, poll)
			}
			_, err = admin.CreateACLs(t.Context(), all)
			require.NoError(t, err)
			require.Eventually(t, func() bool { return got.events() == 20 && m.Ready() == nil }, soon, poll)
			require.NoError(t, m.end())
			require.Equal(t, 20, got.total())
		})
	}
}

// toApp grants all operations to the user app.
func toApp(rights *kadm.ACLBuilder) *kadm.ACLBuilder {
	return rights.Operations(kmsg.ACLOperationAll).Allow("User:app").AllowHosts("*").
		ResourcePatternType(kadm.ACLPatternLiteral)
}
