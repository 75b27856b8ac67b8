package main

import (
	"context"
	"crypto/rand"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/dedup/pgstore"
	"github.com/idem-go/idem/internal/doctor"
	"github.com/idem-go/idem/internal/testenv"
)

// pgPlace is a database and a role of the test's own on the real Postgres, with the tables of a
// store. Other tests do not see the faults that are planted there.
type pgPlace struct {
	*testing.T
	admin, url string // as superuser of the server, as owner of the database
	role, name string
}

func newPgPlace(t *testing.T) *pgPlace {
	t.Helper()
	u, err := url.Parse(testenv.Postgres(t)) // skips without a server
	require.NoError(t, err)
	q := u.Query()
	q.Del("search_path")
	u.RawQuery = q.Encode()
	p := &pgPlace{T: t, admin: u.String(), name: "doctor_" + strings.ToLower(rand.Text())}
	p.role = p.name + "_worker"
	p.exec(p.admin, "CREATE ROLE "+p.role+" LOGIN PASSWORD 'doctor'")
	t.Cleanup(func() { p.exec(p.admin, "DROP ROLE "+p.role) })
	p.exec(p.admin, "CREATE DATABASE "+p.name+" OWNER "+p.role)
	t.Cleanup(func() { p.exec(p.admin, "DROP DATABASE "+p.name+" WITH (FORCE)") })
	u.Path, u.User = "/"+p.name, url.UserPassword(p.role, "doctor")
	p.url = u.String()
	p.migrate(p.url)
	return p
}

// newPgSchema is a store on the real Postgres for tests that change no settings. A database costs
// seconds: to drop one is a checkpoint.
func newPgSchema(t *testing.T) *pgPlace {
	t.Helper()
	p := &pgPlace{T: t, url: testenv.Postgres(t)}
	p.migrate(p.url)
	return p
}

// anew makes the database as it was.
func (p *pgPlace) anew() {
	p.Helper()
	p.exec(p.admin, "ALTER DATABASE "+p.name+" RESET ALL", "ALTER ROLE "+p.role+" RESET ALL",
		"ALTER ROLE "+p.role+" IN DATABASE "+p.name+" RESET ALL", "ALTER ROLE "+p.role+" CONNECTION LIMIT -1")
	p.exec(p.url, "DROP SCHEMA IF EXISTS public CASCADE", "CREATE SCHEMA public")
	p.migrate(p.url)
}

func (p *pgPlace) migrate(url string, opts ...pgstore.Option) {
	p.Helper()
	pool, err := pgxpool.New(p.Context(), url)
	require.NoError(p, err)
	defer pool.Close()
	require.NoError(p, pgstore.Migrate(p.Context(), pool, opts...))
}

// exec runs statements on a server, also in cleanups.
func (p *pgPlace) exec(url string, statements ...string) {
	p.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	conn, err := pgx.Connect(ctx, url)
	require.NoError(p, err)
	defer func() { _ = conn.Close(ctx) }()
	for _, s := range statements {
		_, err = conn.Exec(ctx, s)
		require.NoError(p, err, s)
	}
}

func (p *pgPlace) base(more ...string) []string {
	return append([]string{"--store", p.url, "-G", "billing"}, more...)
}

// with adds a parameter to the URL.
func (p *pgPlace) with(name, value string) string {
	return p.url + "&" + url.Values{name: {value}}.Encode()
}

// Misconfigurations of a database (P-08, P-14, P-15, P-18, P-25, P-26, P-27, rule 10, rule 14, rule
// 46), each alone in a database that was right.
func TestDoctor_PostgresPlanted(t *testing.T) {
	place := newPgPlace(t)
	inRole := func(setting string) func(*pgPlace) {
		return func(p *pgPlace) { p.exec(p.admin, "ALTER ROLE "+p.role+" SET "+setting) }
	}
	for _, c := range []struct {
		plant
		do func(p *pgPlace)
	}{
		{plant{name: "no tables", id: "postgres.store", want: doctor.Bad, says: "idem migrate"}, func(p *pgPlace) { p.exec(p.url, "DROP OWNED BY "+p.role) }},
		{plant{name: "no unique key", id: "postgres.store", want: doctor.Bad, says: "unique key"},
			func(p *pgPlace) { p.exec(p.url, "ALTER TABLE processed_events DROP CONSTRAINT processed_events_pkey") }},
		{plant{name: "folded IDs", id: "postgres.store", want: doctor.Bad, says: `collation must be "C"`},
			func(p *pgPlace) {
				p.exec(p.url, `ALTER TABLE idempotency_keys ALTER event_id TYPE text COLLATE "default"`)
			}},
		{plant{name: "read only", id: "postgres.read_only", want: doctor.Bad, says: "ALTER DATABASE", also: []string{"postgres.store"}},
			func(p *pgPlace) { p.exec(p.admin, "ALTER DATABASE "+p.name+" SET default_transaction_read_only = on") }},
		{plant{name: "commits do not wait, role", id: "postgres.commit", want: doctor.Bad, says: "ALTER ROLE"}, inRole("synchronous_commit = off")},
		{plant{name: "commits do not wait, database", id: "postgres.commit", want: doctor.Bad, says: "ALTER DATABASE"},
			func(p *pgPlace) { p.exec(p.admin, "ALTER DATABASE "+p.name+" SET synchronous_commit = off") }},
		{plant{name: "commits do not wait, role here", id: "postgres.commit", want: doctor.Bad, says: "IN DATABASE"},
			func(p *pgPlace) {
				p.exec(p.admin, "ALTER ROLE "+p.role+" IN DATABASE "+p.name+" SET synchronous_commit = off")
			}},
		{plant{name: "commits do not wait, another role", id: "postgres.commit", want: doctor.Warn, says: "_other"}, func(p *pgPlace) {
			other := p.name + "_other"
			p.exec(p.admin, "CREATE ROLE "+other+" LOGIN", "ALTER ROLE "+other+" SET synchronous_commit = off")
			p.Cleanup(func() { p.exec(p.admin, "DROP ROLE "+other) })
			p.Cleanup(func() { p.exec(p.url, "DROP TABLE processed_events CASCADE") }) // with its grants
			p.exec(p.url, "GRANT INSERT ON processed_events TO "+other)
		}},
		{plant{name: "empty after a crash", id: "postgres.unlogged", want: doctor.Bad, says: "SET LOGGED"},
			func(p *pgPlace) { p.exec(p.url, "ALTER TABLE processed_events SET UNLOGGED") }},
		{plant{name: "never vacuumed", id: "postgres.autovacuum", want: doctor.Warn, says: "RESET (autovacuum_enabled)"},
			func(p *pgPlace) { p.exec(p.url, "ALTER TABLE idempotency_keys SET (autovacuum_enabled = off)") }},
		{plant{name: "idle", id: "postgres.idle_timeout", want: doctor.Warn, says: "a handler may take"}, inRole("idle_in_transaction_session_timeout = '5s'")},
		{plant{name: "statements", id: "postgres.statement_timeout", want: doctor.Warn, says: "counts as a failure"}, inRole("statement_timeout = '10s'")},
		{plant{name: "locks", id: "postgres.lock_timeout", want: doctor.Warn, says: "counts as a failure"}, inRole("lock_timeout = '100ms'")},
		{plant{name: "longer handlers", id: "postgres.statement_timeout", want: doctor.Warn, says: "55s", args: []string{"--timeout", "55s"}}, nil},
		{plant{name: "connections of the role", id: "postgres.connections", want: doctor.Bad, says: "the role may have 3"},
			func(p *pgPlace) { p.exec(p.admin, "ALTER ROLE "+p.role+" CONNECTION LIMIT 3") }},
		{plant{name: "connections of the server", id: "postgres.connections", want: doctor.Bad, says: "some workers stop", args: []string{"--pool-size", "20", "--instances", "50"}}, nil},
		{plant{name: "renamed", id: "store.scope", want: doctor.Warn, says: "invoices under billing-v1", args: []string{"--topics", "invoices"}}, func(p *pgPlace) {
			p.store(func(s *pgstore.Store) error {
				return s.Register(p.Context(), dedup.Registration{Scope: "billing-v1", Group: "billing-v1", Topics: []string{"invoices"}})
			})
		}},
		{plant{name: "time not known", id: "store.progress", want: doctor.Warn, says: "orders/3", fresh: true}, func(p *pgPlace) {
			p.store(func(s *pgstore.Store) error {
				return s.RecordProgress(p.Context(), "billing", []dedup.Progress{{Topic: "orders", Partition: 3, Next: 7}})
			})
		}},
		{plant{name: "rows without progress", id: "store.progress", want: doctor.Warn, says: "has rows", fresh: true}, func(p *pgPlace) {
			p.store(func(s *pgstore.Store) error {
				finish(p, s, claim(p, s, inScope("order", "1"), dedupOrigin(1)), "")
				return nil
			})
			p.exec(p.url, "UPDATE idempotency_keys SET created_at = created_at - interval '1 h'")
		}},
		{plant{name: "not consumed", id: "store.progress", want: doctor.Warn, says: "48h0m0s ago", fresh: true}, func(p *pgPlace) {
			p.exec(p.url, `INSERT INTO idem_progress (scope, topic, partition, next_offset, consumed_until, updated_at)
				VALUES ('billing', 'orders', 0, 1, now() - interval '2 days', now() - interval '2 days')`)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := &pgPlace{T: t, admin: place.admin, url: place.url, role: place.role, name: place.name}
			p.anew()
			base := p.base()
			if c.name == "longer handlers" {
				inRole("statement_timeout = '50s'")(p)
			}
			var do func()
			if c.do != nil {
				do = func() { c.do(p) }
			}
			c.found(t, base, do)
		})
	}
}

func (p *pgPlace) store(fn func(*pgstore.Store) error) {
	p.Helper()
	s, err := pgstore.Open(p.Context(), p.url)
	require.NoError(p, err)
	defer s.Close()
	require.NoError(p, fn(s))
}

// A database as it should be, in either layout, found through a search path or a name; and for a
// guest.
func TestDoctor_PostgresClean(t *testing.T) {
	p := newPgPlace(t)
	clean := func(args ...string) {
		t.Helper()
		r := examined(t, args...)
		require.Empty(t, r.bads())
		for _, f := range r {
			if strings.HasPrefix(f.ID, "postgres.") && f.Verdict != doctor.OK {
				require.Fail(t, "not ok", "%+v", f)
			}
		}
	}
	clean(p.base()...)
	p.exec(p.url, "CREATE SCHEMA small")
	small := p.with("search_path", "small")
	p.migrate(small, pgstore.Compact())
	clean("--store", small, "-G", "billing")
	clean(p.base("--schema", "small")...)
	p.exec(p.url, "ALTER TABLE small.processed_events_compact SET UNLOGGED")
	require.Equal(t, doctor.Bad, examined(t, p.base("--schema", "small")...).worst("postgres.unlogged").Verdict)
	require.Equal(t, doctor.OK, examined(t, p.base()...).worst("postgres.unlogged").Verdict)

	p.exec(p.admin, "ALTER ROLE "+p.role+" SET synchronous_commit = off")
	durable := examined(t, p.base("--durable")...)
	require.Equal(t, doctor.OK, durable.worst("postgres.commit").Verdict, "pgstore.Durable")
	require.Equal(t, doctor.OK, durable.worst("postgres.store").Verdict, "%+v", durable.worst("postgres.store"))

	// A role that may not read the tables is a warning with the right to grant (rule 46).
	other := p.name + "_guest"
	p.exec(p.admin, "CREATE ROLE "+other+" LOGIN PASSWORD 'doctor'")
	t.Cleanup(func() { p.exec(p.admin, "DROP ROLE "+other) })
	guest := strings.Replace(p.url, p.role, other, 1)
	r := examined(t, "--store", guest, "-G", "billing")
	require.Empty(t, r.bads())
	require.Equal(t, doctor.Unknown, r.worst("postgres.store").Verdict)
	require.Contains(t, r.worst("postgres.store").Remedy, "GRANT SELECT, INSERT, UPDATE ON processed_events")
	require.Contains(t, r.worst("postgres.store").Remedy, other)
	require.Equal(t, doctor.OK, r.worst("postgres.fsync").Verdict, "what needs no right is looked at")

	for _, id := range []string{"postgres.unlogged", "postgres.autovacuum", "postgres.commit", "postgres.read_only"} {
		require.NotEqual(t, doctor.Unknown, r.worst(id).Verdict, "the catalog needs no right on a table: %+v", r.worst(id))
	}

	// Without USAGE on their schema, the tables of a search path look missing. Those of a named
	// schema are not known, and neither are the roles that write them.
	r = examined(t, "--store", guest, "-G", "billing", "--schema", "small")
	require.Empty(t, r.bads(), "small.processed_events_compact is unlogged, which the guest does not see")
	for _, id := range []string{"postgres.unlogged", "postgres.autovacuum", "postgres.commit", "postgres.read_only"} {
		require.Equal(t, doctor.Unknown, r.worst(id).Verdict, "%+v", r.worst(id))
		require.Equal(t, `GRANT USAGE ON SCHEMA "small" TO "`+other+`"`, r.worst(id).Remedy)
	}
	require.Equal(t, doctor.OK, r.worst("postgres.fsync").Verdict)
	require.Equal(t, doctor.Unknown, r.worst("postgres.store").Verdict)
	require.Contains(t, r.worst("postgres.store").Remedy, `GRANT USAGE ON SCHEMA "small" TO "`+other+`"; GRANT SELECT`)
	require.Equal(t, doctor.Unknown, r.worst("outbox.tables").Verdict)
	require.Contains(t, r.worst("outbox.tables").Remedy, `GRANT USAGE ON SCHEMA "small" TO "`+other+`"; GRANT SELECT`)
	p.exec(p.admin, "ALTER ROLE "+other+" SET search_path = small")
	r = examined(t, "--store", guest, "-G", "billing")
	require.Equal(t, doctor.Bad, r.worst("postgres.store").Verdict)
	require.Contains(t, r.worst("postgres.store").Detail, "a schema without USAGE for the role")
	require.Contains(t, r.worst("postgres.store").Remedy, `GRANT USAGE ON SCHEMA <schema> TO "`+other+`"`)
}

// Kafka is asked about the topics on record. A renamed group that has committed no offset is bad,
// because its consumer refuses to start (rule 14).
func TestDoctor_Scope(t *testing.T) {
	p, k := newPgSchema(t), newKafkaPlace(t)
	p.store(func(s *pgstore.Store) error {
		return s.Register(p.Context(), dedup.Registration{Scope: k.group, Group: k.group, Topics: []string{k.topic}})
	})
	where := []string{"--store", p.url, "--brokers", strings.Join(k.brokers, ",")}
	r := examined(t, append(where, "-G", k.group)...)
	require.Equal(t, k.topic, r.worst("kafka.topic.missing").On)
	require.Equal(t, doctor.OK, r.worst("store.scope").Verdict)
	k.create(k.topic+"."+k.group+"-v2.dlq", 2, "retention.ms", "-1")
	renamed := slices.Concat(where, []string{"-G", k.group + "-v2", "--topics", k.topic})
	r = examined(t, renamed...)
	require.Equal(t, doctor.Bad, r.worst("store.scope").Verdict)
	require.Contains(t, r.worst("store.scope").Detail, "refuses to start")
	require.Equal(t, doctor.OK, examined(t, append(renamed, "--scope", k.group)...).worst("store.scope").Verdict, "inherited")
	k.group += "-v2"
	k.commit(0)
	require.Equal(t, doctor.Warn, examined(t, renamed...).worst("store.scope").Verdict, "it has begun")
	r = examined(t, append(where, "-G", k.group)...)
	require.Equal(t, doctor.Warn, r.worst("store.scope").Verdict, "the topics with committed offsets")
	require.Contains(t, r.worst("store.scope").Detail, k.topic+" under ")
	for _, args := range [][]string{append(where, "-G", k.group+"-v3"), {"--store", p.url, "-G", k.group}} {
		r = examined(t, args...)
		require.Equal(t, doctor.Unknown, r.worst("store.scope").Verdict, "no topic of the group is known")
		require.Contains(t, r.worst("store.scope").Remedy, "--topics")
	}
}

// Settings in the URL win over those of pgstore.Configure, and a dead worker's event is then held
// for hours (rule 10).
func TestDoctor_PostgresSession(t *testing.T) {
	p := newPgSchema(t)
	plant{id: "postgres.session", want: doctor.Warn, says: "tcp_keepalives_idle is 7200 s",
		args: []string{"--store", p.with("tcp_keepalives_idle", "7200")}}.found(t, p.base(), nil)
	plant{id: "postgres.session", want: doctor.Warn, says: "client_connection_check_interval is 0",
		args: []string{"--store", p.with("client_connection_check_interval", "0")}}.found(t, p.base(), nil)
}
