package main

import (
	"bytes"
	"context"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/internal/testenv"
)

func TestUsage(t *testing.T) {
	t.Setenv("POSTGRES_URL", "")
	for _, c := range []struct {
		args []string
		want int
		says string
	}{
		{[]string{"-h"}, exitOK, "Usage of orderstatus"},
		{[]string{"-nonsense"}, exitUsage, "not defined"},
		{[]string{"-brokers", "b:9092"}, exitUsage, "-postgres is missing"},
		{[]string{"-postgres", "postgres://x"}, exitUsage, "-brokers is missing"},
		{[]string{"-postgres", "postgres://x", "-seed", "-1"}, exitUsage, "must not be negative"},
		{[]string{"-postgres", "postgres://x", "-migrate", "now"}, exitUsage, `unexpected argument "now"`},
		{[]string{"-postgres", "postgres://127.0.0.1:1/none", "-migrate"}, exitError, "migrate"},
	} {
		var stderr bytes.Buffer
		require.Equal(t, c.want, run(t.Context(), c.args, &stderr), "%q: %s", c.args, &stderr)
		require.Contains(t, stderr.String(), c.says, "%q", c.args)
	}
}

// Preparing is done by every worker at its start: several at once, and again and again.
func TestMigrateAndSeed_Idempotent(t *testing.T) {
	url := testenv.Postgres(t)
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			var stderr bytes.Buffer
			if code := run(t.Context(), []string{"-postgres", url, "-migrate", "-seed", "100"}, &stderr); code != exitOK {
				t.Errorf("exit code %d: %s", code, &stderr)
			}
		})
	}
	all.Wait()
	conn, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	defer conn.Close(context.Background())
	var n, low, high int
	require.NoError(t, conn.QueryRow(t.Context(), `SELECT count(*), min(id), max(id) FROM orders WHERE status = 'pending'`).Scan(&n, &low, &high))
	require.Equal(t, []int{100, 1, 100}, []int{n, low, high})
}

// G-04: flags whose defaults are taken from the environment do not print them.
func TestHelp_ShowsNoPassword_G04(t *testing.T) {
	for _, name := range []string{"POSTGRES_URL", "REDIS_URL", "PAYMENTS_SECRET"} {
		t.Setenv(name, "postgres://u:hidden@h/x")
	}
	for _, arg := range []string{"-h", "-help", "-nonsense"} {
		var stderr bytes.Buffer
		run(t.Context(), []string{arg}, &stderr)
		require.Contains(t, stderr.String(), "-postgres URL")
		require.NotContains(t, stderr.String(), "hidden")
	}
}
