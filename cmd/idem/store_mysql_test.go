package main

import (
	"database/sql"
	"strings"
	"testing"

	driver "github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/dedup/sqlstore/mysql"
	"github.com/idem-go/idem/internal/testenv"
)

func TestMySQLConfig(t *testing.T) {
	for text, want := range map[string]struct{ addr, user, password, name string }{
		"mysql://u:p%40ss@h/shop":         {"h:3306", "u", "p@ss", "shop"},
		"mariadb://h:3307/shop?tls=true":  {"h:3307", "", "", "shop"},
		"mysql://u@[::1]:3306/my%20shop":  {"[::1]:3306", "u", "", "my shop"},
		"mysql://u@h/shop?readTimeout=3s": {"h:3306", "u", "", "shop"},
	} {
		cfg, err := mysqlConfig(text)
		require.NoError(t, err, text)
		require.Equal(t, want, struct{ addr, user, password, name string }{cfg.Addr, cfg.User, cfg.Passwd, cfg.DBName}, text)
		require.Equal(t, connectTimeout, cfg.Timeout)
	}
	for _, text := range []string{
		"mysql://u:canary@h", "mysql://u:canary@h/", "mysql:///shop", "mysql://u:canary@h/a/b", "mysql://u:can#ary@h/shop",
		"mysql://u:canary@h:port/shop", "mysql://u:can/ary@h/shop", "mysql://u:canary@h/shop?tls=canary", "mysql://u:canary@h/shop?parseTime=canary",
	} {
		r := command(t, "event", "get", "x", "-G", "g", "--type", "t", "--store", text)
		require.Equal(t, exitUsage, r.code, "%s: %s", text, r.stderr)
		require.NotContains(t, r.stdout+r.stderr, "canary", text)
	}
}

// A store in MariaDB is opened by its URL, for all verbs that work on events.
func TestMariaDB(t *testing.T) {
	cfg, err := driver.ParseDSN(testenv.MariaDB(t))
	require.NoError(t, err)
	store := "mysql://" + cfg.User + ":" + cfg.Passwd + "@" + cfg.Addr + "/" + cfg.DBName
	command(t, "migrate", "status", "--store", store).failed(t, exitFound, "must not be used")
	r := command(t, "event", "get", "1", "-G", "billing", "--store", store)
	require.Equal(t, exitFailure, r.code, "%s", r.stderr)
	require.Contains(t, command(t, "migrate", "up", "--store", store).ok(t), "ok")
	require.Contains(t, command(t, "migrate", "status", "--store", store).ok(t), "ok")

	db, err := sql.Open("mysql", cfg.FormatDSN())
	require.NoError(t, err)
	defer db.Close()
	s := mysql.New(db)
	finish(t, s, claim(t, s, inScope("order", "1"), dedupOrigin(1)), "")
	finish(t, s, claim(t, s, inScope("order", "2"), dedupOrigin(2)), "no account")
	require.Contains(t, command(t, "event", "get", "1", "-G", "billing", "--store", store).ok(t), "state       done")
	require.Contains(t, command(t, "event", "list", "--status", "failed", "--store", store).ok(t), "no account")
	command(t, "event", "release", "1", "-G", "billing", "--store", store, "-y").ok(t)
	command(t, "event", "get", "1", "-G", "billing", "--store", store).failed(t, exitFound, "not known")
	require.Contains(t, command(t, "reap", "--store", store).ok(t), "mysql "+cfg.Addr)

	away := "mysql://u:canary-4711@" + testenv.FreeAddr(t) + "/shop"
	for _, args := range [][]string{{"event", "get", "1", "-G", "billing"}, {"migrate", "up"}, {"migrate", "status"}, {"reap"}} {
		r := command(t, append(args, "--store", away)...)
		require.Equal(t, exitFailure, r.code, "%v: %s", args, r.stderr)
		require.NotContains(t, r.stdout+r.stderr, "canary", strings.Join(args, " "))
	}
}
