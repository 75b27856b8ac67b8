package main

import (
	"context"
	"fmt"
	"sync"
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
	created = `{"event_id":"1","type":"order.created","email":"a@example.com"}`
	paid    = `{"event_id":"2","type":"payment.completed","payment_id":"p1","order_id":7}`
)

// The program of the README knows after a restart what it has handled. Kafka is in the process.
func TestQuickstartRestarted_Idempotent(t *testing.T) {
	t.Chdir(t.TempDir())
	shop, err := openShop(t.Context())
	require.NoError(t, err)
	defer shop.Close()
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(3, "payments", "payments.orders.dlq"))
	require.NoError(t, err)
	defer cluster.Close()
	client, err := kgo.NewClient(kgo.SeedBrokers(cluster.ListenAddrs()...))
	require.NoError(t, err)
	defer client.Close()
	admin := kadm.NewClient(client)

	mail := &mailbox{}
	for start := range 2 {
		for i := range 3 { // under other keys, and so in other partitions
			for _, v := range []string{created, paid} {
				r := &kgo.Record{Topic: "payments", Key: fmt.Append(nil, start, i), Value: []byte(v)}
				require.NoError(t, client.ProduceSync(t.Context(), r).FirstErr())
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- run(ctx, cluster.ListenAddrs(), mail) }()
		require.Eventually(t, func() bool {
			ok, err := kafkagroup.Committed(ctx, admin, "orders", "payments")
			return err == nil && ok // an error: the group does not exist yet
		}, 30*time.Second, 20*time.Millisecond)
		cancel()
		require.NoError(t, <-done)
		require.Equal(t, 1, mail.count(), "mails after start %d", start)
	}
	var status string
	require.NoError(t, shop.QueryRowContext(t.Context(), "SELECT status FROM orders").Scan(&status))
	require.Equal(t, "paid", status)
	ends, err := admin.ListEndOffsets(t.Context(), "payments.orders.dlq")
	require.NoError(t, err)
	ends.Each(func(o kadm.ListedOffset) { require.Zero(t, o.Offset, "dead letters") })
}

// Without its dead-letter topic the program ends within seconds, with the command that mends it.
func TestQuickstartNotSetUp(t *testing.T) {
	t.Chdir(t.TempDir())
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(3, "payments"))
	require.NoError(t, err)
	defer cluster.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	began := time.Now()
	err = run(ctx, cluster.ListenAddrs(), &mailbox{})
	var topics *consumer.TopicError
	require.ErrorAs(t, err, &topics)
	require.ErrorContains(t, err, "--create --topic payments.orders.dlq ")
	require.Less(t, time.Since(began), 10*time.Second)
}

type mailbox struct {
	mu sync.Mutex
	n  int
}

func (m *mailbox) Send(context.Context, string, string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.n++
	return nil
}

func (m *mailbox) count() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.n
}
