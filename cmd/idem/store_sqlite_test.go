package main

import (
	"database/sql"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/dedup/sqlstore/sqlite"
)

// A store in a file is opened by its path, for all verbs that work on events.
func TestSQLite(t *testing.T) {
	path := filepath.Join(t.TempDir(), "my shop?.db")
	store := "sqlite:" + path
	s, err := sqlite.Open(t.Context(), path, sqlite.NoReaper())
	require.NoError(t, err)
	finish(t, s, claim(t, s, inScope("order", "1"), dedupOrigin(1)), "")
	finish(t, s, claim(t, s, inScope("order", "2"), dedupOrigin(2)), "no account")
	require.NoError(t, s.Close())

	require.Contains(t, command(t, "event", "get", "1", "-G", "billing", "--store", store).ok(t), "state       done")
	require.Contains(t, command(t, "event", "list", "--status", "failed", "--store", store).ok(t), "no account")
	command(t, "event", "skip", "3", "--type", "order", "-G", "billing", "--store", store, "-y").ok(t)
	lines := strings.Split(command(t, "event", "list", "--type", "order", "--store", store).ok(t), "\n")
	require.Len(t, lines, 6, "a header, two events with a record each, two records of the skipped one")
	slices.Sort(lines[3:5])
	require.Regexp(t, `^dead, given up by a person +3 .* transactional `, lines[3])
	require.Regexp(t, `^dead, given up by a person +3 .* with claims `, lines[4])
	command(t, "event", "release", "1", "-G", "billing", "--store", store, "-y").ok(t)
	command(t, "event", "get", "1", "-G", "billing", "--store", store).failed(t, exitFound, "not known")
	command(t, "event", "get", "2", "-G", "billing", "--store", store+",redis://127.0.0.1:1").failed(t, exitFailure, "redis")
	require.Contains(t, command(t, "reap", "--store", store).ok(t), "sqlite "+path)
	require.Contains(t, command(t, "migrate", "status", "--store", store).ok(t), "ok")
	require.Contains(t, command(t, "doctor", "--store", store).ok(t), "the tables are there")
	command(t, "doctor", "--store", store+".not").failed(t, exitFound)
}

// An event that blocks its key is skipped, and the event behind it goes on (rule 4).
func TestSkipDeferredInSQLite_Rule4(t *testing.T) {
	path := filepath.Join(t.TempDir(), "idem.db")
	s, err := sqlite.Open(t.Context(), path, sqlite.NoReaper())
	require.NoError(t, err)
	defer s.Close()
	part := dedup.DeferredPartition{Scope: "billing", Topic: "orders", Partition: 2}
	head, follower := inScope("order", "head"), inScope("order", "follower")
	finish(t, s, claim(t, s, head, dedupOrigin(1)), "failed: broken")
	var events []dedup.Deferred
	for i, key := range []dedup.Key{head, follower} {
		events = append(events, dedup.Deferred{Key: key, Queue: "kcustomer-7", Origin: dedupOrigin(int64(i)), Data: []byte("{}")})
	}
	require.NoError(t, s.Defer(t.Context(), part, events))
	on := []string{"-G", "billing", "--store", "sqlite:" + path, "--type", "order", "--topic", "orders"}
	require.Contains(t, command(t, append([]string{"event", "get", "follower"}, on...)...).ok(t), `behind "head"`)
	command(t, append([]string{"event", "skip", "head", "-y"}, on...)...).ok(t)
	require.Contains(t, command(t, append([]string{"event", "get", "follower"}, on...)...).ok(t), "first of its key")
}

// A path that is no store is an error, and stays as it was.
func TestSQLiteWithoutTables(t *testing.T) {
	dir := t.TempDir()
	other := filepath.Join(dir, "other.db")
	db, err := sql.Open("sqlite", other)
	require.NoError(t, err)
	_, err = db.ExecContext(t.Context(), "CREATE TABLE places (name text)")
	require.NoError(t, err)
	require.NoError(t, db.Close())
	text := filepath.Join(dir, "text")
	require.NoError(t, os.WriteFile(text, []byte("no database, but a text that is long enough for a header of a page"), 0o600))
	before, err := os.ReadFile(other)
	require.NoError(t, err)

	for path, want := range map[string]struct {
		code  int
		says  string
		state string
	}{
		filepath.Join(dir, "missing.db"): {exitFound, "are missing", "missing"},
		other:                            {exitFound, "are missing", "missing"},
		text:                             {exitFailure, "not a database", "unavailable"},
		dir:                              {exitFailure, "not a file", "unavailable"},
	} {
		command(t, "event", "get", "1", "-G", "g", "--store", "sqlite:"+path).failed(t, want.code, want.says)
		command(t, "reap", "--store", "sqlite:"+path).failed(t, want.code, want.says)
		r := command(t, "migrate", "status", "--store", "sqlite:"+path, "-o", "json")
		require.NotEqual(t, exitOK, r.code)
		var all []tablesView
		r.json(t, &all)
		require.Equal(t, want.state, all[0].State, "%+v", all)
	}
	command(t, "event", "get", "1", "-G", "g", "--store", "sqlite:").failed(t, exitUsage, "name a file")
	after, err := os.ReadFile(other)
	require.NoError(t, err)
	require.Equal(t, before, after)
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, entries, 2, "nothing was made: %v", entries)
}

// Migrate up makes the file, and is on record.
func TestMigrateSQLite(t *testing.T) {
	store := "sqlite:" + filepath.Join(t.TempDir(), "idem.db")
	for range 2 {
		r := command(t, "migrate", "up", "--store", store, "-o", "json")
		r.ok(t)
		require.Equal(t, "migrate up", r.audits(t)[0]["audit"])
		var all []tablesView
		r.json(t, &all)
		require.Equal(t, "ok", all[0].State)
		require.Positive(t, all[0].Version)
	}
	command(t, "migrate", "status", "--store", store).ok(t)
	command(t, "migrate", "up", "--store", store, "--layout", "compact").failed(t, exitUsage, "--layout is for stores in Postgres")
	command(t, "migrate", "up", "--store", store, "--schema", "x").failed(t, exitUsage, "--schema is for stores in Postgres")
	command(t, "event", "get", "1", "-G", "g", "--store", store, "--redis-prefix", "x").failed(t, exitUsage, "--redis-prefix is for stores in Redis")
	r := command(t, "migrate", "up", "--store", "sqlite:"+filepath.Join(t.TempDir(), "no", "idem.db"))
	r.failed(t, exitFailure, "sqlite")
	require.Equal(t, "failed", r.audits(t)[0]["outcome"])
}
