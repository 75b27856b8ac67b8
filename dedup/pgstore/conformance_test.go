package pgstore_test

import (
	"context"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/dedup/pgstore"
	"github.com/idem-go/idem/dedup/storetest"
	"github.com/idem-go/idem/internal/testenv"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
)

// modes are the ways in which statements may travel: prepared and kept, which is pgx's default, and
// the modes for poolers (P-17).
var modes = map[string]pgx.QueryExecMode{
	"prepared": pgx.QueryExecModeCacheStatement,
	"exec":     pgx.QueryExecModeExec,
	"simple":   pgx.QueryExecModeSimpleProtocol,
}

// layouts are the options that each layout takes.
var layouts = map[string][]pgstore.Option{"": nil, "/compact": {pgstore.Compact()}}

// covered leaves out the combinations that rarely find a new fault, unless IDEM_SOAK is set.
// Numbers travel in binary or as text, and "exec" has both. The statements of the layouts differ in
// their keys.
func covered(mode string, opts []pgstore.Option) bool {
	return os.Getenv("IDEM_SOAK") != "" || mode == "prepared" || mode == "simple" && opts == nil
}

// configure changes the configuration of a pool of a test.
type configure func(*pgxpool.Config)

func inMode(m pgx.QueryExecMode) configure {
	return func(c *pgxpool.Config) { c.ConnConfig.DefaultQueryExecMode = m }
}

func maxConns(n int32) configure { return func(c *pgxpool.Config) { c.MaxConns = n } }

func param(name, value string) configure {
	return func(c *pgxpool.Config) { c.ConnConfig.RuntimeParams[name] = value }
}

// newPool returns a pool of the database at url.
func newPool(t testing.TB, url string, with ...configure) *pgxpool.Pool {
	t.Helper()
	cfg, err := pgxpool.ParseConfig(url)
	require.NoError(t, err)
	cfg.MaxConns = 16
	pgstore.Configure(cfg)
	for _, w := range with {
		w(cfg)
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	return pool
}

func TestMain(m *testing.M) { os.Exit(testenv.DropTables(m.Run())) }

// newTables returns the URL of a schema with the tables and the one that the tests' effects go to.
// Tests that have ended may have used the tables.
func newTables(t testing.TB, opts ...pgstore.Option) string {
	t.Helper()
	return testenv.PostgresTables(t, pgstore.Schema(opts...), func(url string) error {
		return createTables(t.Context(), url, opts...)
	})
}

// unusedTables are for tests of sizes, statistics and plans.
func unusedTables(t testing.TB, opts ...pgstore.Option) string {
	t.Helper()
	url := testenv.Postgres(t)
	require.NoError(t, createTables(t.Context(), url, opts...))
	return url
}

func createTables(ctx context.Context, url string, opts ...pgstore.Option) error {
	pool, err := pgxpool.New(ctx, url)
	if err != nil {
		return err
	}
	defer pool.Close()
	if err := pgstore.Migrate(ctx, pool, opts...); err != nil {
		return err
	}
	_, err = pool.Exec(ctx, "CREATE TABLE effects (name text NOT NULL)")
	return err
}

func newStore(t testing.TB, with ...configure) (*pgstore.Store, *pgxpool.Pool) {
	t.Helper()
	pool := newPool(t, newTables(t), with...)
	return pgstore.New(pool), pool
}

func newCompactStore(t testing.TB, with ...configure) (*pgstore.Store, *pgxpool.Pool) {
	t.Helper()
	pool := newPool(t, newTables(t, pgstore.Compact()), with...)
	return pgstore.New(pool, pgstore.Compact()), pool
}

func downStore(t testing.TB) dedup.Store {
	t.Helper()
	return pgstore.New(newPool(t, "postgres://nobody@"+testenv.FreeAddr(t)+"/nothing?sslmode=disable"))
}

func setHorizon(t testing.TB, pool *pgxpool.Pool, scope string, before time.Time) {
	t.Helper()
	_, err := pool.Exec(t.Context(), `INSERT INTO idem_horizons (scope, before) VALUES ($1, $2)
		ON CONFLICT (scope) DO UPDATE SET before = excluded.before`, scope, before)
	require.NoError(t, err)
}

// ofLayouts runs a kit for each mode and layout that is covered.
func ofLayouts(t *testing.T, run func(t *testing.T, h storetest.Harness)) {
	for name, mode := range modes {
		for layout, opts := range layouts {
			if !covered(name, opts) {
				continue
			}
			t.Run(name+layout, func(t *testing.T) {
				t.Parallel()
				var urls sync.Map // of the stores
				var missing []storetest.Ability
				if layout != "" { // the kit lists by IDs of which this layout has hashes: see TestListCompact
					missing = append(missing, storetest.Lists)
				}
				run(t, storetest.Harness{
					Missing: missing,
					New: func(t testing.TB) dedup.Store {
						url := newTables(t, opts...)
						s := pgstore.New(newPool(t, url, inMode(mode)), opts...)
						urls.Store(s, url)
						return s
					},
					Peer: func(t testing.TB, s dedup.Store) dedup.Store {
						url, _ := urls.Load(s)
						return pgstore.New(newPool(t, url.(string), inMode(mode)), opts...)
					},
					Down: downStore,
					Horizon: func(t testing.TB, s dedup.Store, scope string, before time.Time) {
						url, _ := urls.Load(s)
						setHorizon(t, newPool(t, url.(string)), scope, before)
					},
				})
			})
		}
	}
}

func TestConformance(t *testing.T) { ofLayouts(t, storetest.Run) }

func TestOperatorConformance(t *testing.T) { ofLayouts(t, storetest.RunOperator) }

func TestDeferrerConformance_Rule4(t *testing.T) {
	ofLayouts(t, func(t *testing.T, h storetest.Harness) {
		if len(h.Missing) > 0 && os.Getenv("IDEM_SOAK") == "" {
			t.Skip("the tables of deferred events are the same in the compact layout")
		}
		storetest.RunDeferrer(t, h)
	})
}

func addEffect(ctx context.Context, tx pgx.Tx, name string) error {
	_, err := tx.Exec(ctx, "INSERT INTO effects VALUES ($1)", name)
	return err
}

func countEffects(t testing.TB, pool *pgxpool.Pool, name string) (n int) {
	t.Helper()
	require.NoError(t, pool.QueryRow(context.WithoutCancel(t.Context()),
		"SELECT count(*) FROM effects WHERE name = $1", name).Scan(&n))
	return n
}

func TestTxConformance(t *testing.T) {
	for name, mode := range modes {
		for layout, opts := range layouts {
			if !covered(name, opts) {
				continue
			}
			t.Run(name+layout, func(t *testing.T) {
				t.Parallel()
				var pools sync.Map // of the stores
				storetest.RunTx(t, storetest.TxHarness[pgx.Tx]{
					New: func(t testing.TB) dedup.TxStore[pgx.Tx] {
						pool := newPool(t, newTables(t, opts...), inMode(mode))
						s := pgstore.New(pool, opts...)
						pools.Store(s, pool)
						return s
					},
					Exec: addEffect,
					Count: func(t testing.TB, s dedup.TxStore[pgx.Tx], name string) int {
						pool, _ := pools.Load(s)
						return countEffects(t, pool.(*pgxpool.Pool), name)
					},
					Raw: func(ctx context.Context, tx pgx.Tx, sql string) error {
						_, err := tx.Exec(ctx, sql)
						return err
					},
					Slow: "SELECT pg_sleep(60)",
					Horizon: func(t testing.TB, s dedup.Store, scope string, before time.Time) {
						pool, _ := pools.Load(s)
						setHorizon(t, pool.(*pgxpool.Pool), scope, before)
					},
				})
			})
		}
	}
}

func BenchmarkConformance(b *testing.B) {
	storetest.Bench(b, func(t testing.TB) dedup.Store {
		s, _ := newStore(t)
		return s
	})
}
