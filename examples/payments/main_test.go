package main

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestUsage(t *testing.T) {
	t.Setenv("POSTGRES_URL", "")
	for _, c := range []struct {
		args []string
		want int
		says string
	}{
		{[]string{"-h"}, exitOK, "Usage of payments"},
		{[]string{"-nonsense"}, exitUsage, "not defined"},
		{nil, exitUsage, "-postgres is missing"},
		{[]string{"-postgres", "postgres://x", "now"}, exitUsage, `unexpected argument "now"`},
		{[]string{"-postgres", "postgres://x", "-connections", "0"}, exitUsage, "-connections must be"},
		{[]string{"-postgres", "postgres://x", "-provider-timeout", "14s"}, exitUsage, "-provider-timeout must be"},
		{[]string{"-postgres", "postgres://x", "-topic", "no topic"}, exitUsage, `-topic "no topic" is no name`},
		{[]string{"-postgres", "postgres://u:hidden@h:bad/x"}, exitError, "cannot be parsed"},
		{[]string{"-postgres", "postgres://127.0.0.1:1/none"}, exitError, "migrate"},
		{[]string{"-fake-provider", "nowhere:at-all"}, exitError, "failed"},
	} {
		var stderr bytes.Buffer
		require.Equal(t, c.want, run(t.Context(), c.args, &stderr), "%q: %s", c.args, &stderr)
		require.Contains(t, stderr.String(), c.says, "%q", c.args)
		require.NotContains(t, stderr.String(), "hidden", "%q", c.args)
	}
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
