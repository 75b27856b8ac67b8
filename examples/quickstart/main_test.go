package main

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/idem-go/idem/consumer"
	"github.com/idem-go/idem/examples/internal/kafkagroup"
)

const (
	created = `{"event_id":"1","type":"order.created","email":"ann@example.com"}`
	paid    = `{"event_id":"2","type":"payment.completed","account":"ann","cents":995}`
)

// Without its topic the program ends within seconds, with the command that mends it.
func TestQuickstartNotSetUp(t *testing.T) {
	t.Chdir(t.TempDir())
	_, brokers := openKafka(t)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	began := time.Now()
	err := run(ctx, brokers)
	var topics *consumer.TopicError
	require.ErrorAs(t, err, &topics)
	require.ErrorContains(t, err, "--create --topic payments")
	require.Less(t, time.Since(began), 10*time.Second)
}

// openKafka starts a Kafka in the process with these topics.
func openKafka(t *testing.T, topics ...string) (client *kgo.Client, brokers []string) {
	t.Helper()
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(3, topics...))
	require.NoError(t, err)
	t.Cleanup(cluster.Close)
	client, err = kgo.NewClient(kgo.SeedBrokers(cluster.ListenAddrs()...))
	require.NoError(t, err)
	t.Cleanup(client.Close)
	return client, cluster.ListenAddrs()
}

func produce(t *testing.T, client *kgo.Client, key string) {
	t.Helper()
	for _, v := range []string{created, paid} {
		r := &kgo.Record{Topic: "payments", Key: []byte(key), Value: []byte(v)}
		require.NoError(t, client.ProduceSync(t.Context(), r).FirstErr())
	}
}

// waitForCommits waits until a group has committed every record of a topic.
func waitForCommits(t *testing.T, admin *kadm.Client, group, topic string) {
	t.Helper()
	require.Eventually(t, func() bool {
		ok, err := kafkagroup.Committed(t.Context(), admin, group, topic)
		return err == nil && ok // an error: the group does not exist yet
	}, 30*time.Second, 20*time.Millisecond)
}

func balance(t *testing.T, file string) (cents int) {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+file+"?_pragma=busy_timeout(2000)")
	require.NoError(t, err)
	defer db.Close()
	row := db.QueryRowContext(t.Context(), "SELECT cents FROM balances WHERE account = 'ann'")
	require.NoError(t, row.Scan(&cents))
	return cents
}
