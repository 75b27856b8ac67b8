package testenv

import (
	"context"
	"crypto/rand"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// RedisCluster returns a client of the Redis Cluster in REDIS_CLUSTER and a new key prefix. Cleanup
// deletes the keys with that prefix and closes the client. Without the variable the test is
// skipped, or fails if IDEM_REQUIRE_SERVICES is set.
func RedisCluster(t testing.TB) (client *redis.ClusterClient, prefix string) {
	t.Helper()
	opts := RedisClusterOptions(t)
	client = redis.NewClusterClient(opts)
	prefix = "test-" + rand.Text() + ":"
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		cleaner := redis.NewClusterClient(opts) // the test may have closed another client
		defer cleaner.Close()
		err := cleaner.ForEachMaster(ctx, func(ctx context.Context, c *redis.Client) error {
			return unlinkAll(ctx, c, prefix)
		})
		if err != nil {
			t.Errorf("delete the keys of the test: %v", err)
		}
		_ = client.Close()
	})
	return client, prefix
}

// RedisClusterOptions returns the client options for the cluster in REDIS_CLUSTER, for a test that
// makes its own client.
func RedisClusterOptions(t testing.TB) *redis.ClusterOptions {
	t.Helper()
	return &redis.ClusterOptions{Addrs: strings.Split(service(t, "REDIS_CLUSTER"), ",")}
}

// slots is the number of slots of every Redis Cluster.
const slots = 16384

// RedisClusterServers starts a private cluster of n masters, and returns their addresses. The
// masters share the slots in order. Cleanup kills the servers.
func RedisClusterServers(t testing.TB, n int) (addrs []string) {
	t.Helper()
	nodes := make([]*redis.Client, n)
	for i := range nodes {
		_, bus, err := net.SplitHostPort(FreeAddr(t))
		require.NoError(t, err)
		addr := RedisServer(t, "--cluster-enabled", "yes", "--cluster-port", bus,
			"--appendonly", "yes", "--appendfsync", "no")
		nodes[i] = redis.NewClient(&redis.Options{Addr: addr})
		t.Cleanup(func() { _ = nodes[i].Close() })
		require.NoError(t, nodes[i].Do(t.Context(), "cluster", "set-config-epoch", i+1).Err())
		first, last := i*slots/n, (i+1)*slots/n-1
		require.NoError(t, nodes[i].ClusterAddSlotsRange(t.Context(), first, last).Err())
		if i > 0 {
			host, port, err := net.SplitHostPort(addrs[0])
			require.NoError(t, err)
			meet := []any{"cluster", "meet", host, port, busOf(t, nodes[0])}
			require.NoError(t, nodes[i].Do(t.Context(), meet...).Err())
		}
		addrs = append(addrs, addr)
	}
	for _, node := range nodes {
		require.Eventually(t, func() bool {
			info, err := node.ClusterInfo(t.Context()).Result()
			return err == nil && strings.Contains(info, "cluster_state:ok") &&
				strings.Contains(info, "cluster_known_nodes:"+strconv.Itoa(n)+"\r")
		}, 20*time.Second, 20*time.Millisecond, "the cluster does not become healthy")
	}
	return addrs
}

// busOf returns the port of a node for the other nodes.
func busOf(t testing.TB, node *redis.Client) string {
	t.Helper()
	config, err := node.ConfigGet(t.Context(), "cluster-port").Result()
	require.NoError(t, err)
	return config["cluster-port"]
}
