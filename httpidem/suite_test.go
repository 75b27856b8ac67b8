package httpidem_test

import (
	"context"
	"os"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/dedup/memstore"
	"github.com/idem-go/idem/dedup/pgstore"
	"github.com/idem-go/idem/dedup/redisstore"
	"github.com/idem-go/idem/httpidem/httpidemtest"
	"github.com/idem-go/idem/internal/testenv"
)

// soak returns the size for CI, or that for a long run (IDEM_SOAK).
func soak(short, long int) int {
	if os.Getenv("IDEM_SOAK") != "" {
		return long
	}
	return short
}

// stores creates stores on one server, and second clients for them.
type stores struct {
	places sync.Map // by store: the argument of open
	place  func(t testing.TB) string
	open   func(t testing.TB, place string) dedup.Store
}

func (l *stores) new(t testing.TB) dedup.Store { return l.at(t, l.place(t)) }

func (l *stores) at(t testing.TB, place string) dedup.Store {
	s := l.open(t, place)
	l.places.Store(s, place)
	return s
}

func (l *stores) of(s dedup.Store) string {
	place, _ := l.places.Load(s)
	return place.(string)
}

func (l *stores) harness() httpidemtest.Harness {
	h := sized(httpidemtest.Harness{NewStore: l.new})
	h.Peer = func(t testing.TB, s dedup.Store) dedup.Store { return l.at(t, l.of(s)) }
	return h
}

// sized returns h with the size of this run.
func sized(h httpidemtest.Harness) httpidemtest.Harness {
	h.HangUps = soak(10, 1000)
	h.Keys = soak(60, 500)
	if testing.Short() {
		h.Callers, h.Keys = 50, 50
	}
	return h
}

func redisStores() *stores {
	return &stores{
		place: func(t testing.TB) string {
			_, prefix := testenv.Redis(t)
			return prefix
		},
		open: func(t testing.TB, prefix string) dedup.Store {
			client := redis.NewClient(testenv.RedisOptions(t))
			t.Cleanup(func() { _ = client.Close() })
			return redisstore.New(client, redisstore.Prefix(prefix))
		},
	}
}

func postgresStores() *stores {
	return &stores{
		place: newDatabase,
		open: func(t testing.TB, url string) dedup.Store {
			return pgstore.New(newPool(t, url, 16))
		},
	}
}

func TestMain(m *testing.M) { os.Exit(testenv.DropTables(m.Run())) }

// newDatabase returns the URL of a schema with the tables of the store and that of the effects.
func newDatabase(t testing.TB) string {
	t.Helper()
	return testenv.PostgresTables(t, "pgstore", func(url string) error {
		pool, err := pgxpool.New(t.Context(), url)
		if err != nil {
			return err
		}
		defer pool.Close()
		if err := pgstore.Migrate(t.Context(), pool); err != nil {
			return err
		}
		_, err = pool.Exec(t.Context(), "CREATE TABLE effects (id text NOT NULL)")
		return err
	})
}

func newPool(t testing.TB, url string, conns int32, change ...func(*pgxpool.Config)) *pgxpool.Pool {
	t.Helper()
	cfg, err := pgxpool.ParseConfig(url)
	require.NoError(t, err)
	cfg.MaxConns = conns
	pgstore.Configure(cfg)
	for _, c := range change {
		c(cfg)
	}
	pool, err := pgxpool.NewWithConfig(context.WithoutCancel(t.Context()), cfg)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	return pool
}

func addEffect(ctx context.Context, tx pgx.Tx, id string) error {
	_, err := tx.Exec(ctx, "INSERT INTO effects VALUES ($1)", id)
	return err
}

func countEffects(t testing.TB, pool *pgxpool.Pool, id string) (n int) {
	t.Helper()
	require.NoError(t, pool.QueryRow(context.WithoutCancel(t.Context()),
		"SELECT count(*) FROM effects WHERE id = $1", id).Scan(&n))
	return n
}

func TestSuiteMemory(t *testing.T) {
	t.Parallel()
	httpidemtest.Run(t, sized(httpidemtest.Harness{
		NewStore: func(testing.TB) dedup.Store { return memstore.New() },
	}))
}

func TestSuiteRedis(t *testing.T) {
	t.Parallel()
	httpidemtest.Run(t, redisStores().harness())
}

func TestSuitePostgres(t *testing.T) {
	t.Parallel()
	httpidemtest.Run(t, postgresStores().harness())
}

func TestSuitePostgresTx(t *testing.T) {
	t.Parallel()
	var pools sync.Map // of the tests, by store
	l := postgresStores()
	httpidemtest.RunTx(t, httpidemtest.TxHarness[pgx.Tx]{
		Harness: l.harness(), Effect: addEffect,
		Effects: func(t testing.TB, s dedup.Store, id string) int {
			pool, ok := pools.Load(s)
			if !ok {
				pool = newPool(t, l.of(s), 2)
				pools.Store(s, pool)
			}
			return countEffects(t, pool.(*pgxpool.Pool), id)
		},
	})
}
