package pgstore_test

import (
	"context"
	"fmt"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/dedup/pgstore"
	"github.com/idem-go/idem/internal/testenv"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
)

func TestCheckOfASoundStore(t *testing.T) {
	t.Parallel()
	s, pool := newStore(t)
	warnings, err := s.Check(t.Context())
	require.NoError(t, err)
	for _, w := range warnings {
		require.Contains(t, w, "fsync", "only what the test's server may lack")
	}
	var n int
	require.NoError(t, pool.QueryRow(t.Context(), `SELECT (SELECT count(*) FROM processed_events)
		+ (SELECT count(*) FROM idempotency_keys) + (SELECT count(*) FROM event_starts)`).Scan(&n))
	require.Zero(t, n, "the check leaves nothing behind")
	healthy(t, pool)
}

// P-25: a unique key that is missing or no longer valid shows at the start, not in the money.
func TestCheckFindsMissingKey_P25(t *testing.T) {
	t.Parallel()
	for table, more := range map[string]string{
		"processed_events": "", "idempotency_keys": "", "event_starts": ", origin_topic, origin_partition, origin_offset",
	} {
		s, pool := newStore(t)
		exec := func(sql string) {
			t.Helper()
			_, err := pool.Exec(t.Context(), sql)
			require.NoError(t, err)
		}
		exec(fmt.Sprintf("ALTER TABLE %[1]s DROP CONSTRAINT %[1]s_pkey", table))
		_, err := s.Check(t.Context())
		require.ErrorContains(t, err, table)
		exec(fmt.Sprintf("CREATE INDEX ON %s (tenant, scope, event_type, event_id%s)", table, more)) // not unique
		_, err = s.Check(t.Context())
		require.ErrorContains(t, err, table)
		exec(fmt.Sprintf("CREATE UNIQUE INDEX again ON %s (tenant, scope, event_type, event_id%s)", table, more))
		_, err = s.Check(t.Context())
		require.NoError(t, err)
		// As a CREATE INDEX CONCURRENTLY that failed leaves it.
		exec("UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'again'::regclass")
		_, err = s.Check(t.Context())
		require.ErrorContains(t, err, table)
	}
	s, pool := newStore(t)
	_, err := pool.Exec(t.Context(), `ALTER TABLE processed_events RENAME TO whole;
		CREATE TABLE processed_events (LIKE whole INCLUDING DEFAULTS, UNIQUE (tenant, scope, event_type, event_id, updated_at))
			PARTITION BY RANGE (updated_at);
		CREATE TABLE today PARTITION OF processed_events DEFAULT`)
	require.NoError(t, err)
	_, err = s.Check(t.Context())
	require.ErrorContains(t, err, "processed_events", "partitions by time have no unique key of the ID alone")

	s, pool = newStore(t)
	_, err = pool.Exec(t.Context(), "ALTER TABLE processed_events DROP CONSTRAINT processed_events_pkey")
	require.NoError(t, err)
	_, err = claimOne(t.Context(), s, request("e"), never(t))
	require.ErrorIs(t, err, dedup.ErrUnavailable, "without a check, too, nothing runs")

	s, pool = newStore(t)
	_, err = pool.Exec(t.Context(), `CREATE FUNCTION other() RETURNS trigger LANGUAGE plpgsql AS $$
		BEGIN NEW.event_id := gen_random_uuid(); RETURN NEW; END $$;
		CREATE TRIGGER other BEFORE INSERT ON processed_events FOR EACH ROW EXECUTE FUNCTION other()`)
	require.NoError(t, err)
	_, err = s.Check(t.Context())
	require.ErrorContains(t, err, "inserting one key twice gave 1 rows", "as an index that is corrupt would")
}

// P-23: a collation of one's own could take two IDs for one.
func TestCheckFindsCollation_P23(t *testing.T) {
	t.Parallel()
	s, pool := newStore(t)
	_, err := pool.Exec(t.Context(), `ALTER TABLE processed_events ALTER event_id TYPE text COLLATE "default"`)
	require.NoError(t, err)
	_, err = s.Check(t.Context())
	require.ErrorContains(t, err, "processed_events.event_id")
}

// P-18 and rule 10: settings that make commits or sessions unsafe are warnings.
func TestCheckWarns_P18(t *testing.T) {
	t.Parallel()
	url := newTables(t)
	warningsOf := func(opts []pgstore.Option, with ...configure) string {
		warnings, err := pgstore.New(newPool(t, url, with...), opts...).Check(t.Context())
		require.NoError(t, err)
		return strings.Join(warnings, "\n")
	}
	require.Contains(t, warningsOf(nil, param("synchronous_commit", "off")), "synchronous_commit")
	require.NotContains(t, warningsOf([]pgstore.Option{pgstore.Durable()}, param("synchronous_commit", "off")),
		"synchronous_commit")
	require.Contains(t, warningsOf(nil, param("client_connection_check_interval", "0")), "client_connection_check_interval")
	require.Contains(t, warningsOf(nil, param("tcp_keepalives_idle", "7200")), "tcp_keepalives_idle")

	s := pgstore.New(newPool(t, url, param("synchronous_commit", "off")), pgstore.Durable())
	_, err := claimOne(t.Context(), s, request("e"), func(tx pgx.Tx) ([]dedup.Completion, error) {
		var v string
		require.NoError(t, tx.QueryRow(t.Context(), "SHOW synchronous_commit").Scan(&v))
		require.Equal(t, "on", v)
		return nil, nil
	})
	require.NoError(t, err)
}

func TestCheckFindsOldTables(t *testing.T) {
	t.Parallel()
	s, pool := newStore(t)
	_, err := pool.Exec(t.Context(), "UPDATE idem_schema SET version = 0")
	require.NoError(t, err)
	_, err = s.Check(t.Context())
	require.ErrorContains(t, err, "or pgstore.Migrate")
	_, err = pool.Exec(t.Context(), "UPDATE idem_schema SET version = 99")
	require.NoError(t, err)
	_, err = s.Check(t.Context())
	require.NoError(t, err, "a later schema serves this release too (rule 35)")
}

func TestMigrateAtOnce(t *testing.T) {
	t.Parallel()
	url := testenv.Postgres(t)
	var wg sync.WaitGroup
	for range 6 {
		pool := newPool(t, url, maxConns(1), param("statement_timeout", "100")) // P-27: the application's, not ours
		wg.Go(func() {
			for range 2 {
				if err := pgstore.Migrate(context.Background(), pool); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	_, err := pgstore.New(newPool(t, url)).Check(t.Context())
	require.NoError(t, err)
}

// Migrate at every start must not wait for handlers that run, nor make workers wait behind it.
func TestMigrateTakesNoLockIfUpToDate(t *testing.T) {
	t.Parallel()
	s, pool := newStore(t)
	_, err := claimOne(t.Context(), s, request("e"), func(tx pgx.Tx) ([]dedup.Completion, error) {
		ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second)
		defer cancel()
		return nil, pgstore.Migrate(ctx, pool)
	})
	require.NoError(t, err)
}

// If a later schema of the search path has the tables, the store stays there: a second one would
// have no records.
func TestMigrateFindsTheStore(t *testing.T) {
	t.Parallel()
	first, url := testenv.Postgres(t), newTables(t)
	schemaOf := func(url string) string { return newPool(t, url).Config().ConnConfig.RuntimeParams["search_path"] }
	pool := newPool(t, url, param("search_path", schemaOf(first)+","+schemaOf(url)))
	require.NoError(t, pgstore.Migrate(t.Context(), pool))
	_, err := claimOne(t.Context(), pgstore.New(pool), request("e"), plain)
	require.NoError(t, err)
	var there bool
	require.NoError(t, pool.QueryRow(t.Context(), "SELECT to_regclass($1) IS NOT NULL",
		schemaOf(first)+".processed_events").Scan(&there))
	require.False(t, there)
}

// A team that moves over may have a table of its own with the name of one of ours. It stays as it is.
func TestMigrateRefusesTablesOfAnotherProgram(t *testing.T) {
	t.Parallel()
	for _, own := range []string{
		"CREATE TABLE processed_events (id text PRIMARY KEY)",
		"CREATE TABLE idempotency_keys (key text PRIMARY KEY, expires_at timestamptz)",
	} {
		pool := newPool(t, testenv.Postgres(t))
		_, err := pool.Exec(t.Context(), own)
		require.NoError(t, err)
		err = pgstore.Migrate(t.Context(), pool)
		var setup *dedup.SetupError
		require.ErrorAs(t, err, &setup, own)
		require.Contains(t, setup.Problem, strings.Fields(own)[2])
		require.Contains(t, setup.Fix, "pgstore.InSchema")
		name := "beside_" + strings.ToLower(dedup.NewToken().String())
		t.Cleanup(func() { _, _ = pool.Exec(context.WithoutCancel(t.Context()), "DROP SCHEMA "+name+" CASCADE") })
		require.NoError(t, pgstore.Migrate(t.Context(), pool, pgstore.InSchema(name)))
		_, err = pgstore.New(pool, pgstore.InSchema(name)).Check(t.Context())
		require.NoError(t, err)
	}
}

// The tables may be in a schema of their own, made by Migrate, with any search path and any
// temporary tables (G-05).
func TestInSchema_G05(t *testing.T) {
	t.Parallel()
	url := testenv.Postgres(t)
	pool := newPool(t, url, maxConns(2))
	name := "store_" + strings.ToLower(dedup.NewToken().String())
	t.Cleanup(func() { _, _ = pool.Exec(context.WithoutCancel(t.Context()), "DROP SCHEMA "+name+" CASCADE") })
	require.NoError(t, pgstore.Migrate(t.Context(), pool, pgstore.InSchema(name)))
	require.NoError(t, pgstore.Migrate(t.Context(), pool, pgstore.InSchema(name)))
	s := pgstore.New(pool, pgstore.InSchema(name))
	_, err := s.Check(t.Context())
	require.NoError(t, err)
	v, err := claimOne(t.Context(), s, request("e"), plain)
	require.NoError(t, err)
	require.Equal(t, dedup.Fresh, v)
	var n int
	require.NoError(t, pool.QueryRow(t.Context(), "SELECT count(*) FROM "+name+".processed_events").Scan(&n))
	require.Equal(t, 1, n)

	for _, bad := range []string{
		"", "Public", `a"b`, "a; DROP TABLE x", "a.b", "1a", strings.Repeat("a", 64), "ä", "a b", "a\n",
	} {
		s := pgstore.New(pool, pgstore.InSchema(bad))
		_, err := claimOne(t.Context(), s, request("e"), never(t))
		require.ErrorContains(t, err, "schema name")
		require.NotErrorIs(t, err, dedup.ErrUnavailable, "waiting does not help")
		require.ErrorContains(t, s.Ping(t.Context()), "schema name")
		require.ErrorContains(t, pgstore.Migrate(t.Context(), pool, pgstore.InSchema(bad)), "schema name")
		_, err = pgstore.Open(t.Context(), url, pgstore.InSchema(bad))
		require.ErrorContains(t, err, "schema name")
	}
}

// G-05: a temporary table of the same name, made by a handler, must not catch the marks.
func TestTemporaryTableDoesNotHideTheStore_G05(t *testing.T) {
	t.Parallel()
	s, _ := newStore(t, maxConns(1), inMode(pgx.QueryExecModeExec))
	_, err := claimOne(t.Context(), s, request("first"), func(tx pgx.Tx) ([]dedup.Completion, error) {
		_, err := tx.Exec(t.Context(), "CREATE TEMP TABLE processed_events (LIKE processed_events INCLUDING ALL)")
		return nil, err
	})
	require.NoError(t, err)
	v, err := claimOne(t.Context(), s, request("first"), never(t))
	require.NoError(t, err)
	require.Equal(t, dedup.Done, v)
}

// The planner must not choose to scan a table that was small once: the plan is kept while the table grows.
func TestLookUpsUseTheKey(t *testing.T) {
	t.Parallel()
	pool := newPool(t, unusedTables(t), maxConns(1))
	s := pgstore.New(pool)
	answers := make([]dedup.Answer, 3)
	_, err := pool.Exec(t.Context(), "VACUUM ANALYZE processed_events, idempotency_keys")
	require.NoError(t, err)
	for i := range 20 { // the plans become generic
		require.NoError(t, s.ClaimTx(t.Context(), time.Minute, batch(3, i/2), answers, plain))
		token := dedup.NewToken()
		require.NoError(t, s.Claim(t.Context(), token, time.Minute, batch(3, i/2), answers))
		claims := []dedup.Claim{batch(3, i/2)[0].Held(token, answers[0])}
		_ = s.Renew(t.Context(), time.Minute, claims)
		_ = s.Complete(t.Context(), []dedup.Completion{{Claim: claims[0], Retention: retention}})
		_ = s.Release(t.Context(), []dedup.Release{{Claim: claims[0], Retention: retention}})
		require.NoError(t, s.Look(t.Context(), batch(3, i/2), answers))
		require.NoError(t, s.LookTx(t.Context(), batch(3, i/2), answers))
		require.NoError(t, s.ClaimTx(t.Context(), time.Minute, []dedup.Request{noWait(fmt.Sprint("turn-", i/2))}, answers[:1], plain))
	}
	var scans int
	require.Eventually(t, func() bool { // statistics arrive a moment later
		_, err := pool.Exec(t.Context(), "SELECT pg_stat_force_next_flush()")
		require.NoError(t, err)
		var index int
		require.NoError(t, pool.QueryRow(t.Context(), `SELECT sum(seq_scan), sum(idx_scan) FROM pg_stat_user_tables
			WHERE schemaname = current_schema() AND relname IN ('processed_events', 'idempotency_keys')`).Scan(&scans, &index))
		return index > 60
	}, 10*time.Second, 50*time.Millisecond)
	const made = 4 // by making the indexes of the two tables
	require.LessOrEqual(t, scans, made, "the tables were scanned")
}

// G-12: the grants of the package's documentation are enough for everything but Migrate.
func TestLeastRights_G12(t *testing.T) {
	t.Run("readable", func(t *testing.T) {
		leastRights(t, "GRANT SELECT, INSERT, UPDATE ON processed_events, idempotency_keys TO %[1]s")
	})
	t.Run("compact", func(t *testing.T) {
		leastRights(t, `GRANT SELECT, INSERT, UPDATE ON processed_events_compact, idempotency_keys_compact TO %[1]s;
			GRANT SELECT ON processed_events_read, idempotency_keys_read TO %[1]s;
			GRANT SELECT, INSERT ON idem_kinds, idem_origins TO %[1]s`, pgstore.Compact())
	})
}

func leastRights(t *testing.T, grants string, opts ...pgstore.Option) {
	t.Parallel()
	url := newTables(t, opts...)
	owner := newPool(t, url)
	role := "idem_test_" + dedup.NewToken().String()
	schema := owner.Config().ConnConfig.RuntimeParams["search_path"]
	_, err := owner.Exec(t.Context(), fmt.Sprintf(`CREATE ROLE %[1]s LOGIN PASSWORD 'worker';
		GRANT USAGE ON SCHEMA %[2]s TO %[1]s;
		`+grants+`;
		GRANT SELECT, INSERT, UPDATE, DELETE ON event_starts, idem_progress, deferred_queues, deferred_events TO %[1]s;
		GRANT SELECT, INSERT, UPDATE ON idem_scopes, idem_scope_topics, idem_descriptors TO %[1]s;
		GRANT SELECT ON idem_schema, idem_horizons TO %[1]s;
		GRANT INSERT ON effects TO %[1]s`, role, schema))
	require.NoError(t, err)
	t.Cleanup(func() {
		_, err := owner.Exec(context.WithoutCancel(t.Context()), fmt.Sprintf("DROP OWNED BY %[1]s; DROP ROLE %[1]s", role))
		require.NoError(t, err)
	})
	pool := newPool(t, url, func(c *pgxpool.Config) { c.ConnConfig.User, c.ConnConfig.Password = role, "worker" })
	t.Cleanup(pool.Close)
	s := pgstore.New(pool, opts...)
	_, err = s.Check(t.Context())
	require.NoError(t, err)
	r, token := request("e"), dedup.NewToken()
	_, err = claimOne(t.Context(), s, r, effect(t.Context(), "e"))
	require.NoError(t, err)
	for range 2 {
		_, err = s.CountStart(t.Context(), r.Key, dedup.Origin{Topic: "t"})
		require.NoError(t, err)
	}
	require.NoError(t, s.ClearStarts(t.Context(), r.Key, dedup.Origin{Topic: "t"}))
	var a [1]dedup.Answer
	require.NoError(t, s.Claim(t.Context(), token, time.Minute, []dedup.Request{r}, a[:]))
	c := r.Held(token, a[0])
	require.NoError(t, s.Renew(t.Context(), time.Minute, []dedup.Claim{c}))
	require.NoError(t, s.Release(t.Context(), []dedup.Release{{Claim: c, Retention: retention}}))
	require.NoError(t, s.Claim(t.Context(), token, time.Minute, []dedup.Request{r}, a[:]))
	require.NoError(t, s.Complete(t.Context(), []dedup.Completion{{Claim: c, Retention: retention, Dead: "x"}}))
	_, err = s.Reopen(t.Context(), r.Key)
	require.NoError(t, err)
	require.ErrorIs(t, groupOf4(t, s, "COMMIT"), dedup.ErrTxEnded)
	require.Equal(t, [4]dedup.Verdict{dedup.Done, dedup.Done, dedup.Fresh, dedup.Fresh}, verdicts4(t, s))
	progress := []dedup.Progress{{Topic: "t", Next: 1, CaughtUp: true}}
	require.NoError(t, s.RecordProgress(t.Context(), r.Key.Scope, progress))
	require.NoError(t, s.ForgetProgress(t.Context(), r.Key.Scope, "t"))
	registration := dedup.Registration{Scope: r.Key.Scope, Group: "g", Topics: []string{"t"}, Descriptors: map[string]string{"e": "r"}}
	for range 2 {
		require.NoError(t, s.Register(t.Context(), registration))
	}
}

// G-12: without rights, the error of a reaper has the grants that it needs, and they are enough.
func TestLeastRightsOfAReaper_G12(t *testing.T) {
	for name, c := range map[string]struct {
		opts []pgstore.Option
		age  string
	}{
		"readable": {nil, `UPDATE processed_events SET created_at = created_at - interval '3 hours',
			expires_at = expires_at - interval '2 hours'`},
		"compact": {[]pgstore.Option{pgstore.Compact()}, `UPDATE processed_events_compact
			SET made = made - 3 * 3600, expires = expires - 2 * 60`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			opts := c.opts
			url := newTables(t, opts...)
			owner := newPool(t, url)
			role := "idem_test_" + dedup.NewToken().String()
			schema := owner.Config().ConnConfig.RuntimeParams["search_path"]
			_, err := owner.Exec(t.Context(), "CREATE ROLE "+role+" LOGIN PASSWORD 'reaper'")
			require.NoError(t, err)
			t.Cleanup(func() {
				_, err := owner.Exec(context.WithoutCancel(t.Context()), fmt.Sprintf("DROP OWNED BY %[1]s; DROP ROLE %[1]s", role))
				require.NoError(t, err)
			})
			worker := pgstore.New(owner, opts...)
			record(t, worker, "g", dedup.Progress{Topic: "t", Next: 1, CaughtUp: true})
			for _, id := range []string{"1", "2"} {
				r := dedup.Request{Key: dedup.Key{Scope: "g", Type: "x", ID: id}, Retention: time.Millisecond}
				_, err = claimOne(t.Context(), worker, r, effect(t.Context(), id))
				require.NoError(t, err)
			}
			_, err = owner.Exec(t.Context(), c.age)
			require.NoError(t, err)
			pool := newPool(t, url, func(c *pgxpool.Config) { c.ConnConfig.User, c.ConnConfig.Password = role, "reaper" })
			t.Cleanup(pool.Close)
			s := pgstore.New(pool, append(opts, pgstore.InSchema(schema))...)
			_, err = pgstore.NewReaper(s, soonest()).RunOnce(t.Context())
			var setup *dedup.SetupError
			require.ErrorAs(t, err, &setup)
			grants, ok := strings.CutPrefix(setup.Fix, "run as their owner: ")
			require.True(t, ok, setup.Fix)
			_, err = owner.Exec(t.Context(), grants)
			require.NoError(t, err)
			deadline := time.Now().Add(30 * time.Second)
			for deleted := int64(0); deleted < 2; {
				require.True(t, time.Now().Before(deadline), "%d rows were deleted", deleted)
				deleted += reap(t, s, soonest()).Events
			}
		})
	}
}

func TestCountStart_Rule18(t *testing.T) {
	t.Parallel()
	s, _ := newStore(t, param("default_transaction_isolation", "serializable"))
	key := request("e").Key
	var wg sync.WaitGroup
	for range 10 {
		wg.Go(func() {
			if _, err := s.CountStart(t.Context(), key, dedup.Origin{Topic: "t"}); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	n, err := s.CountStart(t.Context(), key, dedup.Origin{Topic: "t"})
	require.NoError(t, err)
	require.EqualValues(t, 11, n)
	require.NoError(t, s.ClearStarts(t.Context(), key, dedup.Origin{Topic: "t"}))
	require.NoError(t, s.ClearStarts(t.Context(), key, dedup.Origin{Topic: "t"}))
	n, err = s.CountStart(t.Context(), key, dedup.Origin{Topic: "t"})
	require.NoError(t, err)
	require.EqualValues(t, 1, n)
}

func TestOpen(t *testing.T) {
	t.Parallel()
	s, err := pgstore.Open(t.Context(), newTables(t))
	require.NoError(t, err)
	warnings, err := s.Check(t.Context())
	require.NoError(t, err)
	require.NotContains(t, strings.Join(warnings, "\n"), "pgstore.Configure")
	require.NoError(t, s.Ping(t.Context()))
	s.Close()
	require.ErrorIs(t, s.Ping(t.Context()), dedup.ErrUnavailable)

	for _, url := range []string{
		"postgres://u:s3cret@h:port/x", "postgres://u:s3c/ret@h:99999999/", "password=s3cret port=x", "password='s3cret",
	} {
		_, err := pgstore.Open(t.Context(), url)
		require.Error(t, err)
		require.NotContains(t, fmt.Sprintf("%+v %#v", err, err), "s3c", "G-04")
	}
	kept, pool := newStore(t)
	kept.Close()
	require.NoError(t, pool.Ping(t.Context()), "the caller's pool is the caller's")
}

func TestConfigureKeepsWhatIsSet(t *testing.T) {
	t.Parallel()
	cfg, err := pgxpool.ParseConfig("postgres://localhost/x?tcp_user_timeout=1&application_name=mine")
	require.NoError(t, err)
	pgstore.Configure(cfg)
	require.Equal(t, "1", cfg.ConnConfig.RuntimeParams["tcp_user_timeout"])
	require.Equal(t, "mine", cfg.ConnConfig.RuntimeParams["application_name"])
	require.Equal(t, "2000", cfg.ConnConfig.RuntimeParams["client_connection_check_interval"])
}

func TestSchemaCommandPrintsTheSchema(t *testing.T) {
	t.Parallel()
	out, err := exec.CommandContext(t.Context(), "go", "run", "github.com/idem-go/idem/dedup/pgstore/schema").Output()
	require.NoError(t, err)
	require.Equal(t, pgstore.Schema(), string(out))
}

// P-22: any ID, topic or text of an error is either refused before SQL, or stored. No value makes a
// poison event.
func FuzzKeys_P22(f *testing.F) {
	for _, id := range []string{
		"a", "A", "", "a\x00b", "\xff", "'; DROP TABLE processed_events; --", `\`, "é", "😀", "{a,b}", "NULL", `"`,
		strings.Repeat("x", 256),
	} {
		f.Add(id, id)
	}
	s, pool := newStore(f, inMode(pgx.QueryExecModeSimpleProtocol))
	prepared := pgstore.New(newPool(f, pool.Config().ConnString()))
	f.Fuzz(func(t *testing.T, id, text string) {
		r := request(id)
		r.Origin.Topic = text
		for i, store := range []*pgstore.Store{s, prepared} {
			r.Key.Type = fmt.Sprint(i)
			v, err := claimOne(t.Context(), store, r, func(pgx.Tx) ([]dedup.Completion, error) {
				return []dedup.Completion{{Claim: r.Held(dedup.Token{}, dedup.Answer{}), Retention: retention, Dead: "!" + text}}, nil
			})
			if r.Key.Validate() != nil {
				require.ErrorIs(t, err, dedup.ErrKey)
				continue
			}
			require.NoError(t, err)
			require.Contains(t, []dedup.Verdict{dedup.Fresh, dedup.Dead}, v)
			v, err = claimOne(t.Context(), store, r, never(t))
			require.NoError(t, err)
			require.Equal(t, dedup.Dead, v)
		}
	})
}
