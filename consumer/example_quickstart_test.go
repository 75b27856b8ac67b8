package consumer_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/consumer"
	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/dedup/pgstore"
	"github.com/idem-go/idem/internal/testenv"
)

type OrderCreated struct {
	Email string `json:"email"`
}

type PaymentCompleted struct {
	PaymentID string `json:"payment_id"`
	OrderID   int64  `json:"order_id"`
}

type mailer interface {
	Send(ctx context.Context, to, idempotencyKey string) error
}

// run is the shop of docs/overview.md, with a store in Postgres.
func run(ctx context.Context, brokers []string, url string, mail mailer) error {
	store, err := pgstore.Open(ctx, url) // or redisstore, dynamostore; memstore for tests
	if err != nil {
		return err
	}
	defer store.Close()
	router := idem.NewRouter()
	idem.On(router, "order.created", func(ctx context.Context, e idem.Event[OrderCreated]) error {
		return mail.Send(ctx, e.Data.Email, e.IdempotencyKey())
	})
	idem.OnTx(router, "payment.completed", func(ctx context.Context, tx pgx.Tx, e idem.Event[PaymentCompleted]) error {
		tag, err := tx.Exec(ctx, `UPDATE orders SET status = 'paid' WHERE id = $1 AND status = 'pending'`, e.Data.OrderID)
		if err == nil && tag.RowsAffected() == 0 {
			err = whyNotPending(ctx, tx, e.Data) // paid by another payment: Permanent; not there yet: try again
		}
		return err
	})
	c, err := consumer.New(consumer.Config{Brokers: brokers, Group: "orders", Topics: []string{"payments"}, Store: store}, router)
	if err != nil {
		return err
	}
	return c.Run(ctx) // blocks; drains and returns nil when ctx ends
}

func whyNotPending(ctx context.Context, tx pgx.Tx, p PaymentCompleted) error {
	var status string
	err := tx.QueryRow(ctx, `SELECT status FROM orders WHERE id = $1`, p.OrderID).Scan(&status)
	if errors.Is(err, pgx.ErrNoRows) {
		return fmt.Errorf("order %d is not there yet", p.OrderID)
	}
	if err == nil {
		err = idem.Permanent(fmt.Errorf("order %d is %s already", p.OrderID, status))
	}
	return err
}

// The shop of docs/overview.md, on a Kafka in the process and a real Postgres.
func TestQuickstart_Idempotent(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	url := testenv.Postgres(t)
	pool, err := pgxpool.New(ctx, url)
	require.NoError(t, err)
	defer pool.Close()
	require.NoError(t, pgstore.Migrate(ctx, pool))
	_, err = pool.Exec(ctx, `CREATE TABLE orders (id bigint PRIMARY KEY, status text NOT NULL, paid int NOT NULL DEFAULT 0);
		INSERT INTO orders VALUES (7, 'pending')`)
	require.NoError(t, err)
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(3, "payments", "payments.orders.dlq"))
	require.NoError(t, err)
	defer cluster.Close()
	brokers := cluster.ListenAddrs()
	produce(t, brokers, 3, `{"event_id":"1","type":"order.created","email":"a@example.com"}`,
		`{"event_id":"2","type":"payment.completed","payment_id":"p1","order_id":7}`)

	mail := &mailbox{}
	done := make(chan error, 1)
	go func() { done <- run(ctx, brokers, url, mail) }()
	require.Eventually(t, func() bool {
		var paid bool
		require.NoError(t, pool.QueryRow(ctx, `SELECT status = 'paid' FROM orders`).Scan(&paid))
		return paid && mail.count() == 1
	}, 30*time.Second, 20*time.Millisecond)
	cancel()
	require.NoError(t, <-done)
	require.Equal(t, 1, mail.count())
}

// The program before its tables are made, and then before its dead-letter topic is: it ends within
// seconds both times, with the command that mends it.
func TestQuickstart_NotSetUp(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	url := testenv.Postgres(t)
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(3, "payments"))
	require.NoError(t, err)
	defer cluster.Close()
	began := time.Now()
	err = run(ctx, cluster.ListenAddrs(), url, &mailbox{})
	var setup *dedup.SetupError
	require.ErrorAs(t, err, &setup)
	require.ErrorContains(t, err, "run `IDEM_STORE=postgres://")
	require.Less(t, time.Since(began), 10*time.Second)

	pool, err := pgxpool.New(ctx, url)
	require.NoError(t, err)
	defer pool.Close()
	require.NoError(t, pgstore.Migrate(ctx, pool))
	began = time.Now()
	err = run(ctx, cluster.ListenAddrs(), url, &mailbox{})
	var topics *consumer.TopicError
	require.ErrorAs(t, err, &topics)
	require.ErrorContains(t, err, "kafka-topics --bootstrap-server "+cluster.ListenAddrs()[0]+" --create --topic payments.orders.dlq ")
	require.Less(t, time.Since(began), 10*time.Second)
}

type mailbox struct {
	mu   sync.Mutex
	sent map[string]int
}

func (m *mailbox) Send(_ context.Context, _, key string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.sent == nil {
		m.sent = map[string]int{}
	}
	m.sent[key]++
	return nil
}

func (m *mailbox) count() (n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, c := range m.sent {
		n += c
	}
	return n
}

func produce(t *testing.T, brokers []string, copies int, values ...string) {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(brokers...))
	require.NoError(t, err)
	defer client.Close()
	for i := range copies {
		for _, v := range values {
			r := &kgo.Record{Topic: "payments", Key: fmt.Append(nil, i), Value: []byte(v)}
			require.NoError(t, client.ProduceSync(t.Context(), r).FirstErr())
		}
	}
}
