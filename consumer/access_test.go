package consumer

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/idem-go/idem"
)

// guarded is a Kafka in the process that knows rights.
type guarded struct {
	t       *testing.T
	brokers []string
	admin   sarama.ClusterAdmin
	client  sarama.Client
}

func newGuarded(t *testing.T, topics ...string) *guarded {
	t.Helper()
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, topics...), kfake.GroupMinSessionTimeout(time.Second),
		kfake.EnableSASL(), kfake.EnableACLs(), kfake.Superuser("PLAIN", "admin", "secret"), kfake.User("PLAIN", "app", "secret"))
	require.NoError(t, err)
	t.Cleanup(cluster.Close)
	g := &guarded{t: t, brokers: cluster.ListenAddrs()}
	sc := sarama.NewConfig()
	n := &sc.Net.SASL
	n.Enable, n.Mechanism, n.User, n.Password = true, sarama.SASLTypePlaintext, "admin", "secret"
	sc.Producer.Return.Successes = true
	g.client, err = sarama.NewClient(g.brokers, sc)
	require.NoError(t, err)
	t.Cleanup(func() { _ = g.client.Close() })
	g.admin, err = sarama.NewClusterAdminFromClient(g.client)
	require.NoError(t, err)
	return g
}

// grant gives rights to the user app, or takes them. A right is written as "Read topic orders".
func (g *guarded) grant(give bool, all ...string) {
	g.t.Helper()
	for _, what := range all {
		words := strings.Fields(what)
		op := map[string]sarama.AclOperation{
			"Read": sarama.AclOperationRead, "Write": sarama.AclOperationWrite, "Describe": sarama.AclOperationDescribe, "Create": sarama.AclOperationCreate,
		}[words[0]]
		kind := map[string]sarama.AclResourceType{"topic": sarama.AclResourceTopic, "group": sarama.AclResourceGroup}[words[1]]
		if give {
			resource := sarama.Resource{ResourceType: kind, ResourceName: words[2], ResourcePatternType: sarama.AclPatternLiteral}
			acl := sarama.Acl{Principal: "User:app", Host: "*", Operation: op, PermissionType: sarama.AclPermissionAllow}
			require.NoError(g.t, g.admin.CreateACLs([]*sarama.ResourceAcls{{Resource: resource, Acls: []*sarama.Acl{&acl}}}))
			continue
		}
		_, err := g.admin.DeleteACL(sarama.AclFilter{
			ResourceType: kind, ResourceName: &words[2], ResourcePatternTypeFilter: sarama.AclPatternLiteral, Operation: op,
			PermissionType: sarama.AclPermissionAllow,
		}, false)
		require.NoError(g.t, err)
	}
}

func (g *guarded) config(topics ...string) Config {
	return Config{
		Brokers: g.brokers, Group: "g", Topics: topics, Grace: time.Second,
		SASL: &SASL{Mechanism: "PLAIN", User: "app", Password: "secret"}, AllowInsecure: true,
	}
}

func (g *guarded) produce(topic string, from, to int) {
	g.t.Helper()
	p, err := sarama.NewSyncProducerFromClient(g.client)
	require.NoError(g.t, err)
	defer p.Close()
	for i := from; i < to; i++ {
		_, _, err := p.SendMessage(record(topic, i))
		require.NoError(g.t, err)
	}
}

// committed waits until the group has committed this offset.
func (g *guarded) committed(topic string, want int64) {
	g.t.Helper()
	require.Eventually(g.t, func() bool {
		offsets, err := g.admin.ListConsumerGroupOffsets("g", map[string][]int32{topic: {0}})
		return err == nil && offsets.GetBlock(topic, 0) != nil && offsets.GetBlock(topic, 0).Offset == want
	}, soon, poll)
}

// minimal are the rights of a consumer of orders without replays.
var minimal = []string{"Read topic orders", "Read group g", "Write topic orders.g.dlq"}

// TestAccess_MinimalRights: without a right on the topic for replays, or with Describe alone, the
// consumer warns, names the command, and works on its source (rule 46). A consumer with the right
// reads it.
func TestAccess_MinimalRights(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		topics, rights []string
		warning        string
	}{
		"no right":           {[]string{"orders.g.retry"}, nil, "retry topics must not be read"},
		"no right, no topic": {nil, nil, "retry topics must not be read"},
		"describe alone":     {[]string{"orders.g.retry"}, []string{"Describe topic orders.g.retry"}, "retry topics must not be read"},
		"read, no topic":     {nil, []string{"Read topic orders.g.retry"}, "dead letters cannot be replayed until their topics exist"},
		"read":               {[]string{"orders.g.retry"}, []string{"Read topic orders.g.retry"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newGuarded(t, append(c.topics, "orders", "orders.g.dlq")...)
			g.grant(true, append(c.rights, minimal...)...)
			g.produce("orders", 0, 10)
			var got tally
			m := start(t, g.config("orders"), routed(got.handle))
			require.Eventually(t, func() bool { return got.events() == 10 }, soon, poll)
			g.committed("orders", 10)
			require.Zero(t, m.count("committing offsets fails"), m.String())
			require.Equal(t, c.warning != "", m.count("level=WARN") > 0, m.String())
			if c.warning != "" {
				require.Equal(t, 1, m.count(c.warning), m.String())
			}
			if strings.HasPrefix(c.warning, "retry topics") {
				require.Contains(t, m.String(), "kafka-acls --bootstrap-server "+g.brokers[0]+
					" --add --allow-principal User:app --operation Read --topic orders.g.retry")
			}
			require.NoError(t, m.end())
		})
	}
}

// TestAccess_MissingRightsEndAStart within seconds, with the command that grants them.
func TestAccess_MissingRightsEndAStart(t *testing.T) {
	for right, want := range map[string]string{
		"Read topic orders":             "--operation Read --topic orders",
		"Write topic orders.g.dlq":      "--operation Write --topic orders.g.dlq",
		"Read group g":                  "--operation Read --group g",
		"Read topic orders.g.retry.1m":  "--operation Read --operation Write --topic orders.g.retry.1m",
		"Write topic orders.g.retry.1m": "--operation Read --operation Write --topic orders.g.retry.1m",
	} {
		for _, describe := range []bool{false, true} { // Describe does not help
			t.Run(fmt.Sprint(right, " describe=", describe), func(t *testing.T) {
				t.Parallel()
				g := newGuarded(t, "orders", "orders.g.dlq", "orders.g.retry", "orders.g.retry.1m")
				g.grant(true, append(minimal, "Read topic orders.g.retry.1m", "Write topic orders.g.retry.1m")...)
				g.grant(false, right)
				if describe {
					_, resource, _ := strings.Cut(right, " ")
					g.grant(true, "Describe "+resource)
				}
				began := time.Now()
				err := start(t, g.config("orders"), routed(nothing), withDelays(time.Minute)).wait(t, soon)
				require.ErrorIs(t, err, ErrUnauthorized)
				require.ErrorContains(t, err, "kafka-acls --bootstrap-server "+g.brokers[0]+" --add --allow-principal User:app "+want)
				require.Less(t, time.Since(began), 10*time.Second)
			})
		}
	}
}

// TestAccess_CannotCreate: a topic that cannot be created is named with both ways out; of the one
// for replays that is a warning.
func TestAccess_CannotCreate(t *testing.T) {
	g := newGuarded(t, "orders")
	g.grant(true, append(minimal, "Read topic orders.g.retry")...)
	cfg := g.config("orders")
	cfg.CreateDeadLetterTopics = &TopicSpec{}
	m := start(t, cfg, routed(nothing))
	err := m.wait(t, soon)
	require.ErrorIs(t, err, ErrUnauthorized)
	require.ErrorContains(t, err, "kafka-topics --bootstrap-server "+g.brokers[0]+" --create --topic orders.g.dlq --partitions 1 --replication-factor 1 --config retention.ms=-1")
	require.ErrorContains(t, err, "--operation Create --topic orders.g.dlq")
	require.Equal(t, 1, m.count("topic for replayed dead letters cannot be created"))

	g.grant(true, "Create topic orders.g.dlq")
	m = start(t, cfg, routed(nothing))
	require.Eventually(t, func() bool { return m.Ready() == nil }, soon, poll)
	require.NoError(t, m.end())
}

// TestAccess_MissingTopicsNameTheirCommands: those of a consumer with all rights.
func TestAccess_MissingTopicsNameTheirCommands(t *testing.T) {
	t.Parallel()
	brokers := fakeBrokers(t, 3, "orders")
	at := "kafka-topics --bootstrap-server " + brokers[0] + " --create --topic "
	cfg := Config{Brokers: brokers, Group: "g", Topics: []string{"orders"}}
	err := start(t, cfg, routed(nothing)).wait(t, soon)
	require.ErrorContains(t, err, at+"orders.g.dlq --partitions 3 --replication-factor 1 --config retention.ms=-1")
	err = start(t, cfg, routed(nothing), withDelays(time.Minute)).wait(t, soon)
	require.ErrorContains(t, err, at+"orders.g.retry.1m --partitions 3 --replication-factor 1 --config cleanup.policy=delete")
	cfg.Topics = []string{"order"}
	err = start(t, cfg, routed(nothing)).wait(t, soon)
	require.ErrorContains(t, err, "topics do not exist: order: create them: "+at+"order")
}

// TestAccess_WithdrawnLater: a right that is withdrawn while the consumer runs is waited for, with
// the command in the log. Its other topics go on. No event is lost or becomes a dead letter.
func TestAccess_WithdrawnLater(t *testing.T) {
	t.Parallel()
	g := newGuarded(t, "orders", "refunds", "orders.g.dlq", "refunds.g.dlq", "orders.g.retry", "refunds.g.retry")
	g.grant(true, append(minimal, "Read topic refunds", "Write topic refunds.g.dlq", "Read topic orders.g.retry", "Read topic refunds.g.retry")...)
	var got tally
	m := start(t, g.config("orders", "refunds"), routed(got.handle), func(c *Consumer) { c.life.Topics.Every = 100 * time.Millisecond })
	g.produce("orders", 0, 5)
	g.produce("refunds", 5, 10)
	require.Eventually(t, func() bool { return got.events() == 10 }, soon, poll)

	g.grant(false, "Read topic orders", "Read topic orders.g.retry")
	// The rights go one after the other, and the consumer may look between them.
	require.Eventually(t, func() bool { return m.count("retry topics must not be read") == 1 }, soon, poll)
	require.Equal(t, 1, m.count("topic must not be read any longer"))
	require.Contains(t, m.String(), "--operation Read --topic orders")
	g.produce("orders", 10, 15)
	g.produce("refunds", 15, 20)
	require.Eventually(t, func() bool { return got.events() == 15 }, soon, poll)
	g.committed("refunds", 10)

	g.grant(true, "Read topic orders")
	require.Eventually(t, func() bool { return got.events() == 20 }, soon, poll)
	g.committed("orders", 10)

	g.grant(false, "Read group g")
	require.Eventually(t, func() bool { return m.count("--operation Read --group g") > 0 }, soon, poll)
	require.Contains(t, m.String(), "cannot consume, will go on trying")
	g.produce("orders", 20, 25)
	g.grant(true, "Read group g")
	require.Eventually(t, func() bool { return got.events() == 25 }, soon, poll)
	require.NoError(t, m.end())
	require.Zero(t, m.count("event dead-lettered"))
}

// TestAccess_NoWriteLater: a dead letter that must not be written waits, and the log names the
// command.
func TestAccess_NoWriteLater(t *testing.T) {
	g := newGuarded(t, "orders", "orders.g.dlq", "orders.g.retry")
	g.grant(true, append(minimal, "Read topic orders.g.retry")...)
	m := start(t, g.config("orders"), routed(func(context.Context, *idem.Message) error { return idem.Permanent(errTest) }))
	require.Eventually(t, func() bool { return m.Ready() == nil }, soon, poll)
	g.grant(false, "Write topic orders.g.dlq")
	g.produce("orders", 0, 1)
	require.Eventually(t, func() bool { return m.count("producer unavailable, pausing") == 1 }, soon, poll)
	require.Contains(t, m.String(), "--operation Write --topic orders.g.dlq")
	g.grant(true, "Write topic orders.g.dlq")
	require.Eventually(t, func() bool { return m.count("event dead-lettered") == 1 }, soon, poll)
	g.committed("orders", 1)
	require.NoError(t, m.end())
}
