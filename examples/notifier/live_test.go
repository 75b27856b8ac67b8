package main

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/examples/internal/cli"
)

// said is a writer that may be read at the same time.
type said struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *said) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *said) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// The demonstration that does not end shows its address and has events within seconds, and ends on
// request.
func TestLive(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var out, stderr said
	code := make(chan int, 1)
	go func() { code <- run(ctx, []string{"-ops", "127.0.0.1:0"}, &out, &stderr) }()
	url := regexp.MustCompile(`http://127\.0\.0\.1:\d+/idem/`)
	require.Eventually(t, func() bool { return url.MatchString(out.String()) }, 10*time.Second, 20*time.Millisecond, "%s", &out)
	at := url.FindString(out.String())
	get := func(path string) string {
		res, err := http.Get(at + path)
		if err != nil {
			return ""
		}
		defer res.Body.Close()
		body, err := io.ReadAll(res.Body)
		require.NoError(t, err)
		return string(body)
	}
	duplicates := regexp.MustCompile(`id="duplicate-counter" data-live><b>[1-9]`)
	require.Eventually(t, func() bool { return duplicates.MatchString(get("activity")) }, 20*time.Second, 100*time.Millisecond)
	if !assert.Eventually(t, func() bool { return strings.Contains(get("event?id=evt-000001"), "Yes, it was handled") }, 20*time.Second, 100*time.Millisecond) {
		t.Fatal(get("event?id=evt-000001"))
	}
	require.Contains(t, get("partitions"), "worker-2")
	stop()
	select {
	case c := <-code:
		require.Equal(t, cli.ExitOK, c, "%s%s", &out, &stderr)
	case <-time.After(20 * time.Second):
		t.Fatalf("it does not end: %s%s", &out, &stderr)
	}
}

func TestLoopbackAddress(t *testing.T) {
	for addr, ok := range map[string]bool{
		"127.0.0.1:0": true, "localhost:80": true, "[::1]:80": true, ":80": false, "0.0.0.0:80": false, "192.0.2.1:80": false, "example.com:80": false, "127.0.0.1": false,
	} {
		require.Equal(t, ok, loopbackAddress(addr), addr)
	}
}
