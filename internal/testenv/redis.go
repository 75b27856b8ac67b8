package testenv

import (
	"context"
	"crypto/rand"
	"net"
	"os"
	"os/exec"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// Redis returns a client of the Redis in REDIS_URL and a new key prefix. Cleanup deletes the keys
// with that prefix and closes the client. Without the variable the test is skipped, or fails if
// IDEM_REQUIRE_SERVICES is set.
func Redis(t testing.TB) (client *redis.Client, prefix string) {
	t.Helper()
	opts := RedisOptions(t)
	client = redis.NewClient(opts)
	prefix = "test-" + rand.Text() + ":"
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		cleaner := redis.NewClient(opts) // the test may have closed another client
		defer cleaner.Close()
		if err := unlinkAll(ctx, cleaner, prefix); err != nil {
			t.Errorf("delete the keys of the test: %v", err)
		}
		_ = client.Close()
	})
	return client, prefix
}

// unlinkAll deletes the keys of one server that begin with prefix. Each key has a command of its
// own, because the keys of a cluster are in many slots.
func unlinkAll(ctx context.Context, server *redis.Client, prefix string) error {
	var keys []string
	for it := server.Scan(ctx, 0, prefix+"*", 1000).Iterator(); it.Next(ctx); {
		keys = append(keys, it.Val())
	}
	for part := range slices.Chunk(keys, 1000) {
		_, err := server.Pipelined(ctx, func(pipe redis.Pipeliner) error {
			for _, key := range part {
				pipe.Unlink(ctx, key)
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// RedisOptions returns the client options for the Redis in REDIS_URL, for a test that makes its own
// client.
func RedisOptions(t testing.TB) *redis.Options {
	t.Helper()
	opts, err := redis.ParseURL(service(t, "REDIS_URL"))
	require.NoError(t, err, "REDIS_URL")
	return opts
}

// RedisServer starts a private redis-server with args on a free port, and returns its address.
// Cleanup kills the server. Without the program the test is skipped, or fails if
// IDEM_REQUIRE_SERVICES is set.
func RedisServer(t testing.TB, args ...string) (addr string) {
	t.Helper()
	path, err := exec.LookPath("redis-server")
	switch {
	case err == nil:
	case os.Getenv("IDEM_REQUIRE_SERVICES") != "":
		t.Fatal("redis-server must be on the path, version 7 or later")
	default:
		t.Skip("no redis-server on the path: install Redis 7 or later")
	}
	addr = FreeAddr(t)
	host, port, err := net.SplitHostPort(addr)
	require.NoError(t, err)
	own := []string{
		"--bind", host, "--port", port, "--dir", t.TempDir(), "--save", "", "--daemonize", "no",
	}
	cmd := exec.Command(path, append(own, args...)...)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // the status of a killed process has no meaning
	})
	probe := redis.NewClient(&redis.Options{Addr: addr, MaxRetries: -1, DialTimeout: time.Second})
	defer probe.Close()
	require.Eventually(t, func() bool { return probe.Ping(t.Context()).Err() == nil },
		10*time.Second, 20*time.Millisecond, "redis-server %v does not answer", args)
	return addr
}
