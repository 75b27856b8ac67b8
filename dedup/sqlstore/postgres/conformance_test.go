package postgres_test

import (
	"context"
	"database/sql"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/dedup/pgstore"
	"github.com/idem-go/idem/dedup/sqlstore"
	"github.com/idem-go/idem/dedup/sqlstore/postgres"
	"github.com/idem-go/idem/dedup/storetest"
	"github.com/idem-go/idem/internal/testenv"
	"github.com/jackc/pgx/v5/pgxpool"
	_ "github.com/jackc/pgx/v5/stdlib"
	_ "github.com/lib/pq"
	"github.com/stretchr/testify/require"
)

// drivers are the names under which they are registered.
var drivers = map[string]string{"pgx": "pgx", "pq": "postgres"}

// site is where the tables of a store are.
type site struct {
	url string
	db  *sql.DB
}

var sites sync.Map // by store

func siteOf(s dedup.Store) site {
	v, _ := sites.Load(s)
	return v.(site)
}

func TestMain(m *testing.M) { os.Exit(testenv.DropTables(m.Run())) }

// newTables returns the URL of a schema with the tables and the one that the tests' effects go to.
// Tests that have ended may have used the tables.
func newTables(t testing.TB) string {
	t.Helper()
	return testenv.PostgresTables(t, "pgstore", func(url string) error {
		return createTables(t.Context(), url)
	})
}

// unusedTables are for tests of plans.
func unusedTables(t testing.TB) string {
	t.Helper()
	url := testenv.Postgres(t)
	require.NoError(t, createTables(t.Context(), url))
	return url
}

func createTables(ctx context.Context, url string) error {
	pool, err := pgxpool.New(ctx, url)
	if err != nil {
		return err
	}
	defer pool.Close()
	if err := pgstore.Migrate(ctx, pool); err != nil {
		return err
	}
	_, err = pool.Exec(ctx, "CREATE TABLE effects (name text NOT NULL)")
	return err
}

func open(t testing.TB, driver, url string) *sqlstore.Store {
	t.Helper()
	db, err := sql.Open(driver, url+"&"+postgres.Parameters)
	require.NoError(t, err)
	db.SetMaxOpenConns(8)
	db.SetMaxIdleConns(8)
	t.Cleanup(func() { _ = db.Close() })
	s := postgres.New(db)
	sites.Store(s, site{url, db})
	return s
}

func setHorizon(t testing.TB, s dedup.Store, scope string, before time.Time) {
	t.Helper()
	_, err := siteOf(s).db.ExecContext(t.Context(), `INSERT INTO idem_horizons (scope, before) VALUES ($1, $2)
		ON CONFLICT (scope) DO UPDATE SET before = excluded.before`, scope, before)
	require.NoError(t, err)
}

func harness(driver string) storetest.Harness {
	return storetest.Harness{
		New: func(t testing.TB) dedup.Store { return open(t, driver, newTables(t)) },
		Peer: func(t testing.TB, s dedup.Store) dedup.Store {
			return open(t, driver, siteOf(s).url)
		},
		Down: func(t testing.TB) dedup.Store {
			return open(t, driver, "postgres://nobody@"+testenv.FreeAddr(t)+"/nothing?sslmode=disable")
		},
		Horizon: setHorizon,
	}
}

func TestConformance(t *testing.T) {
	for name, driver := range drivers {
		t.Run(name, func(t *testing.T) { storetest.Run(t, harness(driver)) })
	}
}

func TestOperatorConformance(t *testing.T) {
	for name, driver := range drivers {
		t.Run(name, func(t *testing.T) { storetest.RunOperator(t, harness(driver)) })
	}
}

func TestDeferrerConformance_Rule4(t *testing.T) {
	for name, driver := range drivers {
		t.Run(name, func(t *testing.T) { storetest.RunDeferrer(t, harness(driver)) })
	}
}

// rule 4: one package defers and removes, and the other one looks and takes its turns in between.
func TestDefersInTheTablesOfPgstore_Rule4(t *testing.T) {
	for name, sqlFirst := range map[string]bool{"sqlstore": true, "pgstore": false} {
		t.Run(name, func(t *testing.T) { storetest.RunDeferrer(t, mixed(t, sqlFirst)) })
	}
}

// A group may run on both packages at once. Each claims the events that the other has released, and
// knows the events that the other has done.
func TestSharesTheTablesOfPgstore(t *testing.T) {
	storetest.Run(t, mixed(t, true))
}

func TestSharesTheTablesOfPgstore_Reverse(t *testing.T) {
	storetest.Run(t, mixed(t, false))
}

// mixed is the kit with one store of each package: one is the peer of the other.
func mixed(t *testing.T, sqlFirst bool) storetest.Harness {
	h := harness("pgx")
	if sqlFirst {
		h.Peer = func(t testing.TB, s dedup.Store) dedup.Store { return openPgstore(t, siteOf(s).url) }
		return h
	}
	h.New = func(t testing.TB) dedup.Store {
		url := newTables(t)
		s := openPgstore(t, url)
		sites.Store(s, site{url, siteOf(open(t, "pgx", url)).db})
		return s
	}
	return h
}

func openPgstore(t testing.TB, url string) *pgstore.Store {
	t.Helper()
	s, err := pgstore.Open(t.Context(), url)
	require.NoError(t, err)
	t.Cleanup(s.Close)
	return s
}

func addEffect(ctx context.Context, tx *sql.Tx, name string) error {
	_, err := tx.ExecContext(ctx, "INSERT INTO effects VALUES ($1)", name)
	return err
}

func countEffects(t testing.TB, s dedup.TxStore[*sql.Tx], name string) (n int) {
	t.Helper()
	require.NoError(t, siteOf(s).db.QueryRowContext(context.WithoutCancel(t.Context()),
		"SELECT count(*) FROM effects WHERE name = $1", name).Scan(&n))
	return n
}

func TestTxConformance(t *testing.T) {
	for name, driver := range drivers {
		t.Run(name, func(t *testing.T) {
			storetest.RunTx(t, storetest.TxHarness[*sql.Tx]{
				New:  func(t testing.TB) dedup.TxStore[*sql.Tx] { return open(t, driver, newTables(t)) },
				Exec: addEffect, Count: countEffects,
				Raw: func(ctx context.Context, tx *sql.Tx, text string) error {
					_, err := tx.ExecContext(ctx, text)
					return err
				},
				Slow: "SELECT pg_sleep(60)", Horizon: setHorizon,
				Missing: []storetest.Ability{storetest.TxCheck,
					storetest.Savepoints, storetest.TxKeep, storetest.TxGoesOn},
			})
		})
	}
}
