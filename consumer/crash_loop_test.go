package consumer_test

import (
	"context"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/consumer"
	"github.com/idem-go/idem/dedup/pgstore"
	"github.com/idem-go/idem/internal/testenv"
)

// Variables of a process that dies of an event.
const (
	loopBrokers = "IDEM_TEST_LOOP_BROKERS"
	loopTables  = "IDEM_TEST_LOOP_TABLES"
)

// TestCrashLoop_Rule18: an event that kills its process each time is dead-lettered after three
// starts, and the events behind it are handled.
func TestCrashLoop_Rule18(t *testing.T) {
	if brokers := os.Getenv(loopBrokers); brokers != "" {
		consumeUntilKilled(t, brokers, os.Getenv(loopTables))
		return
	}
	t.Parallel()
	url := testenv.Postgres(t)
	pool, err := pgxpool.New(t.Context(), url)
	require.NoError(t, err)
	defer pool.Close()
	require.NoError(t, pgstore.Migrate(t.Context(), pool))
	_, err = pool.Exec(t.Context(), "CREATE TABLE paid (id text PRIMARY KEY)")
	require.NoError(t, err)
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "payments", "payments.orders.dlq"),
		kfake.GroupMinSessionTimeout(time.Second))
	require.NoError(t, err)
	defer cluster.Close()
	produce(t, cluster.ListenAddrs(), 1, `{"event_id":"a","type":"order.created"}`,
		`{"event_id":"kills","type":"order.created"}`, `{"event_id":"b","type":"order.created"}`)

	killed := 0
	for done := false; !done; {
		require.LessOrEqual(t, killed, 10)
		worker := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$", "-test.timeout=60s")
		worker.Env = append(os.Environ(), loopBrokers+"="+cluster.ListenAddrs()[0], loopTables+"="+url)
		output, err := worker.CombinedOutput()
		status, ok := worker.ProcessState.Sys().(syscall.WaitStatus)
		require.True(t, ok)
		done = err == nil
		if !done {
			require.Equal(t, syscall.SIGKILL, status.Signal(), "%s", output)
			killed++
		}
	}
	require.Equal(t, 3, killed)
	var paid []string
	require.NoError(t, pool.QueryRow(t.Context(), "SELECT array_agg(id ORDER BY id) FROM paid").Scan(&paid))
	require.Equal(t, []string{"a", "b"}, paid)
}

// consumeUntilKilled returns after the event behind the deadly one, with the dead letter written.
func consumeUntilKilled(t *testing.T, brokers, url string) {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), url)
	require.NoError(t, err)
	defer pool.Close()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	router := idem.NewRouter()
	idem.OnTx(router, "order.created", func(ctx context.Context, tx pgx.Tx, e idem.Event[OrderCreated]) error {
		switch e.ID {
		case "kills":
			return syscall.Kill(os.Getpid(), syscall.SIGKILL)
		case "b":
			time.AfterFunc(time.Second, stop)
		}
		_, err := tx.Exec(ctx, "INSERT INTO paid VALUES ($1)", e.ID)
		return err
	})
	said := &written{}
	c, err := consumer.New(consumer.Config{
		Brokers: []string{brokers}, Group: "orders", Topics: []string{"payments"}, InstanceID: "one",
		Store: pgstore.New(pool), Logger: slog.New(slog.NewTextHandler(io.MultiWriter(said, os.Stderr), nil)), Grace: time.Second,
		Sarama: func(sc *sarama.Config) {
			sc.Consumer.Group.Session.Timeout, sc.Consumer.Group.Heartbeat.Interval = 2*time.Second, 200*time.Millisecond
		},
	}, router)
	require.NoError(t, err)
	require.NoError(t, c.Run(ctx))
	require.Contains(t, said.String(), "crash-loop", "the reason of the dead letter")
}
