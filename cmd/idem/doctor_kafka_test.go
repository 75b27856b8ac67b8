package main

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/idem-go/idem/internal/doctor"
	"github.com/idem-go/idem/internal/testenv"
)

// kafkaPlace is a topic with dead-letter topic on the real Kafka, as they should be.
type kafkaPlace struct {
	*testing.T
	brokers                  []string
	admin                    sarama.ClusterAdmin
	group, topic, deadLetter string
}

func newKafkaPlace(t *testing.T) *kafkaPlace {
	k := &kafkaPlace{T: t, brokers: testenv.Kafka(t)}
	k.topic = testenv.CreateTopic(t, k.brokers, 2, map[string]string{"retention.ms": "604800000"})
	k.admin = testenv.KafkaAdmin(t, k.brokers)
	k.await(k.topic, sarama.ErrNoError)
	k.group = k.topic + "-g"
	k.deadLetter = k.topic + "." + k.group + ".dlq"
	k.create(k.deadLetter, 2, "retention.ms", "-1")
	return k
}

func (k *kafkaPlace) base(more ...string) []string {
	return append([]string{"--brokers", strings.Join(k.brokers, ","), "-G", k.group, "--topics", k.topic}, more...)
}

func (k *kafkaPlace) create(name string, partitions int32, settings ...string) {
	k.Helper()
	entries := map[string]*string{}
	for i := 0; i < len(settings); i += 2 {
		entries[settings[i]] = &settings[i+1]
	}
	require.NoError(k, k.admin.CreateTopic(name, &sarama.TopicDetail{NumPartitions: partitions, ReplicationFactor: 1, ConfigEntries: entries}, false))
	k.await(name, sarama.ErrNoError)
}

// await waits until the broker knows a topic, or its end, which takes a moment.
func (k *kafkaPlace) await(name string, want sarama.KError) {
	k.Helper()
	require.Eventually(k, func() bool {
		topics, err := k.admin.DescribeTopics([]string{name})
		return err == nil && topics[0].Err == want
	}, 10*time.Second, 50*time.Millisecond)
}

func (k *kafkaPlace) delete(name string) {
	k.Helper()
	require.NoError(k, k.admin.DeleteTopic(name))
	k.await(name, sarama.ErrUnknownTopicOrPartition)
}

func (k *kafkaPlace) set(topic, name, value string) {
	k.Helper()
	require.NoError(k, k.admin.IncrementalAlterConfig(sarama.TopicResource, topic, map[string]sarama.IncrementalAlterConfigsEntry{
		name: {Operation: sarama.IncrementalAlterConfigsOperationSet, Value: &value},
	}, false))
}

// produce writes n records to partition 0.
func (k *kafkaPlace) produce(n int) {
	k.Helper()
	cfg := testenv.KafkaConfig()
	cfg.Producer.Partitioner = sarama.NewManualPartitioner
	p, err := sarama.NewSyncProducer(k.brokers, cfg)
	require.NoError(k, err)
	defer p.Close()
	for i := range n {
		_, _, err := p.SendMessage(&sarama.ProducerMessage{Topic: k.topic, Value: sarama.StringEncoder(fmt.Sprint(i))})
		require.NoError(k, err)
	}
}

// commit commits an offset of partition 0.
func (k *kafkaPlace) commit(offset int64) {
	k.Helper()
	_, err := k.admin.AlterConsumerGroupOffsets(k.group, map[string]map[int32]sarama.OffsetAndMetadata{k.topic: {0: {Offset: offset, LeaderEpoch: -1}}},
		&sarama.AlterConsumerGroupOffsetsOptions{})
	require.NoError(k, err)
}

// join adds a member to the group until the returned function is called.
func (k *kafkaPlace) join(strategy sarama.BalanceStrategy, topics ...string) (leave func()) {
	k.Helper()
	cfg := testenv.KafkaConfig()
	cfg.Consumer.Group.Rebalance.GroupStrategies = []sarama.BalanceStrategy{strategy}
	group, err := sarama.NewConsumerGroup(k.brokers, k.group, cfg)
	require.NoError(k, err)
	m := &idle{begun: make(chan struct{}, 100)}
	ctx, cancel := context.WithCancel(k.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			_ = group.Consume(ctx, topics, m)
		}
	}()
	left := false
	leave = func() {
		if left {
			return
		}
		left = true
		cancel()
		<-done
		_ = group.Close()
	}
	k.Cleanup(leave)
	select {
	case <-m.begun:
	case <-time.After(20 * time.Second):
		require.Fail(k, "the member does not get its partitions")
	}
	return leave
}

// idle consumes no record.
type idle struct{ begun chan struct{} }

func (i *idle) Setup(sarama.ConsumerGroupSession) error { i.begun <- struct{}{}; return nil }

func (*idle) Cleanup(sarama.ConsumerGroupSession) error { return nil }

func (*idle) ConsumeClaim(s sarama.ConsumerGroupSession, _ sarama.ConsumerGroupClaim) error {
	<-s.Context().Done()
	return nil
}

// Misconfigurations of topics (K-17, K-19, K-20, K-28, K-32, K-36, T-04), each alone on topics that
// were right.
func TestDoctor_KafkaPlanted(t *testing.T) {
	for _, p := range []struct {
		plant
		do func(k *kafkaPlace)
	}{
		{plant{name: "no dead-letter topic", id: "kafka.dlq.missing", want: doctor.Bad, says: "kafka-topics.sh"}, func(k *kafkaPlace) { k.delete(k.deadLetter) }},
		{plant{name: "fewer partitions", id: "kafka.dlq.partitions", want: doctor.Warn, says: "--partitions 2"}, func(k *kafkaPlace) {
			k.delete(k.deadLetter)
			k.create(k.deadLetter, 1, "retention.ms", "-1")
		}},
		{plant{name: "dead letters replace each other", id: "kafka.dlq.compacted", want: doctor.Bad, says: "cleanup.policy=delete"},
			func(k *kafkaPlace) { k.set(k.deadLetter, "cleanup.policy", "compact") }},
		{plant{name: "dead letters deleted at once", id: "kafka.dlq.retention", want: doctor.Bad, says: "deleted at once"},
			func(k *kafkaPlace) { k.set(k.deadLetter, "retention.ms", "604800000") }},
		{plant{name: "a day", id: "kafka.dlq.retention", want: doctor.Warn, says: "24h"}, func(k *kafkaPlace) {
			k.set(k.deadLetter, "message.timestamp.type", "LogAppendTime")
			k.set(k.deadLetter, "retention.ms", "86400000")
		}},
		{plant{name: "dead letters by size", id: "kafka.dlq.retention", want: doctor.Warn, says: "retention.bytes"}, func(k *kafkaPlace) { k.set(k.deadLetter, "retention.bytes", "1000000") }},
		{plant{name: "dead letters of old records refused", id: "kafka.dlq.timestamp", want: doctor.Bad, says: "partition stops"},
			func(k *kafkaPlace) { k.set(k.deadLetter, "message.timestamp.before.max.ms", "3600000") }},
		{plant{name: "dead letters too small", id: "kafka.dlq.size", want: doctor.Warn, says: "only a pointer is kept"}, func(k *kafkaPlace) { k.set(k.deadLetter, "max.message.bytes", "5000") }},
		{plant{name: "no dead letter can be written", id: "kafka.dlq.min_isr", want: doctor.Bad, says: "min.insync.replicas=1"},
			func(k *kafkaPlace) { k.set(k.deadLetter, "min.insync.replicas", "2") }},
		{plant{name: "unclean", id: "kafka.topic.unclean", want: doctor.Warn, says: "lags behind"}, func(k *kafkaPlace) { k.set(k.topic, "unclean.leader.election.enable", "true") }},
		{plant{name: "records outlive the store's memory", id: "kafka.topic.retention", want: doctor.Warn, says: "too old", also: []string{"kafka.dlq.retention"}},
			func(k *kafkaPlace) { k.set(k.topic, "retention.ms", "2592000000") }},
		{plant{name: "records for ever", id: "kafka.topic.retention", want: doctor.Warn, says: "compacted"}, func(k *kafkaPlace) { k.set(k.topic, "cleanup.policy", "compact") }},
		{plant{name: "short memory", id: "kafka.topic.retention", want: doctor.Warn, says: "7 days", args: []string{"--retention", "24h"}}, nil},
		{plant{name: "misspelt", id: "kafka.topic.missing", want: doctor.Bad, says: "does not exist", args: []string{"--topics", "no-such-topic"}}, nil},
		{plant{name: "no retry topic", id: "kafka.retry.missing", want: doctor.Bad, says: ".retry.5s", args: []string{"--retry-delays", "5s"}, fresh: true}, nil},
		{plant{name: "copies replace each other", id: "kafka.retry.compacted", want: doctor.Bad, says: "compact", fresh: true},
			func(k *kafkaPlace) {
				k.create(k.topic+"."+k.group+".retry", 2, "cleanup.policy", "compact", "retention.ms", "-1")
			}},
		{plant{name: "copies go over night", id: "kafka.retry.retention", want: doctor.Warn, says: "1h0m0s", fresh: true},
			func(k *kafkaPlace) { k.create(k.topic+"."+k.group+".retry", 2, "retention.ms", "3600000") }},
		{plant{name: "session too long", id: "kafka.group.session", want: doctor.Bad, says: "30m0s", args: []string{"--session-timeout", "45m"}}, nil},
		{plant{name: "nothing committed", id: "kafka.offsets.missing", want: doctor.Warn, says: "5 records"}, func(k *kafkaPlace) { k.produce(5) }},
		{plant{name: "records gone", id: "kafka.offsets.gap", want: doctor.Bad, says: "3 records"}, func(k *kafkaPlace) {
			k.produce(10)
			k.commit(4)
			require.NoError(k, k.admin.DeleteRecords(k.topic, map[int32]int64{0: 7}))
		}},
		{plant{name: "topic made anew", id: "kafka.offsets.gap", want: doctor.Bad, says: "created again"}, func(k *kafkaPlace) { k.commit(50) }},
		{plant{name: "another strategy", id: "kafka.group.strategy", want: doctor.Bad, says: "roundrobin", fresh: true},
			func(k *kafkaPlace) { k.join(sarama.NewBalanceStrategyRoundRobin(), k.topic) }},
		{plant{name: "not yet cooperative", id: "kafka.group.strategy", want: doctor.Bad, says: "cooperative-sticky", args: []string{"--cooperative"}, fresh: true},
			func(k *kafkaPlace) { k.join(sarama.NewBalanceStrategyRange(), k.topic) }},
		{plant{name: "nobody consumes it", id: "kafka.group.subscription", want: doctor.Warn, says: "no member", fresh: true}, func(k *kafkaPlace) {
			other := testenv.CreateTopic(k.T, k.brokers, 1)
			k.join(sarama.NewBalanceStrategyRange(), other)
		}},
	} {
		t.Run(p.name, func(t *testing.T) {
			k := newKafkaPlace(t)
			var do func()
			if p.do != nil {
				do = func() { p.do(k) }
			}
			p.found(t, k.base(), do)
		})
	}
}

// A group at work is well. Its topics are found by its offsets.
func TestDoctor_KafkaClean(t *testing.T) {
	k := newKafkaPlace(t)
	k.create(k.topic+"."+k.group+".retry", 2, "retention.ms", "-1")
	k.create(k.topic+"."+k.group+".retry.5s", 2, "retention.ms", "-1")
	k.produce(5)
	k.commit(3)
	k.join(sarama.NewBalanceStrategyRange(), k.topic)
	r := examined(t, "--brokers", strings.Join(k.brokers, ","), "-G", k.group, "--retry-delays", "5s")
	require.Empty(t, r.bads())
	for _, f := range r {
		if strings.HasPrefix(f.ID, "kafka.") && f.ID != "kafka.autocreate" { // a setting of the test's broker
			require.Equal(t, doctor.OK, f.Verdict, "%+v", f)
		}
	}
	require.Equal(t, k.topic, r.worst("kafka.topic.retention").On)
	none := examined(t, "--brokers", strings.Join(k.brokers, ","), "-G", k.group+"-unheard-of")
	require.Equal(t, doctor.Unknown, none.worst("kafka.topic.missing").Verdict)
	require.Contains(t, none.worst("kafka.topic.missing").Remedy, "--topics")
}

// A Kafka that is away is bad, and the rest is looked at all the same.
func TestDoctor_KafkaAway(t *testing.T) {
	r := examined(t, "--brokers", testenv.FreeAddr(t), "-G", "g", "--topics", "orders")
	require.Equal(t, doctor.Bad, r.worst("kafka.connect").Verdict)
	require.Equal(t, doctor.OK, r.worst("settings.consumer").Verdict)
}

func fakeKafka(t *testing.T, brokers int, opts ...kfake.Opt) (*kfake.Cluster, []string) {
	t.Helper()
	cluster, err := kfake.NewCluster(append(opts, kfake.NumBrokers(brokers))...)
	require.NoError(t, err)
	t.Cleanup(cluster.Close)
	return cluster, []string{"--brokers", strings.Join(cluster.ListenAddrs(), ","), "-G", "g", "--topics", "orders"}
}

// One replica on one broker is all there is; on three brokers it is a choice (K-36).
func TestDoctor_Replication(t *testing.T) {
	_, base := fakeKafka(t, 3)
	admin := testenv.KafkaAdmin(t, strings.Split(base[1], ","))
	require.NoError(t, admin.CreateTopic("orders", &sarama.TopicDetail{NumPartitions: 1, ReplicationFactor: 3}, false))
	forever := "-1"
	require.NoError(t, admin.CreateTopic("orders.g.dlq", &sarama.TopicDetail{NumPartitions: 1, ReplicationFactor: 1,
		ConfigEntries: map[string]*string{"retention.ms": &forever}}, false))
	r := examined(t, base...)
	require.Equal(t, doctor.OK, r.worst("kafka.topic.replication").Verdict)
	require.Equal(t, doctor.Bad, r.worst("kafka.dlq.replication").Verdict)
}

// In a group of the protocol of KIP-848 the brokers assign the partitions: members have no strategy.
// Such a group is not a group without members.
func TestDoctor_NextGeneration(t *testing.T) {
	w := newDeadLetterWorld(t)
	w.joinNextGeneration("orders")
	args := []string{"--brokers", strings.Join(w.brokers, ","), "-G", w.group, "--topics", "orders"}
	r := examined(t, args...)
	require.Contains(t, r.worst("kafka.group.state").Detail, "1 member")
	require.Equal(t, doctor.Skipped, r.worst("kafka.group.strategy").Verdict)
	require.Contains(t, r.worst("kafka.group.strategy").Detail, "the brokers assign the partitions")
	require.Equal(t, doctor.OK, r.worst("kafka.group.subscription").Verdict)
	args[len(args)-1] = "orders,payments"
	require.Contains(t, examined(t, args...).worst("kafka.group.subscription").Detail, "no member consumes payments")
}

// Kafka 4 tells nothing of a group of KIP-848 if the user may not describe one of its topics. The
// remedy grants that right (rule 46).
func TestDoctor_NextGeneration_Rights(t *testing.T) {
	cluster, base := fakeKafka(t, 1, kfake.SeedTopics(1, "orders", "orders.g.dlq"))
	cluster.ControlKey(int16(kmsg.ConsumerGroupDescribe), func(req kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		resp := req.ResponseKind().(*kmsg.ConsumerGroupDescribeResponse)
		resp.Groups = []kmsg.ConsumerGroupDescribeResponseGroup{
			{Group: "g", ErrorCode: kerr.TopicAuthorizationFailed.Code},
		}
		return resp, nil, true
	})
	f := examined(t, base...).worst("kafka.group.state")
	require.Equal(t, doctor.Unknown, f.Verdict)
	require.Contains(t, f.Detail, "grant Describe on all topics that the group reads")
	require.Contains(t, f.Remedy, "--operation Describe --topic <topic>")
}

// A check that Kafka refuses is a warning with the ACL to grant (rule 46).
func TestDoctor_KafkaRights(t *testing.T) {
	cluster, base := fakeKafka(t, 1, kfake.SeedTopics(1, "orders", "orders.g.dlq"))
	require.NotEqual(t, doctor.Unknown, examined(t, base...).worst("kafka.rights").Verdict)
	cluster.ControlKey(int16(kmsg.DescribeConfigs), func(req kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		resp := req.ResponseKind().(*kmsg.DescribeConfigsResponse)
		for _, asked := range req.(*kmsg.DescribeConfigsRequest).Resources {
			one := kmsg.NewDescribeConfigsResponseResource()
			one.ResourceType, one.ResourceName = asked.ResourceType, asked.ResourceName
			one.ErrorCode = kerr.TopicAuthorizationFailed.Code
			if asked.ResourceType == kmsg.ConfigResourceTypeBroker {
				one.ErrorCode = kerr.ClusterAuthorizationFailed.Code
			}
			resp.Resources = append(resp.Resources, one)
		}
		return resp, nil, true
	})
	cluster.ControlKey(int16(kmsg.DescribeGroups), func(req kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		resp := req.ResponseKind().(*kmsg.DescribeGroupsResponse)
		one := kmsg.NewDescribeGroupsResponseGroup()
		one.Group, one.ErrorCode = "g", kerr.GroupAuthorizationFailed.Code
		resp.Groups = append(resp.Groups, one)
		return resp, nil, true
	})
	r := examined(t, base...)
	require.Empty(t, r.bads())
	require.Equal(t, doctor.OK, r.worst("kafka.dlq.missing").Verdict, "that is known")
	remedies := map[string]string{}
	for _, f := range r {
		if f.Verdict == doctor.Unknown {
			remedies[f.ID+" "+f.On] = f.Remedy
		}
	}
	require.Len(t, remedies, 4, "%+v", remedies)
	require.Contains(t, remedies["kafka.rights broker 0"], "--operation DescribeConfigs --cluster")
	require.Contains(t, remedies["kafka.rights orders"], "--operation DescribeConfigs --topic orders")
	require.Contains(t, remedies["kafka.rights orders.g.dlq"], "--topic orders.g.dlq")
	require.Contains(t, remedies["kafka.group.state group g"], "--operation Describe --group g")
}
