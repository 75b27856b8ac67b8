package main

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/examples/internal/cli"
)

// The program names a wrong flag and ends with 2 before it has any effect.
func TestBadFlags(t *testing.T) {
	worker := []string{"-brokers", "127.0.0.1:1", "-store", "memory"}
	for want, args := range map[string][]string{
		"-brokers is missing":                {"-topic", "t"},
		"-store is missing":                  {"-brokers", "127.0.0.1:1"},
		"-store must be sqlite:FILE":         {"-store", "redis://user:secret@host/0"},
		"-ops keeps its store in memory":     {"-ops", "127.0.0.1:0", "-store", "sqlite:x"},
		"-store must be memory":              {"-brokers", "127.0.0.1:1", "-store", "sqlite:"},
		"-store must be memory or":           {"-brokers", "127.0.0.1:1", "-store", "sqlite://x"},
		"-store must be":                     {"-brokers", "127.0.0.1:1", "-store", "mysql://root:secret@host/db"},
		"not a valid redis URL":              {"-brokers", "127.0.0.1:1", "-store", "redis://user:secret@host:port:port"},
		"not a valid Postgres URL":           {"-brokers", "127.0.0.1:1", "-store", "postgres://user:secret@host:port/db"},
		"want log, or":                       append(worker[:4:4], "-sender", "pigeon"),
		"-lease 10ms is shorter than 1s":     append(worker[:4:4], "-lease", "10ms"),
		"-retention 1m0s is shorter":         append(worker[:4:4], "-retention", "1m"),
		"-topic is empty":                    append(worker[:4:4], "-topic", ""),
		"-topic is empty\n":                  append(worker[:4:4], "-topic", "a,,b"),
		"-stats -1s is negative":             append(worker[:4:4], "-stats", "-1s"),
		"-ops 0.0.0.0:80 is not a loopback":  {"-ops", "0.0.0.0:80"},
		"-ops :8080 is not a loopback":       append(worker[:4:4], "-ops", ":8080"),
		"takes no other flags but -ops":      {"-ops", "127.0.0.1:0", "-group", "g"},
		"-group is empty":                    append(worker[:4:4], "-group", ""),
		`unexpected argument "extra"`:        append(worker[:4:4], "extra"),
		"flag provided but not defined":      {"-colour"},
		`invalid value "soon" for flag -lea`: {"-lease", "soon"},
	} {
		t.Run(want, func(t *testing.T) {
			var stdout, stderr bytes.Buffer
			require.Equal(t, cli.ExitUsage, run(t.Context(), args, &stdout, &stderr))
			require.Contains(t, stderr.String(), want)
			require.NotContains(t, stderr.String(), "secret", "passwords are not shown (G-04)")
			require.Empty(t, stdout.String())
		})
	}
	require.Equal(t, cli.ExitOK, run(t.Context(), []string{"-help"}, io.Discard, io.Discard))
}

func TestFlagDefaults(t *testing.T) {
	o, err := parseFlags([]string{"-brokers", " a:1, b:2,", "-store", "memory"}, io.Discard)
	require.NoError(t, err)
	require.Equal(t, []string{"a:1", "b:2"}, o.brokers)
	require.Equal(t, []string{"notifications", "notifier", "log"}, []string{o.topic, o.group, o.sender})
	require.Equal(t, []time.Duration{30 * time.Second, 4 * time.Hour}, []time.Duration{o.lease, o.retention})
	o, err = parseFlags([]string{"-brokers", "a:1", "-store", "memory", "-topic", "orders, notifications"}, io.Discard)
	require.NoError(t, err)
	require.Equal(t, []string{"orders", "notifications"}, o.topics())
	o, err = parseFlags([]string{"-v"}, io.Discard)
	require.NoError(t, err)
	require.Empty(t, o.brokers)
}

func TestHealth(t *testing.T) {
	o, err := parseFlags(nil, io.Discard)
	require.NoError(t, err)
	notReady := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) })
	h := healthHandler(notReady)
	for path, want := range map[string]int{"/healthz": 200, "/readyz": 503, "/": 404} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequestWithContext(context.Background(), http.MethodGet, path, nil))
		require.Equal(t, want, w.Code, path)
	}
	stop, err := serveHealth(t.Context(), "127.0.0.1:0", notReady, o.log)
	require.NoError(t, err)
	stop()
	_, err = serveHealth(t.Context(), "no address", notReady, o.log)
	require.Error(t, err)
}
