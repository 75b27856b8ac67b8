package drills

import (
	"context"
	"crypto/rand"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/dedup/pgstore"
	"github.com/idem-go/idem/dedup/storetest"
	"github.com/idem-go/idem/internal/testenv"
)

// P-17: pgstore keeps its whole contract through PgBouncer.
func TestConformanceThroughPgBouncer_P17(t *testing.T) {
	needLong(t)
	pgbouncer(t)
	p := startPostgres(t, "fsync=off", "max_connections=300")
	for _, w := range []struct{ pool, mode string }{
		{"session", ""}, {"transaction", "exec"}, {"transaction", "simple_protocol"},
	} {
		t.Run(w.pool+"/"+w.mode, func(t *testing.T) {
			k := &kit{server: p, pooler: startBouncer(t, p, w.pool, startup), mode: w.mode}
			t.Run("transactions", func(t *testing.T) { storetest.RunTx(t, k.transactions()) })
			if w.mode == "simple_protocol" {
				return // statements travel as in exec, only their values do not
			}
			t.Run("claims", func(t *testing.T) { storetest.Run(t, k.harness()) })
			if w.mode == "exec" {
				t.Run("operator", func(t *testing.T) { storetest.RunOperator(t, k.harness()) })
				t.Run("deferrer", func(t *testing.T) { storetest.RunDeferrer(t, k.harness()) })
			}
		})
	}
}

// kit makes stores, each in a database of its own.
type kit struct {
	server    *postgres
	pooler    *bouncer
	mode      string
	databases sync.Map // of the stores
}

func (k *kit) pool(t testing.TB, url string) *pgxpool.Pool {
	t.Helper()
	cfg, err := pgxpool.ParseConfig(url)
	require.NoError(t, err)
	cfg.MaxConns = 8
	pgstore.Configure(cfg)
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	return pool
}

func (k *kit) store(t testing.TB) *pgstore.Store {
	t.Helper()
	database := "kit_" + strings.ToLower(rand.Text()[:12])
	k.server.prepare(t, database)
	s := pgstore.New(k.pool(t, k.pooler.url(database, k.mode)))
	k.databases.Store(s, database)
	return s
}

func (k *kit) database(s any) string {
	v, _ := k.databases.Load(s)
	database, _ := v.(string)
	return database
}

// direct returns a pool of the database of a store, without PgBouncer.
func (k *kit) direct(t testing.TB, s any) *pgxpool.Pool {
	t.Helper()
	return k.pool(t, k.server.url(k.database(s)))
}

func (k *kit) horizon(t testing.TB, s dedup.Store, scope string, before time.Time) {
	t.Helper()
	_, err := k.direct(t, s).Exec(t.Context(), `INSERT INTO idem_horizons (scope, before)
		VALUES ($1, $2) ON CONFLICT (scope) DO UPDATE SET before = excluded.before`, scope, before)
	require.NoError(t, err)
}

func (k *kit) harness() storetest.Harness {
	return storetest.Harness{
		New: func(t testing.TB) dedup.Store { return k.store(t) },
		Peer: func(t testing.TB, s dedup.Store) dedup.Store {
			return pgstore.New(k.pool(t, k.pooler.url(k.database(s), k.mode)))
		},
		Down: func(t testing.TB) dedup.Store {
			return pgstore.New(k.pool(t, "postgres://nobody@"+testenv.FreeAddr(t)+"/nothing?sslmode=disable"))
		},
		Horizon: k.horizon,
	}
}

func (k *kit) transactions() storetest.TxHarness[pgx.Tx] {
	return storetest.TxHarness[pgx.Tx]{
		New: func(t testing.TB) dedup.TxStore[pgx.Tx] { return k.store(t) },
		Exec: func(ctx context.Context, tx pgx.Tx, effect string) error {
			_, err := tx.Exec(ctx, "INSERT INTO effects VALUES ($1)", effect)
			return err
		},
		Count: func(t testing.TB, s dedup.TxStore[pgx.Tx], effect string) (n int) {
			require.NoError(t, k.direct(t, s).QueryRow(context.WithoutCancel(t.Context()),
				"SELECT count(*) FROM effects WHERE id = $1", effect).Scan(&n))
			return n
		},
		Raw: func(ctx context.Context, tx pgx.Tx, sql string) error {
			_, err := tx.Exec(ctx, sql)
			return err
		},
		Slow:    "SELECT pg_sleep(60)",
		Horizon: k.horizon,
	}
}
