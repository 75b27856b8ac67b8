package publish

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"net"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/internal/testenv"
)

// settings are those of a producer that stands alone.
func settings() *sarama.Config {
	sc := sarama.NewConfig()
	sc.Net.MaxOpenRequests = 1
	sc.Metadata.AllowAutoTopicCreation = false
	Configure(sc)
	ConfigureAlone(sc)
	return sc
}

// openProducer opens a producer on these brokers, with a retry or two only.
func openProducer(t *testing.T, brokers []string, change ...func(*sarama.Config)) *Producer {
	t.Helper()
	sc := settings()
	sc.Producer.Retry.Max, sc.Producer.Retry.BackoffFunc = 2, nil
	sc.Producer.Retry.Backoff = 10 * time.Millisecond
	for _, f := range change {
		f(sc)
	}
	p, err := Open(t.Context(), brokers, sc)
	require.NoError(t, err)
	t.Cleanup(p.Close)
	return p
}

func fakeCluster(t *testing.T, partitions int32, topics []string, opts ...kfake.Opt) (cluster *kfake.Cluster, brokers []string) {
	t.Helper()
	cluster, err := kfake.NewCluster(append(opts, kfake.NumBrokers(1), kfake.SeedTopics(partitions, topics...))...)
	require.NoError(t, err)
	t.Cleanup(cluster.Close)
	producersByPartition(cluster)
	brokers = cluster.ListenAddrs()
	return cluster, brokers
}

// producersByPartition lets the cluster keep the epoch of a producer for each partition, as Kafka
// does. kfake keeps one for all partitions. It refuses a retry whose batch it has appended, if
// another partition has got a batch of a later epoch. The cluster sees a producer ID of its own for
// each partition.
func producersByPartition(cluster *kfake.Cluster) {
	type producer struct {
		id int64
		at string
	}
	ids := map[producer]int64{}
	castagnoli := crc32.MakeTable(crc32.Castagnoli)
	cluster.ControlKey(int16(kmsg.Produce), func(r kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		for _, topic := range r.(*kmsg.ProduceRequest).Topics {
			for i := range topic.Partitions {
				part := &topic.Partitions[i]
				const idAt, crcAt, crcFrom = 43, 17, 21 // in a record batch of version 2
				if len(part.Records) < idAt+8 {
					continue
				}
				id := part.Records[idAt : idAt+8]
				from := producer{int64(binary.BigEndian.Uint64(id)), fmt.Sprint(topic.Topic, topic.TopicID, part.Partition)}
				if _, known := ids[from]; !known {
					ids[from] = 1<<40 + int64(len(ids))
				}
				binary.BigEndian.PutUint64(id, uint64(ids[from]))
				binary.BigEndian.PutUint32(part.Records[crcAt:], crc32.Checksum(part.Records[crcFrom:], castagnoli))
			}
		}
		return nil, nil, false
	})
}

// messages have their number as value and key.
func messages(topic string, from, to int) (all []*idem.Message) {
	for i := from; i < to; i++ {
		n := fmt.Appendf(nil, "%d", i)
		all = append(all, &idem.Message{Topic: topic, Key: n, Value: n})
	}
	return all
}

// values counts the records of a topic by value.
func values(t *testing.T, brokers []string, topic string) map[string]int {
	t.Helper()
	client, err := sarama.NewClient(brokers, testenv.KafkaConfig())
	require.NoError(t, err)
	defer client.Close()
	ids, err := client.Partitions(topic)
	require.NoError(t, err)
	total := int64(0)
	for _, id := range ids {
		end, err := client.GetOffset(topic, id, sarama.OffsetNewest)
		require.NoError(t, err)
		total += end
	}
	counts := make(map[string]int)
	for _, m := range readAll(t, brokers, topic, int(total)) {
		counts[string(m.Value)]++
	}
	return counts
}

func noErrors(t *testing.T, errs []error) {
	t.Helper()
	for i, err := range errs {
		require.NoError(t, err, "message %d", i)
	}
}

// readAll reads a topic from its beginning until it has n records.
func readAll(t *testing.T, brokers []string, topic string, n int) (all []*sarama.ConsumerMessage) {
	t.Helper()
	cfg := testenv.KafkaConfig()
	cfg.Consumer.IsolationLevel = sarama.ReadCommitted
	c, err := sarama.NewConsumer(brokers, cfg)
	require.NoError(t, err)
	defer c.Close()
	ids, err := c.Partitions(topic)
	require.NoError(t, err)
	into := make(chan *sarama.ConsumerMessage)
	stop := make(chan struct{})
	var readers sync.WaitGroup
	for _, id := range ids {
		pc, err := c.ConsumePartition(topic, id, sarama.OffsetOldest)
		require.NoError(t, err)
		readers.Go(func() {
			defer pc.Close()
			for {
				select {
				case m := <-pc.Messages():
					select {
					case into <- m:
					case <-stop:
						return
					}
				case <-stop:
					return
				}
			}
		})
	}
	defer readers.Wait()
	defer close(stop)
	timeout := time.After(20 * time.Second)
	for len(all) < n {
		select {
		case m := <-into:
			all = append(all, m)
		case <-timeout:
			t.Fatalf("%d records in %s, expected %d", len(all), topic, n)
		}
	}
	return all
}

const soon, poll = 30 * time.Second, 20 * time.Millisecond

// splitAddr returns the host and the port of an address.
func splitAddr(t *testing.T, addr string) (host string, port int32) {
	t.Helper()
	host, text, err := net.SplitHostPort(addr)
	require.NoError(t, err)
	n, err := strconv.ParseInt(text, 10, 32)
	require.NoError(t, err)
	return host, int32(n)
}
