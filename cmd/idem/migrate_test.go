package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/dedup/pgstore"
	"github.com/idem-go/idem/dedup/sqlstore/mysql"
	"github.com/idem-go/idem/internal/testenv"
	"github.com/idem-go/idem/outbox/pgoutbox"
)

func TestMigratePrint(t *testing.T) {
	require.Equal(t, pgstore.Schema(), command(t, "migrate", "print").ok(t))
	require.Equal(t, pgstore.Schema(pgstore.Compact()), command(t, "migrate", "print", "--layout", "compact").ok(t))
	require.Equal(t, mysql.Schema(), command(t, "migrate", "print", "--database", "mysql").ok(t))
	command(t, "migrate", "print", "--database", "oracle").failed(t, exitUsage, "postgres or mysql")
	command(t, "migrate", "print", "--database", "mysql", "--layout", "compact").failed(t, exitUsage, "--layout")
	command(t, "migrate", "print", "--database", "mysql", "--outbox").failed(t, exitUsage, "--outbox")
}

// The tables are made once, in the layout that was chosen, and every later command finds that out
// by itself.
func TestMigrate(t *testing.T) {
	for _, layout := range []string{"", layoutReadable, layoutCompact} {
		ledger := testenv.Postgres(t)
		var all []tablesView
		r := command(t, "migrate", "status", "--store", ledger, "-o", "json")
		r.failed(t, exitFound, "must not be used")
		r.json(t, &all)
		require.Equal(t, "missing", all[0].State)
		require.Contains(t, all[0].Problem, "idem migrate up")

		args := []string{"migrate", "up", "--store", ledger, "-o", "json"}
		if layout != "" {
			args = append(args, "--layout", layout)
		}
		want := layout
		if want == "" {
			want = layoutReadable
		}
		r = command(t, args...)
		r.ok(t)
		line := r.audits(t)[0]
		require.Equal(t, "migrate up", line["audit"])
		require.Equal(t, want, line["layout"])
		command(t, "migrate", "up", "--store", ledger).ok(t)

		command(t, "migrate", "status", "--store", ledger, "-o", "json").json(t, &all)
		require.Equal(t, "ok", all[0].State, "%+v", all)
		require.Equal(t, want, all[0].Layout)
		require.Equal(t, schemaIn(t, ledger), all[0].Schema)
		require.Positive(t, all[0].Version)

		other := map[string]string{layoutReadable: layoutCompact, layoutCompact: layoutReadable}[want]
		r = command(t, "migrate", "up", "--store", ledger, "--layout", other)
		r.failed(t, exitFailure, "layout")
		require.Equal(t, "failed", r.audits(t)[0]["outcome"])
	}
}

func schemaIn(t testing.TB, ledger string) string {
	t.Helper()
	u, err := url.Parse(ledger)
	require.NoError(t, err)
	return u.Query().Get("search_path")
}

// --schema names the schema, wherever the search path leads.
func TestMigrateInSchema(t *testing.T) {
	ledger := testenv.Postgres(t)
	schema := schemaIn(t, ledger)
	elsewhere := strings.Replace(ledger, "search_path="+schema, "search_path=public", 1)
	require.NotEqual(t, ledger, elsewhere)
	command(t, "migrate", "up", "--store", elsewhere, "--schema", schema, "--layout", "compact").ok(t)
	var all []tablesView
	command(t, "migrate", "status", "--store", elsewhere, "--schema", schema, "-o", "json").json(t, &all)
	require.Equal(t, tablesView{Store: all[0].Store, Schema: schema, Layout: layoutCompact, Version: all[0].Version, State: "ok", Warnings: all[0].Warnings}, all[0])
	require.Contains(t, all[0].Store, "/"+schema)
	command(t, "migrate", "status", "--store", elsewhere, "--schema", `x"; DROP`).failed(t, exitUsage, "--schema")
	command(t, "migrate", "status", "--store", elsewhere, "--schema", schema+"_not").failed(t, exitFound)
}

// The faults of an unfit store are named, with exit code 1. A store that is away has exit code 3.
func TestMigrateStatusOfBadTables(t *testing.T) {
	ledger := testenv.Postgres(t)
	command(t, "migrate", "up", "--store", ledger).ok(t)
	execSQL(t, connect(t, ledger), "ALTER TABLE processed_events DROP CONSTRAINT processed_events_pkey")
	var all []tablesView
	r := command(t, "migrate", "status", "--store", ledger, "-o", "json")
	r.failed(t, exitFound)
	r.json(t, &all)
	require.Equal(t, "unfit", all[0].State)
	require.Contains(t, all[0].Problem, "unique key")

	away := "postgres://idem:idem@" + testenv.FreeAddr(t) + "/idem"
	r = command(t, "migrate", "status", "--store", away, "-o", "json")
	r.failed(t, exitFailure)
	r.json(t, &all)
	require.Equal(t, "unavailable", all[0].State)
	r = command(t, "migrate", "up", "--store", away)
	r.failed(t, exitFailure)
	require.Equal(t, "failed", r.audits(t)[0]["outcome"])
	command(t, "migrate", "status", "--store", "redis://127.0.0.1:1").failed(t, exitUsage, "Postgres")
}

// checkedStore is a store whose check ends with an error.
type checkedStore struct {
	dedup.Store
	dedup.Checker
	err error
}

func (s checkedStore) Check(context.Context) ([]string, error) { return nil, s.err }

// A check that Ctrl-C has ended found no fault, also if its error does not say so.
func TestStatusOfCheckedTables(t *testing.T) {
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	broken := errors.New("connection closed")
	for name, c := range map[string]struct {
		ctx  context.Context
		err  error
		want string
	}{
		"no fault":                   {t.Context(), nil, "ok"},
		"a fault":                    {t.Context(), errors.New("another version"), "unfit"},
		"a fault, in a wrap":         {t.Context(), fmt.Errorf("look: %w", &dedup.SetupError{}), "unfit"},
		"away":                       {t.Context(), fmt.Errorf("look: %w", dedup.ErrUnavailable), "unavailable"},
		"interrupted":                {ended, fmt.Errorf("look: %w", context.Canceled), "unavailable"},
		"interrupted, another error": {ended, broken, "unavailable"},
		"a fault before Ctrl-C":      {ended, &dedup.SetupError{}, "unfit"},
		"no fault before Ctrl-C":     {ended, nil, "ok"},
	} {
		l := &openedStore{store: checkedStore{err: c.err}, state: tables{layout: "readable"}}
		require.Equal(t, c.want, l.status(c.ctx).State, name)
	}
}

// The command that the store suggests makes the tables, once the password is in the named variable.
// A password on the command line is refused (G-04).
func TestMigrate_AsTheStoreSuggests(t *testing.T) {
	pool, err := pgxpool.New(t.Context(), testenv.Postgres(t))
	require.NoError(t, err)
	defer pool.Close()
	box := pgoutbox.New(pool)
	_, noLedger := pgstore.New(pool).Check(t.Context())
	_, noOutbox := box.Check(t.Context())
	for variable, missing := range map[string]error{"IDEM_STORE": noLedger, "IDEM_OUTBOX": noOutbox} {
		require.Error(t, missing)
		_, text, _ := strings.Cut(missing.Error(), "`")
		text, _, _ = strings.Cut(text, "`")
		words := strings.Fields(text)
		name, value, _ := strings.Cut(words[0], "=")
		require.Equal(t, variable, name, text)
		require.Equal(t, "idem", words[1])
		t.Setenv(name, strings.Replace(value, ":xxxxx@", ":"+url.QueryEscape(pool.Config().ConnConfig.Password)+"@", 1))
		command(t, words[2:]...).ok(t)
	}
	_, err = pgstore.New(pool).Check(t.Context())
	require.NoError(t, err)
	_, err = box.Check(t.Context())
	require.NoError(t, err)
}

// The sessions of this command are not those of the workers: the status does not warn of them.
// Behind a pooler that refuses the settings of the workers, no session has these.
func TestMigrateStatusDoesNotWarnOfItsOwnSession(t *testing.T) {
	const warning = "client_connection_check_interval is 0"
	store := testenv.Postgres(t)
	command(t, "migrate", "up", "--store", store).ok(t)
	var all []tablesView
	command(t, "migrate", "status", "--store", store, "-o", "json").json(t, &all)
	require.Equal(t, "ok", all[0].State)
	require.NotContains(t, strings.Join(all[0].Warnings, "\n"), warning)

	u, err := url.Parse(store)
	require.NoError(t, err)
	u.Host = pooler(t, u.Host, true)
	command(t, "migrate", "status", "--store", u.String(), "-o", "json").json(t, &all)
	require.Equal(t, "ok", all[0].State)
	require.Contains(t, strings.Join(all[0].Warnings, "\n"), warning)
}
