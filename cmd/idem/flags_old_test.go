package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A former name of a flag means the same. The warning is not part of the result.
func TestOldNamesOfFlags(t *testing.T) {
	s, known := memory()
	finish(t, s, claim(t, s, inScope("order", "1"), dedupOrigin(1)), "")
	list := []string{"event", "list", "-G", "billing", "--store", inMemory, "-o", "json"}
	for _, flag := range []string{"--older", "--until"} {
		r := commandWith(t, known, "", append(list, flag, "1h")...)
		require.Equal(t, "[]\n", r.ok(t))
		require.Equal(t, flag == "--older", strings.Contains(r.stderr, "--older is the old name of --until"))
	}
	command(t, "import", "--from-topic", "t", "--to-time", "x", "-G", "g", "--to-committed").failed(t, exitUsage, "to-time")
	command(t, "import", "--from-topic", "t", "--to-time", "x", "-G", "g", "--until", "1h").failed(t, exitUsage, "until")
	require.NotContains(t, command(t, "import", "--help").ok(t), "to-time")
}

func TestParseTime(t *testing.T) {
	for text, want := range map[string]string{
		"2026-01-31T12:00:00Z": "2026-01-31T12:00:00Z", "2026-01-31": "2026-01-31T00:00:00Z", "2026-01-31T12:00:00+02:00": "2026-01-31T10:00:00Z",
	} {
		at, err := parseTime("since", text)
		require.NoError(t, err)
		require.Equal(t, want, at.UTC().Format("2006-01-02T15:04:05Z"))
	}
	for _, text := range []string{"-5m", "yesterday", "31.1.2026"} {
		_, err := parseTime("since", text)
		require.ErrorContains(t, err, "--since is a time such as")
	}
}
