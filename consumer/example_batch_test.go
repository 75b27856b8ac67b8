package consumer_test

import (
	"context"
	"fmt"
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

type Sold struct {
	Item  string `json:"item"`
	Count int    `json:"count"`
}

// runStock has the batch handler of docs/overview.md.
func runStock(ctx context.Context, brokers []string, store dedup.Store) error {
	router := idem.NewRouter()
	idem.OnBatchTx(router, "stock.sold", func(ctx context.Context, tx pgx.Tx, events []idem.Event[Sold]) error {
		items, counts := total(events) // SameKey: an item may come more than once, and must be added up
		_, err := tx.Exec(ctx, `UPDATE stock SET pieces = pieces - s.n FROM unnest($1::text[], $2::int[]) AS s(item, n) WHERE stock.item = s.item`, items, counts)
		return err
	}, idem.SameKey())
	c, err := consumer.New(consumer.Config{Brokers: brokers, Group: "stock", Topics: []string{"sold"}, Store: store, Lanes: 16}, router)
	if err != nil {
		return err
	}
	return c.Run(ctx)
}

// total adds up the sales of each item.
func total(events []idem.Event[Sold]) (items []string, counts []int) {
	at := make(map[string]int)
	for _, e := range events {
		i, ok := at[e.Data.Item]
		if !ok {
			i = len(items)
			at[e.Data.Item] = i
			items, counts = append(items, e.Data.Item), append(counts, 0)
		}
		counts[i] += e.Data.Count
	}
	return items, counts
}

// The batch handler of docs/overview.md: many events of one row in a statement, each twice.
func TestBatchStock_Idempotent(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	url := testenv.Postgres(t)
	store, err := pgstore.Open(ctx, url)
	require.NoError(t, err)
	defer store.Close()
	pool, err := pgxpool.New(ctx, url)
	require.NoError(t, err)
	defer pool.Close()
	require.NoError(t, pgstore.Migrate(ctx, pool))
	_, err = pool.Exec(ctx, `CREATE TABLE stock (item text PRIMARY KEY, pieces int NOT NULL);
		INSERT INTO stock SELECT 'item-' || i, 1000 FROM generate_series(0, 6) i`)
	require.NoError(t, err)
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(3, "sold", "sold.stock.dlq"))
	require.NoError(t, err)
	defer cluster.Close()
	brokers := cluster.ListenAddrs()
	client, err := kgo.NewClient(kgo.SeedBrokers(brokers...))
	require.NoError(t, err)
	defer client.Close()
	const events = 700
	for range 2 {
		for i := range events {
			r := &kgo.Record{Topic: "sold", Key: fmt.Append(nil, i%7), Value: fmt.Appendf(nil, `{"event_id":"%d","type":"stock.sold","item":"item-%d","count":2}`, i, i%7)}
			client.Produce(t.Context(), r, nil)
		}
	}
	require.NoError(t, client.Flush(t.Context()))

	done := make(chan error, 1)
	go func() { done <- runStock(ctx, brokers, store) }()
	require.Eventually(t, func() bool {
		var sold int
		require.NoError(t, pool.QueryRow(ctx, `SELECT sum(1000 - pieces) FROM stock`).Scan(&sold))
		return sold >= 2*events
	}, 30*time.Second, 20*time.Millisecond)
	cancel()
	require.NoError(t, <-done)
	var right bool
	require.NoError(t, pool.QueryRow(t.Context(), `SELECT bool_and(pieces = 800) FROM stock`).Scan(&right))
	require.True(t, right, "each item sold 100 times 2, once")
}
