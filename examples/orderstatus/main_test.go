package main

import (
	"bytes"
	"database/sql"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/examples/internal/cli"
	"github.com/idem-go/idem/examples/internal/clitest"
	"github.com/idem-go/idem/internal/testenv"
)

func TestUsage(t *testing.T) {
	t.Setenv("POSTGRES_URL", "")
	clitest.Usage(t, run, []clitest.Case{
		{Args: []string{"-h"}, Want: cli.ExitOK, Says: "Usage of orderstatus"},
		{Args: []string{"-nonsense"}, Want: cli.ExitUsage, Says: "not defined"},
		{Args: []string{"-brokers", "b:9092"}, Want: cli.ExitUsage, Says: "-postgres is missing"},
		{Args: []string{"-postgres", "postgres://x"}, Want: cli.ExitUsage, Says: "-brokers is missing"},
		{Args: []string{"-postgres", "postgres://x", "-seed", "-1"}, Want: cli.ExitUsage, Says: "must not be negative"},
		{Args: []string{"-postgres", "postgres://x", "-migrate", "now"}, Want: cli.ExitUsage, Says: `unexpected argument "now"`},
		{Args: []string{"-postgres", "postgres://127.0.0.1:1/none", "-migrate"}, Want: cli.ExitError, Says: "migrate"},
		{Args: []string{"-mysql", "u:hidden@tcp(127.0.0.1:1)/none", "-migrate"}, Want: cli.ExitError, Says: "migrate"},
		{Args: []string{"-mysql", "u:hidden@127.0.0.1", "-migrate"}, Want: cli.ExitError, Says: "-mysql cannot be parsed"},
		{Args: []string{"-mysql", "u@/none", "-postgres", "postgres://x", "-migrate"}, Want: cli.ExitUsage, Says: "not both"},
		{Args: []string{"-mysql", "u@/none", "-brokers", "b:9092", "-emit", "orders"}, Want: cli.ExitUsage, Says: "needs Postgres"},
		{Args: []string{"-postgres", "postgres://x", "-migrate", "-registry", "registry"}, Want: cli.ExitUsage, Says: "registry"},
		{Args: []string{"-postgres", "postgres://x", "-brokers", "b:9092", "-yes"}, Want: cli.ExitUsage, Says: "-replay-from is missing"},
		{Args: []string{"-postgres", "postgres://x", "-migrate", "-replay-from", "24h"}, Want: cli.ExitUsage, Says: "-brokers is missing"},
		{Args: []string{"-postgres", "postgres://x", "-brokers", "b:9092", "-replay-from", "now"}, Want: cli.ExitUsage, Says: "neither a time"},
		{Args: []string{"-postgres", "postgres://x", "-brokers", "b:9092", "-replay-from", "1h", "-replay-to", "2h"}, Want: cli.ExitUsage, Says: "not after"},
		{Args: []string{"-postgres", "postgres://x", "-brokers", "b:9092", "-replay-from", "1h", "-replay-name", "a b"}, Want: cli.ExitError, Says: "a name has 1 to 64"},
	})
}

// Every worker prepares the database at its start: several at once, and repeatedly.
func TestMigrateAndSeed_Idempotent(t *testing.T) {
	for _, c := range []struct {
		flag, driver string
		dsn          func(testing.TB) string
	}{
		{"-postgres", "pgx", testenv.Postgres},
		{"-mysql", "mysql", testenv.MariaDB},
	} {
		t.Run(c.driver, func(t *testing.T) {
			dsn := c.dsn(t)
			var all sync.WaitGroup
			for range 4 {
				all.Go(func() {
					var stderr bytes.Buffer
					if code := run(t.Context(), []string{c.flag, dsn, "-migrate", "-seed", "2100"}, &stderr); code != cli.ExitOK {
						t.Errorf("exit code %d: %s", code, &stderr)
					}
				})
			}
			all.Wait()
			db, err := sql.Open(c.driver, dsn)
			require.NoError(t, err)
			defer db.Close()
			var n, low, high int
			require.NoError(t, db.QueryRowContext(t.Context(), `SELECT count(*), min(id), max(id) FROM orders WHERE status = 'pending'`).Scan(&n, &low, &high))
			require.Equal(t, []int{2100, 1, 2100}, []int{n, low, high})
		})
	}
}

func TestHelp_ShowsNoPassword_G04(t *testing.T) {
	clitest.HelpShowsNoPassword(t, run)
}
