package main

import (
	"bytes"
	"context"
	"io"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/dedup/pgstore"
	"github.com/idem-go/idem/dedup/sqlstore/sqlite"
	"github.com/idem-go/idem/internal/testenv"
)

// reapable is a store with two expired records of a scope, of which one was consumed beyond.
func reapable(t *testing.T, options ...pgstore.Option) (url string, conn *pgx.Conn) {
	t.Helper()
	url = testenv.Postgres(t)
	conn = connect(t, url)
	layout := layoutReadable
	if len(options) > 0 {
		layout = layoutCompact
	}
	command(t, "migrate", "up", "--store", url, "--layout", layout).ok(t)
	s, err := pgstore.Open(t.Context(), url, options...)
	require.NoError(t, err)
	t.Cleanup(s.Close)
	for _, id := range []string{"1", "2"} {
		finish(t, s, claim(t, s, inScope("order", id), dedupOrigin(1)), "")
	}
	progress := []dedup.Progress{{Topic: "orders", Partition: 2, Next: 10, Time: time.Now(), CaughtUp: true}}
	require.NoError(t, s.RecordProgress(t.Context(), "billing", progress))
	table := map[string]string{layoutReadable: "idempotency_keys", layoutCompact: "idempotency_keys_compact"}[layout]
	execSQL(t, conn, "UPDATE "+table+" SET expires_at = clock_timestamp() - interval '1 h'")
	return url, conn
}

// delayedRetry makes the rows that a run has announced old enough to be deleted.
func delayedRetry(t *testing.T, conn *pgx.Conn) {
	t.Helper()
	execSQL(t, conn, "UPDATE idem_horizons SET updated_at = updated_at - interval '1 h'")
}

// The first run announces, a later one deletes, and each reports the deleted and the kept rows.
func TestReap(t *testing.T) {
	for _, options := range [][]pgstore.Option{nil, {pgstore.Compact()}} {
		ledger, conn := reapable(t, options...)
		var all []reapView
		r := command(t, "reap", "--store", ledger, "-o", "json")
		r.ok(t)
		r.json(t, &all)
		require.Zero(t, all[0].Claims)
		require.Equal(t, "billing", all[0].Scopes[0].Scope)
		require.Equal(t, "orders/2", all[0].Scopes[0].HeldUpBy)
		require.NotNil(t, all[0].Scopes[0].Horizon)
		delayedRetry(t, conn)
		r = command(t, "reap", "--store", ledger, "-o", "json")
		r.ok(t)
		r.json(t, &all)
		require.Equal(t, int64(2), all[0].Claims)
		require.InDelta(t, 2, r.audits(t)[0]["claims"], 0)
		require.Contains(t, command(t, "reap", "--store", ledger).ok(t), "scope billing")
	}
}

// A reaper that would delete more than a service asks first.
func TestReapAsks(t *testing.T) {
	ledger, _ := reapable(t)
	for _, more := range [][]string{{"--wall-clock", "billing"}, {"--dead-letter-retention", "24h"}} {
		r := command(t, append([]string{"reap", "--store", ledger}, more...)...)
		r.failed(t, exitFound, "not confirmed")
		require.Equal(t, "refused", r.audits(t)[0]["outcome"])
		command(t, append([]string{"reap", "--store", ledger, "-y"}, more...)...).ok(t)
	}
}

// The question and the audit line have each setting that deletes more than a service would.
func TestReapQuestion(t *testing.T) {
	const clock, kept = "deleted by the wall clock", "forgotten after 1h"
	for _, c := range []struct {
		flags   reapFlags
		clock   bool
		shorter bool
	}{
		{reapFlags{deadLetters: deadLettersKept}, false, false},
		{reapFlags{deadLetters: 2 * deadLettersKept}, false, false},
		{reapFlags{deadLetters: deadLettersKept, wallClock: []string{"http"}}, true, false},
		{reapFlags{deadLetters: time.Hour}, false, true},
		{reapFlags{deadLetters: time.Hour, wallClock: []string{"http"}}, true, true},
	} {
		q := c.flags.question("shop")
		require.Equal(t, c.clock, strings.Contains(q, clock), q)
		require.Equal(t, c.shorter, strings.Contains(q, kept), q)
		require.Equal(t, c.clock || c.shorter, q != "")
	}

	path := filepath.Join(t.TempDir(), "shop.db")
	s, err := sqlite.Open(t.Context(), path, sqlite.NoReaper())
	require.NoError(t, err)
	finish(t, s, claim(t, s, inScope("order", "1"), dedupOrigin(1)), "")
	require.NoError(t, s.Close())
	r := command(t, "reap", "--store", "sqlite:"+path, "--wall-clock", "billing", "--dead-letter-retention", "1h")
	r.failed(t, exitFound, clock, kept, "not confirmed")
	require.Equal(t, "1h0m0s", r.audits(t)[0]["dead_letter_retention"])
	require.Equal(t, []any{"billing"}, r.audits(t)[0]["wall_clock"])
}

// One reaper works at a time. The other reports that, and ends without an error.
func TestReapElsewhere(t *testing.T) {
	ledger, conn := reapable(t)
	execSQL(t, conn, "INSERT INTO idem_leases (name, token, lease_until) VALUES ('reaper', gen_random_uuid(), clock_timestamp() + interval '1 h')")
	require.Contains(t, command(t, "reap", "--store", ledger).ok(t), "another reaper is at work")
}

// --watch prints a line for each run until an interruption, which is no failure.
func TestReapWatch(t *testing.T) {
	ledger, conn := reapable(t)
	command(t, "reap", "--store", ledger).ok(t)
	delayedRetry(t, conn)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var stderr bytes.Buffer
	seen := &onWrite{substring: `"claims":2`, then: cancel}
	a := &app{stdin: strings.NewReader(""), stdout: seen, stderr: &stderr, now: ticking()}
	code := a.run(ctx, withoutPasswords(t, []string{"reap", "--watch", "--store", ledger, "-o", "json", "--interval", "1s"}))
	require.Equal(t, exitOK, code, stderr.String())
	require.Contains(t, stderr.String(), "idem: 2 rows deleted")
	line := auditLines(t, stderr.String())[0]
	require.InDelta(t, 2, line["claims"], 0)
}

// A scope of --wall-clock that the store has no record of is a mistake. --watch only warns: a
// service may write its first record later.
func TestReapUnknownScope(t *testing.T) {
	path := filepath.Join(t.TempDir(), "shop.db")
	store := "sqlite:" + path
	s, err := sqlite.Open(t.Context(), path, sqlite.NoReaper())
	require.NoError(t, err)
	http := inScope("order", "1")
	http.Scope = "http"
	finish(t, s, claim(t, s, http, dedupOrigin(1)), "")
	progress := []dedup.Progress{{Topic: "orders", Partition: 2, Next: 10, Time: time.Now(), CaughtUp: true}}
	require.NoError(t, s.RecordProgress(t.Context(), "billing", progress))
	require.NoError(t, s.Close())

	for _, known := range []string{"billing", "http", "billing,http"} {
		command(t, "reap", "--store", store, "--wall-clock", known, "-y").ok(t)
	}
	says := []string{`the store has no record of scope "htpp"`, `progress is on record for ["billing"`, "idem event list"}
	r := command(t, "reap", "--store", store, "--wall-clock", "http,htpp", "-y")
	r.failed(t, exitFound, says...)
	require.Len(t, r.audits(t), 1)
	require.Equal(t, "refused", r.audits(t)[0]["outcome"])
	require.Equal(t, []any{"http", "htpp"}, r.audits(t)[0]["wall_clock"])
	require.Contains(t, r.audits(t)[0]["error"], says[0])

	empty := "sqlite:" + filepath.Join(t.TempDir(), "other.db")
	other, err := sqlite.Open(t.Context(), strings.TrimPrefix(empty, "sqlite:"), sqlite.NoReaper())
	require.NoError(t, err)
	require.NoError(t, other.Close())
	command(t, "reap", "--store", empty+","+store, "--wall-clock", "http", "-y").ok(t)
	r = command(t, "reap", "--store", empty+","+store, "--wall-clock", "htpp", "-y")
	r.failed(t, exitFound, "the stores have")
	require.Len(t, r.audits(t), 2, "one for each store")

	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var stderr bytes.Buffer
	a := &app{stdin: strings.NewReader(""), stdout: &onWrite{substring: "0 events", then: cancel}, stderr: &stderr, now: ticking()}
	code := a.run(ctx, []string{"reap", "--watch", "--store", store, "--wall-clock", "htpp", "-y"})
	require.Equal(t, exitOK, code, stderr.String())
	require.Contains(t, stderr.String(), "warning: --wall-clock: "+says[0])
}

// While the store is away, --watch prints each error as one readable line.
func TestReapWatchStoreAway(t *testing.T) {
	away := testenv.FreeAddr(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var stdout, stderr bytes.Buffer
	seen := io.MultiWriter(&stdout, &onWrite{substring: away, then: cancel})
	a := &app{stdin: strings.NewReader(""), stdout: seen, stderr: &stderr, now: ticking()}
	code := a.run(ctx, []string{
		"reap", "--watch", "--store", "postgres://idem@" + away + "/shop?sslmode=prefer", "--wall-clock", "http", "-y",
	})
	require.Equal(t, exitOK, code, stderr.String())
	require.Equal(t, 1, strings.Count(stdout.String(), "\n"), &stdout)
	require.NotContains(t, stdout.String(), `\u00`)
	require.Contains(t, stdout.String(), "database=shop`: "+away)
}
