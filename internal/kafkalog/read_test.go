package kafkalog

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/consumer"
)

// world is a Kafka in this process with a topic of two partitions, "log".
type world struct {
	t        *testing.T
	brokers  []string
	client   sarama.Client
	producer *consumer.Producer
}

func newWorld(t *testing.T) *world {
	t.Helper()
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(2, "log"))
	require.NoError(t, err)
	t.Cleanup(cluster.Close)
	brokers := cluster.ListenAddrs()
	cfg, err := consumer.DefaultSaramaConfig(consumer.Config{
		Brokers: brokers, Group: "g", Topics: []string{"log"},
	})
	require.NoError(t, err)
	cfg.Metadata.Retry.Max = 1
	client, err := sarama.NewClient(brokers, cfg)
	require.NoError(t, err)
	t.Cleanup(func() { _ = client.Close() })
	producer, err := consumer.NewProducer(client)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, producer.Close()) })
	return &world{t, brokers, client, producer}
}

// read returns all records of a topic.
func (w *world) read(topic string) (all []*idem.Message) {
	w.t.Helper()
	spans, err := Spans(w.client, topic)
	require.NoError(w.t, err)
	for _, s := range spans {
		_, err := Read(w.t.Context(), w.client, s, func(m *idem.Message) (bool, error) {
			all = append(all, m)
			return true, nil
		})
		require.NoError(w.t, err)
	}
	return all
}

// A span is read to its end past transaction markers, aborted records and records larger than an
// answer. The read ends where the span ended when it was taken (rule 34).
func TestReadKnowsTheEnd(t *testing.T) {
	w := newWorld(t)
	ctx := t.Context()
	plainly := func(values ...string) {
		for _, v := range values {
			require.NoError(t, w.producer.Produce(ctx,
				&idem.Message{Topic: "log", Key: []byte("k"), Value: []byte(v), Time: time.Now()}))
		}
	}
	admin, err := sarama.NewClusterAdminFromClient(w.client)
	require.NoError(t, err)
	most := "5000000"
	require.NoError(t, admin.AlterConfig(sarama.TopicResource, "log",
		map[string]*string{"max.message.bytes": &most}, false))
	large := string(bytes.Repeat([]byte("x"), 3<<20))
	plainly("a", large, "b")
	client, err := kgo.NewClient(kgo.SeedBrokers(w.brokers...), kgo.TransactionalID("tx"),
		kgo.DefaultProduceTopic("log"))
	require.NoError(t, err)
	defer client.Close()
	for i, how := range []kgo.TransactionEndTry{kgo.TryCommit, kgo.TryAbort, kgo.TryCommit,
		kgo.TryAbort} {
		require.NoError(t, client.BeginTransaction())
		require.NoError(t, client.ProduceSync(ctx,
			&kgo.Record{Key: []byte("k"), Value: fmt.Append(nil, "tx", i)}).FirstErr())
		require.NoError(t, client.EndTransaction(ctx, how))
	}

	var got []string
	for _, m := range w.read("log") {
		got = append(got, string(m.Value[:min(len(m.Value), 5)]))
	}
	require.Equal(t, []string{"a", "xxxxx", "b", "tx0", "tx2"}, got)

	// Records written after the end are not read. Records deleted before the read are skipped.
	spans, err := Spans(w.client, "log")
	require.NoError(t, err)
	plainly("later")
	var id int32
	for _, s := range spans {
		if s.End > 0 {
			id = s.Partition
		}
	}
	require.NoError(t, admin.DeleteRecords("log", map[int32]int64{id: 2}))
	got = nil
	for _, s := range spans {
		more, err := Read(ctx, w.client, s, func(m *idem.Message) (bool, error) {
			got = append(got, string(m.Value))
			return true, nil
		})
		require.NoError(t, err)
		require.True(t, more)
	}
	require.Equal(t, []string{"b", "tx0", "tx2"}, got)
}

// Read does not wait for an open transaction.
func TestReadStopsAtAnOpenTransaction(t *testing.T) {
	w := newWorld(t)
	client, err := kgo.NewClient(kgo.SeedBrokers(w.brokers...), kgo.TransactionalID("tx"),
		kgo.DefaultProduceTopic("log"))
	require.NoError(t, err)
	defer client.Close()
	require.NoError(t, client.BeginTransaction())
	require.NoError(t,
		client.ProduceSync(t.Context(), &kgo.Record{Value: []byte("open")}).FirstErr())
	require.Empty(t, w.read("log"))
	require.NoError(t, client.EndTransaction(t.Context(), kgo.TryCommit))
	require.Len(t, w.read("log"), 1)
}

// Read stops when yield returns false, returns an error of yield, and ends with its context.
func TestReadStops(t *testing.T) {
	w := newWorld(t)
	for i := range 3 {
		require.NoError(t, w.producer.Produce(t.Context(), &idem.Message{
			Topic: "log", Key: []byte("k"), Value: fmt.Append(nil, i), Time: time.Now(),
		}))
	}
	s := Span{Topic: "log", Partition: w.read("log")[0].Partition, End: 3}
	n := 0
	more, err := Read(t.Context(), w.client, s, func(*idem.Message) (bool, error) {
		n++
		return n < 2, nil
	})
	require.NoError(t, err)
	require.False(t, more)
	require.Equal(t, 2, n)

	broken := errors.New("broken")
	_, err = Read(t.Context(), w.client, s,
		func(*idem.Message) (bool, error) { return true, broken })
	require.Equal(t, broken, err)

	over := errors.New("over")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(over)
	_, err = Read(ctx, w.client, s, func(*idem.Message) (bool, error) { return true, nil })
	require.ErrorIs(t, err, over)
}

// A long-lived client sees topics and partitions that were created after it (rule 34).
func TestTopicsThatAreNew(t *testing.T) {
	w := newWorld(t)
	known, err := Topics(w.client)
	require.NoError(t, err)
	require.Equal(t, []string{"log"}, known)
	_, err = Spans(w.client, "new")
	require.ErrorIs(t, err, sarama.ErrUnknownTopicOrPartition)
	exists, err := Exists(w.client, "new")
	require.NoError(t, err)
	require.False(t, exists)

	other, err := sarama.NewClusterAdmin(w.brokers, w.client.Config())
	require.NoError(t, err)
	defer other.Close()
	require.NoError(t, other.CreatePartitions("log", 3, nil, false))
	spans, err := Spans(w.client, "log")
	require.NoError(t, err)
	require.Len(t, spans, 3)
	require.NoError(t, other.CreateTopic("new",
		&sarama.TopicDetail{NumPartitions: 1, ReplicationFactor: 1}, false))
	known, err = Topics(w.client)
	require.NoError(t, err)
	require.Equal(t, []string{"log", "new"}, known)
	spans, err = Spans(w.client, "log", "new")
	require.NoError(t, err)
	require.Equal(t, []Span{{Topic: "log"}, {Topic: "log", Partition: 1},
		{Topic: "log", Partition: 2}, {Topic: "new"}}, spans)
	exists, err = Exists(w.client, "new")
	require.NoError(t, err)
	require.True(t, exists)
}
