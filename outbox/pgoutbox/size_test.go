package pgoutbox_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"net/url"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/internal/testenv"
	"github.com/idem-go/idem/outbox"
	"github.com/idem-go/idem/outbox/pgoutbox"
)

const (
	roundWriters = 4
	roundTxs     = 50 // of each writer
	roundTx      = 10 // rows
	brokerStalls = 1200 * time.Millisecond
	longestTx    = time.Second // wanted: shorter
	relayName    = "relay-of-size"
)

// sizeRounds returns how often the broker stalls: seconds, or minutes with IDEM_SOAK.
func sizeRounds() int {
	if os.Getenv("IDEM_SOAK") != "" {
		return 60
	}
	return 4
}

// stallingBroker takes every message. Its first call after stall takes brokerStalls.
type stallingBroker struct {
	stall   atomic.Bool
	stalled chan struct{} // has an element when a call stands still
}

func (b *stallingBroker) ProduceEach(ctx context.Context, msgs []*idem.Message) []error {
	if b.stall.CompareAndSwap(true, false) {
		b.stalled <- struct{}{}
		select {
		case <-time.After(brokerStalls):
		case <-ctx.Done():
		}
	}
	return make([]error, len(msgs))
}

// newDatabase returns the URL of a database of its own: transactions of other tests would keep its
// vacuum from removing rows.
func newDatabase(t *testing.T) string {
	t.Helper()
	admin := newPool(t, testenv.Postgres(t))
	name := "test_" + strings.ToLower(rand.Text())
	_, err := admin.Exec(t.Context(), "CREATE DATABASE "+name)
	require.NoError(t, err)
	t.Cleanup(func() {
		_, err := admin.Exec(context.Background(), "DROP DATABASE "+name+" WITH (FORCE)")
		assert.NoError(t, err)
	})
	u, err := url.Parse(os.Getenv("POSTGRES_URL"))
	require.NoError(t, err)
	u.Path = name
	return u.String()
}

// The broker stalls while a relay publishes, and rows are added meanwhile. The relay has no
// transaction open for a second or longer. So vacuum removes the sent rows, and the tables do not
// grow from stall to stall.
func TestTablesStaySmall_O11(t *testing.T) {
	for name, keep := range map[string]time.Duration{"sent rows are deleted": 0, "sent rows are kept, and purged": time.Hour} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // they mostly wait
			dsn := newDatabase(t)
			pool := newPool(t, dsn)
			require.NoError(t, pgoutbox.Migrate(t.Context(), pool))
			box := pgoutbox.New(pool)
			broker := &stallingBroker{stalled: make(chan struct{}, 1)}
			relay, err := outbox.NewRelay(outbox.RelayConfig{
				Store:    pgoutbox.New(newPool(t, dsn, param("application_name", relayName))),
				Producer: broker, Keep: keep, Interval: 20 * time.Millisecond,
			})
			require.NoError(t, err)
			ctx, stop := context.WithCancel(t.Context())
			ended, watched := make(chan error, 1), make(chan struct{})
			go func() { ended <- relay.Run(ctx) }()
			var longest time.Duration
			var seen int
			watch := newPool(t, dsn, maxConns(1))
			go func() {
				defer close(watched)
				tick := time.NewTicker(10 * time.Millisecond)
				defer tick.Stop()
				for ctx.Err() == nil {
					<-tick.C
					var open float64
					var sessions int
					err := watch.QueryRow(t.Context(), `SELECT coalesce(extract(epoch FROM max(clock_timestamp() - xact_start)), 0)::float8, count(*)
						FROM pg_stat_activity WHERE application_name = $1`, relayName).Scan(&open, &sessions)
					if !assert.NoError(t, err) {
						return
					}
					longest = max(longest, time.Duration(open*float64(time.Second)))
					seen = max(seen, sessions)
				}
			}()
			defer func() {
				stop()
				require.NoError(t, <-ended)
				<-watched
				require.Positive(t, seen, "the sessions of the relay are not seen")
				require.Less(t, longest, longestTx, "the longest transaction of the relay")
				t.Logf("soak: longest transaction of the relay %s", longest.Round(time.Millisecond))
			}()

			var sizes []int64
			count := func(where string) (n int) {
				t.Helper()
				require.NoError(t, pool.QueryRow(t.Context(), "SELECT count(*) FROM idem_outbox "+where).Scan(&n))
				return n
			}
			for round := range sizeRounds() {
				for part := range 2 { // the first one is fetched, and the second one waits for the broker
					broker.stall.Store(part == 0)
					require.NoError(t, together(roundWriters, func(w int) error {
						for i := range roundTxs / 2 {
							var entries [roundTx]outbox.Entry
							for e := range entries {
								id := fmt.Sprintf("%d.%d.%d.%d.%d", round, part, w, i, e)
								entries[e] = entry(id, id)
								entries[e].Payload = make([]byte, 250)
							}
							err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error { return box.Add(t.Context(), tx, entries[:]...) })
							if err != nil {
								return err
							}
						}
						return nil
					}))
					if part == 0 {
						select {
						case <-broker.stalled:
						case err := <-ended:
							ended <- err
							require.NoError(t, err, "the relay has ended")
						case <-time.After(20 * time.Second):
							require.Fail(t, "nothing is published")
						}
					}
				}
				vacuum(t, dsn) // while the broker stands still
				require.Eventually(t, func() bool { return count("WHERE state = 0") == 0 }, 30*time.Second, 10*time.Millisecond)
				for calls := 0; count("") > 0; calls++ {
					require.Less(t, calls, 100, "purge leaves rows")
					_, err := box.Purge(t.Context(), 0, 1000)
					require.NoError(t, err)
				}
				vacuum(t, dsn)
				var size int64
				require.NoError(t, pool.QueryRow(t.Context(), `SELECT sum(pg_total_relation_size(c.oid))
					FROM pg_class c WHERE c.relkind = 'r' AND c.relname LIKE 'idem_outbox%'`).Scan(&size))
				sizes = append(sizes, size)
			}
			t.Logf("soak: sizes after each stall, in bytes: %d", sizes)
			require.Less(t, sizes[len(sizes)-1], sizes[1]*5/4, "the tables grow from stall to stall: %d", sizes)
		})
	}
}

// vacuum works as autovacuum does, but leaves files as long as they have been.
func vacuum(t *testing.T, dsn string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), dsn)
	require.NoError(t, err)
	for _, table := range []string{"idem_outbox", "idem_outbox_shards", "idem_outbox_relays"} {
		_, err := conn.Exec(t.Context(), "VACUUM (TRUNCATE false) "+table)
		require.NoError(t, err)
	}
	require.NoError(t, conn.Close(t.Context()))
}
