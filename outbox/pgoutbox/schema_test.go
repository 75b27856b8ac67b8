package pgoutbox_test

import (
	"context"
	"crypto/rand"
	"errors"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/internal/testenv"
	"github.com/idem-go/idem/outbox"
	"github.com/idem-go/idem/outbox/pgoutbox"
)

// Migrate may run several times, at once, and into any schema. It locks no table if the tables are
// up to date.
func TestMigrate(t *testing.T) {
	address := testenv.Postgres(t)
	pool := newPool(t, address)
	require.NoError(t, together(4, func(int) error { return pgoutbox.Migrate(t.Context(), pool) }))
	box := pgoutbox.New(pool)
	warnings, err := box.Check(t.Context())
	require.NoError(t, err)
	require.Empty(t, warnings)
	tx := begin(t, pool)
	_, err = tx.Exec(t.Context(), "LOCK TABLE idem_outbox IN ACCESS EXCLUSIVE MODE NOWAIT")
	require.NoError(t, err)
	require.NoError(t, pgoutbox.Migrate(t.Context(), pool))
	require.NoError(t, tx.Rollback(t.Context()))

	// A schema by name, with any search path.
	var schema string
	require.NoError(t, pool.QueryRow(t.Context(), "SELECT current_schema()").Scan(&schema))
	elsewhere := newPool(t, address, param("search_path", "pg_catalog"))
	box = pgoutbox.New(elsewhere)
	tx = begin(t, elsewhere)
	err = box.Add(t.Context(), tx, entry("A", "1"))
	require.ErrorIs(t, err, dedup.ErrUnavailable)
	require.ErrorContains(t, err, "run `IDEM_OUTBOX=postgres://")
	require.ErrorContains(t, err, ":xxxxx@")
	require.ErrorContains(t, err, " idem migrate up --outbox")
	require.NoError(t, tx.Commit(t.Context()), "the transaction is usable")
	box = pgoutbox.New(elsewhere, pgoutbox.InSchema(schema))
	add(t, elsewhere, box, entry("A", "1"))
	require.Len(t, fetch(t, box), 1)
	for _, err := range []error{
		pgoutbox.Migrate(t.Context(), pool, pgoutbox.InSchema("a;b")),
		pgoutbox.New(pool, pgoutbox.InSchema("A")).Add(t.Context(), tx, entry("A", "1")),
	} {
		require.ErrorContains(t, err, "InSchema")
	}
	_, err = pgoutbox.New(pool, pgoutbox.InSchema("nowhere_at_all")).Hold(t.Context(), "r", time.Second, true)
	require.ErrorContains(t, err, "pgoutbox.Migrate")
	_, err = pgoutbox.New(nil).Backlog(t.Context(), 1)
	require.ErrorContains(t, err, "no pool")
}

// Check finds problems that would lose events or their order.
func TestCheck(t *testing.T) {
	for broken, finds := range map[string]string{
		"ALTER TABLE idem_outbox ALTER seq SET CACHE 20": "CACHE 1",
		"DELETE FROM idem_outbox_shards WHERE shard = 7": "63 of 64",
		"DROP INDEX idem_outbox_waiting":                 "idem_outbox_waiting",
		"UPDATE idem_outbox_schema SET version = 0":      "version 0",
		"DROP TABLE idem_outbox_relays":                  "idem_outbox_relays",
		"INSERT INTO idem_outbox (seq, shard, topic, event_id, event_type) OVERRIDING SYSTEM VALUE VALUES (9, 0, 'a', 'b', 'c')": "setval",
	} {
		t.Run(broken, func(t *testing.T) {
			box, pool := newBox(t)
			_, err := pool.Exec(t.Context(), broken)
			require.NoError(t, err)
			_, err = box.Check(t.Context())
			require.ErrorContains(t, err, finds)
			var setup *dedup.SetupError
			require.True(t, errors.As(err, &setup) || !errors.Is(err, dedup.ErrUnavailable), "an outage: %v", err)
		})
	}
	pool := newPool(t, testenv.Postgres(t), param("synchronous_commit", "off"))
	require.NoError(t, pgoutbox.Migrate(t.Context(), pool))
	warnings, err := pgoutbox.New(pool).Check(t.Context())
	require.NoError(t, err)
	require.Len(t, warnings, 1)
}

// A database that does not answer is no fault of the outbox, and the error tells them apart.
func TestCheck_Unavailable(t *testing.T) {
	box, pool := newBox(t)
	tx, err := pool.Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
	_, err = tx.Exec(t.Context(), "LOCK TABLE idem_outbox_shards IN ACCESS EXCLUSIVE MODE")
	require.NoError(t, err)
	waits := newPool(t, pool.Config().ConnString(), param("lock_timeout", "100"))
	_, err = pgoutbox.New(waits).Check(t.Context())
	require.ErrorIs(t, err, dedup.ErrUnavailable)
	var setup *dedup.SetupError
	require.NotErrorAs(t, err, &setup)
	require.NoError(t, tx.Rollback(t.Context()))
	_, err = box.Check(t.Context())
	require.NoError(t, err)

	away := newPool(t, "postgres://idem:idem@"+testenv.FreeAddr(t)+"/idem")
	_, err = pgoutbox.New(away).Check(t.Context())
	require.ErrorIs(t, err, dedup.ErrUnavailable)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = pgoutbox.New(away).Check(ended)
	require.ErrorIs(t, err, context.Canceled)
	_, err = pgoutbox.New(away, pgoutbox.InSchema("A")).Check(t.Context())
	require.ErrorContains(t, err, "InSchema")
	require.NotErrorIs(t, err, dedup.ErrUnavailable, "a mistake in the program")
	_, err = pgoutbox.New(nil).Check(t.Context())
	require.ErrorContains(t, err, "no pool")
	require.NotErrorIs(t, err, dedup.ErrUnavailable, "a mistake in the program")
}

// The remedies of Check change the outbox that was checked, and no other one on the search path.
func TestCheckNamesItsSchema(t *testing.T) {
	first, pool := newBox(t)
	var schema string
	require.NoError(t, pool.QueryRow(t.Context(), "SELECT current_schema()").Scan(&schema))
	second := pgoutbox.New(pool, pgoutbox.InSchema(schema+"_2"))
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		admin, err := pgx.ConnectConfig(ctx, pool.Config().ConnConfig)
		require.NoError(t, err)
		_, err = admin.Exec(ctx, "DROP SCHEMA "+schema+"_2 CASCADE")
		require.NoError(t, err)
		require.NoError(t, admin.Close(ctx))
	})
	require.NoError(t, pgoutbox.Migrate(t.Context(), pool, pgoutbox.InSchema(schema+"_2")))
	add(t, pool, first, entry("A", "1"))
	last := func() (n int64) {
		require.NoError(t, pool.QueryRow(t.Context(), "SELECT pg_sequence_last_value("+
			"pg_get_serial_sequence('idem_outbox', 'seq')::regclass)").Scan(&n))
		return n
	}
	before := last()
	for broken, remedy := range map[string]string{
		"INSERT INTO " + schema + "_2.idem_outbox (seq, shard, topic, event_id, event_type) " +
			"OVERRIDING SYSTEM VALUE VALUES (9, 0, 'a', 'b', 'c')": "SELECT setval",
		"ALTER TABLE " + schema + "_2.idem_outbox ALTER seq SET CACHE 20": "ALTER TABLE",
	} {
		_, err := pool.Exec(t.Context(), broken)
		require.NoError(t, err)
		_, err = second.Check(t.Context())
		require.ErrorContains(t, err, remedy)
		_, text, _ := strings.Cut(err.Error(), remedy)
		text, _, _ = strings.Cut(remedy+text, ", then")
		_, err = pool.Exec(t.Context(), text)
		require.NoError(t, err)
		_, err = second.Check(t.Context())
		require.NoError(t, err)
	}
	require.Equal(t, before, last())
}

// asRole returns an outbox as a role with just these rights sees it, a function that adds as the
// role, and a function that runs a statement as the owner. In statements, {} is the role and [] the
// schema.
func asRole(t *testing.T, grants ...string) (
	*pgoutbox.Outbox, func(entries ...outbox.Entry) error, func(text string),
) {
	address := testenv.Postgres(t)
	owner := newPool(t, address)
	require.NoError(t, pgoutbox.Migrate(t.Context(), owner))
	role, password := "test_"+strings.ToLower(rand.Text()), rand.Text()
	var schema string
	require.NoError(t, owner.QueryRow(t.Context(), "SELECT current_schema()").Scan(&schema))
	run := func(text string) {
		_, err := owner.Exec(t.Context(), strings.NewReplacer("{}", role, "[]", schema).Replace(text))
		require.NoError(t, err)
	}
	for _, q := range append([]string{"CREATE ROLE {} LOGIN PASSWORD '" + password + "'", "GRANT USAGE ON SCHEMA [] TO {}"}, grants...) {
		run(q)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		admin, err := pgx.Connect(ctx, address)
		require.NoError(t, err)
		_, err = admin.Exec(ctx, "DROP OWNED BY "+role+"; DROP ROLE "+role)
		require.NoError(t, err)
		require.NoError(t, admin.Close(ctx))
	})
	u, err := url.Parse(address)
	require.NoError(t, err)
	u.User = url.UserPassword(role, password)
	pool := newPool(t, u.String())
	box := pgoutbox.New(pool)
	return box, func(entries ...outbox.Entry) error {
		return pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error { return box.Add(t.Context(), tx, entries...) })
	}, run
}

// The rights in the package's documentation are enough, and calls beyond these rights are refused.
func TestRights(t *testing.T) {
	t.Run("writer", func(t *testing.T) {
		box, add, _ := asRole(t, "GRANT INSERT ON idem_outbox TO {}")
		require.NoError(t, add(entry("A", "1"), entry("", "2")))
		warnings, err := box.Check(t.Context())
		require.NoError(t, err)
		require.Len(t, warnings, 1)
		require.Contains(t, warnings[0], "cannot relay")
		_, err = box.Hold(t.Context(), "r", time.Second, true)
		require.ErrorContains(t, err, "42501")
	})
	t.Run("relay", func(t *testing.T) {
		box, add, _ := asRole(t, "GRANT SELECT, UPDATE, DELETE ON idem_outbox TO {}", "GRANT SELECT, UPDATE ON idem_outbox_shards TO {}",
			"GRANT SELECT, INSERT, UPDATE, DELETE ON idem_outbox_relays TO {}", "GRANT SELECT ON idem_outbox_schema TO {}")
		held := hold(t, box, "r")
		require.Empty(t, fetch(t, box))
		_, err := box.Settle(t.Context(), "r", held, outbox.Settlement{Sent: []outbox.RowID{{Seq: 1}}, Blocked: []outbox.RowID{{Seq: 2}}, Parked: map[outbox.RowID]string{{Seq: 3}: ""}})
		require.NoError(t, err)
		_, err = box.Purge(t.Context(), time.Second, 10)
		require.NoError(t, err)
		_, err = box.Backlog(t.Context(), 10)
		require.NoError(t, err)
		require.NoError(t, box.Leave(t.Context(), "r"))
		warnings, err := box.Check(t.Context())
		require.NoError(t, err)
		require.Len(t, warnings, 1)
		require.Contains(t, warnings[0], "cannot add entries: it lacks INSERT on idem_outbox")
		err = add(entry("A", "1"))
		require.ErrorIs(t, err, dedup.ErrUnavailable, "no event is to blame")
		require.ErrorContains(t, err, "GRANT INSERT ON ")
	})
	t.Run("operator", func(t *testing.T) {
		box, _, _ := asRole(t, "GRANT SELECT, UPDATE, DELETE ON idem_outbox TO {}", "GRANT SELECT, UPDATE ON idem_outbox_shards TO {}")
		parked, err := box.Parked(t.Context(), 10)
		require.NoError(t, err)
		require.Empty(t, parked)
		require.ErrorIs(t, box.Retry(t.Context(), outbox.RowID{Seq: 1, EventID: "1"}), pgoutbox.ErrNotParked)
		require.ErrorIs(t, box.Skip(t.Context(), outbox.RowID{Seq: 1, EventID: "1"}), pgoutbox.ErrNotParked)
		_, err = box.Backlog(t.Context(), 10)
		require.NoError(t, err)
	})
}

// The remedy for missing rights has every statement that is needed, those for the schema too.
func TestRights_Remedy(t *testing.T) {
	const revoke = "REVOKE ALL ON SCHEMA [] FROM {}; REVOKE ALL ON ALL TABLES IN SCHEMA [] FROM {}"
	remedy := func(err error) string {
		var setup *dedup.SetupError
		require.ErrorAs(t, err, &setup)
		text, found := strings.CutPrefix(setup.Fix, "run as their owner: ")
		require.True(t, found, setup.Fix)
		return text
	}
	box, add, run := asRole(t, "GRANT INSERT ON idem_outbox TO {}")
	require.NoError(t, add(entry("A", "1")))
	run(revoke)
	run(remedy(add(entry("A", "2"))))
	require.NoError(t, add(entry("A", "2")))

	run(revoke)
	_, err := box.Hold(t.Context(), "r", time.Second, true)
	run(remedy(err))
	_, err = box.Hold(t.Context(), "r", time.Second, true)
	require.NoError(t, err)
}
