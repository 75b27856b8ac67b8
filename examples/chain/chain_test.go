package main

import (
	"bytes"
	"cmp"
	"math/rand/v2"
	"os"
	"regexp"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/examples/internal/cli"
	"github.com/idem-go/idem/internal/testenv"
)

// The whole chain on the real services, small: six processes are killed while 60 payments flow, and
// then all records are delivered again (O-01, O-08, O-14, H-23).
func TestChain_Idempotent(t *testing.T) {
	testenv.Kafka(t)
	testenv.Postgres(t)
	testenv.RedisOptions(t)
	args := []string{"-payments", "60", "-over", "5s"}
	if os.Getenv("IDEM_SOAK") != "" {
		args = []string{"-payments", "5000", "-over", "60s"}
	}
	seed := cmp.Or(os.Getenv("IDEM_SEED"), strconv.FormatUint(rand.Uint64N(1e9)+1, 10))
	var stdout, stderr bytes.Buffer
	code := run(t.Context(), append(args, "-seed", seed), &stdout, &stderr)
	t.Logf("%s%s", &stdout, &stderr)
	require.Equal(t, cli.ExitOK, code, "seed %s", seed)
	n, err := strconv.Atoi(args[1])
	require.NoError(t, err)
	t.Logf("soak: %s seed=%s size=%d kills=%d cuts=0 rebalances=0 outcome=none lost, %d repeats", t.Name(), seed, n,
		figure(t, stdout.String(), "killed"), figure(t, stdout.String(), "repeats"))
	for _, row := range []string{"payments", "charges", "orders paid", "notifications"} {
		require.Equal(t, n, figure(t, stdout.String(), row), row)
	}
	require.Zero(t, figure(t, stdout.String(), "lost"))
	require.Equal(t, 6, figure(t, stdout.String(), "killed"))
	require.GreaterOrEqual(t, figure(t, stdout.String(), "rewound"), 2*n)
	require.Contains(t, stdout.String(), "OK in")
}

// figure returns the number in a row.
func figure(t *testing.T, table, row string) int {
	t.Helper()
	m := regexp.MustCompile(`(?m)^  ` + row + ` +(\d+)   `).FindStringSubmatch(table)
	require.NotNil(t, m, "%s in\n%s", row, table)
	n, err := strconv.Atoi(m[1])
	require.NoError(t, err)
	return n
}

func TestUsage(t *testing.T) {
	for name, value := range map[string]string{
		"KAFKA_BROKERS": "127.0.0.1:1", "POSTGRES_URL": "postgres://u:hidden@127.0.0.1:1/x", "REDIS_URL": "redis://127.0.0.1:1",
	} {
		t.Setenv(name, value)
	}
	for says, args := range map[string][]string{
		"-payments must be 20 to":    {"-payments", "3"},
		"-concurrency must be":       {"-concurrency", "0"},
		"-over must be":              {"-over", "-1s"},
		`unexpected argument "now"`:  {"now"},
		"flag provided but not defi": {"-nonsense"},
	} {
		var out, errs bytes.Buffer
		require.Equal(t, cli.ExitUsage, run(t.Context(), args, &out, &errs), args)
		require.Contains(t, errs.String(), says)
		require.NotContains(t, errs.String(), "hidden")
		require.Empty(t, out.String())
	}
	for _, name := range []string{"KAFKA_BROKERS", "POSTGRES_URL", "REDIS_URL"} {
		t.Setenv(name, "")
	}
	var out, errs bytes.Buffer
	require.Equal(t, cli.ExitUsage, run(t.Context(), nil, &out, &errs))
	require.Contains(t, errs.String(), "KAFKA_BROKERS, POSTGRES_URL, REDIS_URL must be set: `make demo-chain`")
	require.Equal(t, cli.ExitOK, run(t.Context(), []string{"-h"}, &out, &errs))
}
