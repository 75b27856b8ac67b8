package pgstore_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/dedup/pgstore"
	"github.com/idem-go/idem/internal/testenv"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
)

// mends requires an error of the set-up, and returns its fix.
func mends(t *testing.T, err error, problem string) string {
	t.Helper()
	var setup *dedup.SetupError
	require.ErrorAs(t, err, &setup)
	require.ErrorIs(t, err, dedup.ErrUnavailable)
	require.Contains(t, setup.Problem, problem)
	require.Contains(t, err.Error(), setup.Fix)
	return setup.Fix
}

// Tables that are missing: Check and every verb name the command that makes them, in the database and schema of the store.
func TestSetupTables(t *testing.T) {
	t.Parallel()
	url := testenv.Postgres(t)
	pool := newPool(t, url)
	cfg := pool.Config().ConnConfig
	schema := cfg.RuntimeParams["search_path"]
	command := fmt.Sprintf("IDEM_STORE=postgres://%s:xxxxx@%s:%d/%s idem migrate up --schema %s`", cfg.User, cfg.Host, cfg.Port, cfg.Database, schema)
	s := pgstore.New(pool)
	_, err := s.Check(t.Context())
	require.Contains(t, mends(t, err, "tables of the store are missing"), command)
	require.NotContains(t, err.Error(), ":"+cfg.Password+"@", "no password")
	_, err = claimOne(t.Context(), s, request("e"), never(t))
	require.Contains(t, mends(t, err, "tables of the store are missing"), command)
	_, err = pgstore.New(pool, pgstore.Compact(), pgstore.InSchema("elsewhere")).Check(t.Context())
	require.Contains(t, mends(t, err, "missing"), " idem migrate up --layout compact --schema elsewhere`")

	require.NoError(t, pgstore.Migrate(t.Context(), pool))
	_, err = s.Check(t.Context())
	require.NoError(t, err)
	_, err = claimOne(t.Context(), s, request("e"), effect(t.Context(), "none"))
	require.Error(t, err, "the table of the effects is missing")
	require.NotErrorIs(t, err, dedup.ErrUnavailable, "that is the handler's own")

	for _, table := range []string{"idem_descriptors", "event_starts", "processed_events"} { // one is missing, after Migrate
		_, err = pool.Exec(t.Context(), "DROP TABLE "+table+" CASCADE")
		require.NoError(t, err)
		_, err = s.Check(t.Context())
		require.Contains(t, mends(t, err, table), command)
	}
	_, err = claimOne(t.Context(), s, request("e"), never(t)) // while running
	require.Contains(t, mends(t, err, "missing"), command)
}

// Rights that are missing: Check names the tables, and its statements mend it. A verb names the statements for all tables.
func TestSetupRights(t *testing.T) {
	t.Parallel()
	for name, opts := range map[string][]pgstore.Option{"readable": nil, "compact": {pgstore.Compact()}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := newTables(t, opts...)
			owner := newPool(t, url)
			role := "idem_test_" + dedup.NewToken().String()
			exec := func(sql string) {
				t.Helper()
				_, err := owner.Exec(t.Context(), sql)
				require.NoError(t, err)
			}
			exec(fmt.Sprintf("CREATE ROLE %s LOGIN PASSWORD 'worker'", role))
			t.Cleanup(func() {
				_, err := owner.Exec(context.WithoutCancel(t.Context()), fmt.Sprintf("DROP OWNED BY %[1]s; DROP ROLE %[1]s", role))
				require.NoError(t, err)
			})
			as := func(password string) *pgstore.Store {
				return pgstore.New(newPool(t, url, func(c *pgxpool.Config) { c.ConnConfig.User, c.ConnConfig.Password = role, password }),
					append(opts, pgstore.InSchema(owner.Config().ConnConfig.RuntimeParams["search_path"]))...)
			}
			_, err := as("wrong").Check(t.Context())
			mends(t, err, role)
			require.ErrorContains(t, err, "refuses to log in")

			s := as("worker")
			_, err = s.Check(t.Context())
			fix := mends(t, err, role)
			exec(strings.TrimPrefix(fix, "run as their owner: "))
			_, err = s.Check(t.Context())
			require.NoError(t, err, "the statements it named were enough")
			var answers [1]dedup.Answer
			claim := func(id string) error {
				return s.Claim(t.Context(), dedup.NewToken(), time.Minute, []dedup.Request{request(id)}, answers[:])
			}
			require.NoError(t, claim("1"))

			exec("REVOKE ALL ON event_starts, idem_horizons FROM " + role)
			_, err = s.Check(t.Context())
			fix = mends(t, err, "event_starts, idem_horizons")
			exec(strings.TrimPrefix(fix, "run as the owner of the tables: "))
			_, err = s.Check(t.Context())
			require.NoError(t, err)

			exec("REVOKE ALL ON ALL TABLES IN SCHEMA " + owner.Config().ConnConfig.RuntimeParams["search_path"] + " FROM " + role)
			err = claim("2") // while running
			exec(strings.TrimPrefix(mends(t, err, role), "run as their owner: "))
			require.NoError(t, claim("2"))
		})
	}
}

// A database that does not exist is not waited for.
func TestSetupDatabase(t *testing.T) {
	t.Parallel()
	pool := newPool(t, testenv.Postgres(t), func(c *pgxpool.Config) { c.ConnConfig.Database = "idem_is_not_there" })
	_, err := pgstore.New(pool).Check(t.Context())
	mends(t, err, `"idem_is_not_there" does not exist`)
}
