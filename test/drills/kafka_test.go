package drills

import (
	"fmt"
	"hash/crc32"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/internal/testenv"
)

// kafka is a cluster of three brokers, which are controllers too.
type kafka struct {
	nodes   []*node
	brokers []string
}

// node is a broker.
type node struct {
	*process
	id        int
	dir, libs string
}

// kafkaLibs returns the directory of Kafka's jars, which test/services/services.sh fetches.
func kafkaLibs(t testing.TB) string {
	t.Helper()
	cache := os.Getenv("IDEM_CACHE_DIR")
	if cache == "" {
		home, err := os.UserHomeDir()
		require.NoError(t, err)
		cache = filepath.Join(home, ".cache", "idem")
	}
	dirs, err := filepath.Glob(filepath.Join(cache, "kafka-*"))
	require.NoError(t, err)
	for _, dir := range dirs {
		if info, err := os.Stat(dir); err == nil && info.IsDir() && !strings.HasSuffix(dir, ".tmp") {
			return dir
		}
	}
	missing(t, "Kafka's jars are not in "+cache+": make up fetches them")
	return ""
}

func startKafka(t testing.TB) *kafka {
	t.Helper()
	program(t, "java", "Debian: apt-get install default-jre-headless")
	libs := kafkaLibs(t)
	k := &kafka{}
	var voters, controllers []string
	for id := 1; id <= 3; id++ {
		k.brokers = append(k.brokers, testenv.FreeAddr(t))
		controllers = append(controllers, testenv.FreeAddr(t))
		voters = append(voters, fmt.Sprintf("%d@%s", id, controllers[id-1]))
	}
	for i, addr := range k.brokers {
		n := &node{id: i + 1, dir: directory(t), libs: libs}
		settings := strings.Join([]string{
			"process.roles=broker,controller", "node.id=" + strconv.Itoa(n.id),
			"controller.quorum.voters=" + strings.Join(voters, ","), "controller.listener.names=CONTROLLER",
			"listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
			"inter.broker.listener.name=PLAINTEXT",
			"listeners=PLAINTEXT://" + addr + ",CONTROLLER://" + controllers[i],
			"advertised.listeners=PLAINTEXT://" + addr, "log.dirs=" + filepath.Join(n.dir, "data"),
			"default.replication.factor=3", "min.insync.replicas=2", "unclean.leader.election.enable=false",
			"offsets.topic.replication.factor=3", "offsets.topic.num.partitions=3",
			"transaction.state.log.replication.factor=3", "transaction.state.log.min.isr=2",
			"transaction.state.log.num.partitions=3", "auto.create.topics.enable=false",
			"group.initial.rebalance.delay.ms=0", "group.min.session.timeout.ms=500",
			"broker.session.timeout.ms=3000", "broker.heartbeat.interval.ms=500",
			"replica.lag.time.max.ms=3000", "log.cleaner.dedupe.buffer.size=16777216",
		}, "\n")
		require.NoError(t, os.WriteFile(n.settings(), []byte(settings), 0o644))
		out, err := exec.CommandContext(t.Context(), "java", n.java("kafka.tools.StorageTool", "format", "-t",
			"idem-test-cluster-00000", "-c", n.settings())...).CombinedOutput()
		require.NoError(t, err, "%s", out)
		k.nodes = append(k.nodes, n)
	}
	for _, n := range k.nodes {
		n.serve(t)
	}
	require.Eventually(t, func() bool { return k.alive() == 3 }, 90*time.Second, 500*time.Millisecond, "the brokers do not start")
	return k
}

func (n *node) settings() string { return filepath.Join(n.dir, "server.properties") }

func (n *node) java(class string, args ...string) []string {
	logging, err := filepath.Abs("../services/kafka/log4j2.properties")
	if err != nil {
		panic(err)
	}
	return append([]string{
		"-Xms128m", "-Xmx320m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Djava.awt.headless=true",
		"-Dkafka.logs.dir=" + filepath.Join(n.dir, "logs"), "-Dlog4j2.configurationFile=" + logging,
		"-cp", n.libs + "/*", class,
	}, args...)
}

func (n *node) serve(t testing.TB) {
	t.Helper()
	n.process = launch(t, filepath.Join(n.dir, "log"), ownAttributes(), "java", n.java("kafka.Kafka", n.settings())...)
}

// alive counts the brokers that the cluster knows and that answer.
func (k *kafka) alive() int {
	known := 0
	for _, addr := range k.brokers {
		b := sarama.NewBroker(addr)
		cfg := testenv.KafkaConfig()
		cfg.Net.DialTimeout, cfg.Net.ReadTimeout = time.Second, 2*time.Second
		if b.Open(cfg) != nil {
			continue
		}
		answer, err := b.GetMetadata(&sarama.MetadataRequest{Version: 1})
		_ = b.Close()
		if err == nil {
			known = max(known, len(answer.Brokers))
		}
	}
	return known
}

// admin returns a new client: one of a former phase may know dead brokers only.
func (k *kafka) admin(t testing.TB) (sarama.Client, sarama.ClusterAdmin) {
	t.Helper()
	client, err := sarama.NewClient(k.brokers, testenv.KafkaConfig())
	require.NoError(t, err)
	admin, err := sarama.NewClusterAdminFromClient(client)
	require.NoError(t, err)
	t.Cleanup(func() { _ = admin.Close() })
	return client, admin
}

// create creates a topic with three replicas.
func (k *kafka) create(t testing.TB, name string, partitions int32) {
	t.Helper()
	_, admin := k.admin(t)
	forever := "-1"
	require.Eventually(t, func() bool {
		err := admin.CreateTopic(name, &sarama.TopicDetail{
			NumPartitions: partitions, ReplicationFactor: 3, ConfigEntries: map[string]*string{"retention.ms": &forever},
		}, false)
		return err == nil
	}, 30*time.Second, 500*time.Millisecond, "topic %s", name)
}

// set changes a setting of topics.
func (k *kafka) set(t testing.TB, name, value string, topics ...string) {
	t.Helper()
	_, admin := k.admin(t)
	for _, topic := range topics {
		require.NoError(t, admin.IncrementalAlterConfig(sarama.TopicResource, topic, map[string]sarama.IncrementalAlterConfigsEntry{
			name: {Operation: sarama.IncrementalAlterConfigsOperationSet, Value: &value},
		}, false))
	}
}

// awaitInSync waits until all replicas of topics are in sync.
func (k *kafka) awaitInSync(t testing.TB, topics ...string) {
	t.Helper()
	require.Eventually(t, func() bool {
		client, err := sarama.NewClient(k.brokers, testenv.KafkaConfig())
		if err != nil {
			return false
		}
		defer client.Close()
		for _, topic := range topics {
			partitions, err := client.Partitions(topic)
			if err != nil {
				return false
			}
			for _, p := range partitions {
				if isr, err := client.InSyncReplicas(topic, p); err != nil || len(isr) < 3 {
					return false
				}
			}
		}
		return true
	}, 60*time.Second, 300*time.Millisecond, "replicas are not in sync")
}

// electLeaders gives each partition its preferred leader.
func (k *kafka) electLeaders(t testing.TB, topics ...string) {
	t.Helper()
	client, admin := k.admin(t)
	wanted := make(map[string][]int32)
	for _, topic := range topics {
		partitions, err := client.Partitions(topic)
		require.NoError(t, err)
		wanted[topic] = partitions
	}
	_, err := admin.ElectLeaders(sarama.PreferredElection, wanted)
	require.NoError(t, err)
}

// rotate moves the preferred leader of each partition on to the next broker, and elects them.
func (k *kafka) rotate(t testing.TB, by int, topics ...string) {
	t.Helper()
	client, admin := k.admin(t)
	for _, topic := range topics {
		partitions, err := client.Partitions(topic)
		require.NoError(t, err)
		replicas := make([][]int32, len(partitions))
		for _, p := range partitions {
			for i := range 3 {
				replicas[p] = append(replicas[p], int32((int(p)+by+i)%3+1))
			}
		}
		require.NoError(t, admin.AlterPartitionReassignments(topic, replicas))
	}
	k.electLeaders(t, topics...)
}

// idsIn reads a topic to its end, and counts its records by the header event-id.
func (k *kafka) idsIn(t testing.TB, topic string) map[string]int {
	t.Helper()
	client, _ := k.admin(t)
	c, err := sarama.NewConsumerFromClient(client)
	require.NoError(t, err)
	defer c.Close()
	partitions, err := client.Partitions(topic)
	require.NoError(t, err)
	ids := make(map[string]int)
	for _, p := range partitions {
		end, err := client.GetOffset(topic, p, sarama.OffsetNewest)
		require.NoError(t, err)
		if end == 0 {
			continue
		}
		pc, err := c.ConsumePartition(topic, p, sarama.OffsetOldest)
		require.NoError(t, err)
		for m := range pc.Messages() {
			for _, h := range m.Headers {
				if string(h.Key) == "event-id" {
					ids[string(h.Value)]++
				}
			}
			if m.Offset+1 >= end {
				break
			}
		}
		_ = pc.Close()
	}
	return ids
}

// hashed returns a number that depends on the text alone.
func hashed(text string) uint32 { return crc32.ChecksumIEEE([]byte(text)) }
