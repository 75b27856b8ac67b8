package consumer_test

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/consumer"
	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/dedup/pgstore"
	"github.com/idem-go/idem/internal/testenv"
)

// written keeps the lines of a log.
type written struct {
	mu   sync.Mutex
	text strings.Builder
}

func (w *written) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.text.Write(p)
}

func (w *written) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.text.String()
}

// Tables are dropped under a consumer. Its events wait, and the log names the command. When the
// tables are there again the events are handled. No event is lost or becomes a dead letter.
func TestTablesDropped(t *testing.T) {
	t.Parallel()
	for name, option := range map[string]func(*idem.Router, func(string)){
		"On": func(r *idem.Router, note func(string)) {
			idem.On(r, "order.created", func(_ context.Context, e idem.Event[OrderCreated]) error { note(e.ID); return nil })
		},
		"OnTx": func(r *idem.Router, note func(string)) {
			idem.OnTx(r, "order.created", func(_ context.Context, _ pgx.Tx, e idem.Event[OrderCreated]) error { note(e.ID); return nil })
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := testenv.Postgres(t)
			pool, err := pgxpool.New(t.Context(), url)
			require.NoError(t, err)
			defer pool.Close()
			require.NoError(t, pgstore.Migrate(t.Context(), pool))
			cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "payments", "payments.orders.dlq"))
			require.NoError(t, err)
			defer cluster.Close()

			said, runs, store := &written{}, &mailbox{}, pgstore.New(pool)
			router := idem.NewRouter()
			option(router, func(id string) { _ = runs.Send(t.Context(), "", id) })
			c, err := consumer.New(consumer.Config{
				Brokers: cluster.ListenAddrs(), Group: "orders", Topics: []string{"payments"}, Store: store,
				Logger: slog.New(slog.NewTextHandler(said, nil)), Grace: time.Second,
			}, router)
			require.NoError(t, err)
			ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
			ended := make(chan error, 1)
			go func() { ended <- c.Run(ctx) }()
			defer cancel()
			produce(t, cluster.ListenAddrs(), 1, `{"event_id":"1","type":"order.created"}`)
			// Its handler has ended, and its end is recorded: without the record it would run
			// again.
			require.Eventually(t, func() bool {
				records, err := store.Find(t.Context(), "orders", "1")
				return err == nil && len(records) == 1 && records[0].State == dedup.Finished
			}, 30*time.Second, time.Millisecond, "%s", said)
			require.Equal(t, 1, runs.count())

			_, err = pool.Exec(t.Context(), "DROP SCHEMA "+schemaOf(t, pool)+" CASCADE; CREATE SCHEMA "+schemaOf(t, pool))
			require.NoError(t, err)
			produce(t, cluster.ListenAddrs(), 1, `{"event_id":"2","type":"order.created"}`)
			require.Eventually(t, func() bool { return strings.Contains(said.String(), "unavailable, pausing") }, 30*time.Second, 20*time.Millisecond)
			require.Contains(t, said.String(), "tables of the store are missing: run `IDEM_STORE=postgres://")
			require.Equal(t, 1, runs.count())

			require.NoError(t, pgstore.Migrate(t.Context(), pool))
			require.Eventually(t, func() bool { return runs.count() == 2 }, 30*time.Second, 20*time.Millisecond, "%s", said)
			cancel()
			require.NoError(t, <-ended)
			require.NotContains(t, said.String(), "event dead-lettered")
		})
	}
}

func schemaOf(t *testing.T, pool *pgxpool.Pool) (name string) {
	t.Helper()
	require.NoError(t, pool.QueryRow(t.Context(), "SELECT current_schema()").Scan(&name))
	return name
}
