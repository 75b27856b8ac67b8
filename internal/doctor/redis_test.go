package doctor

import (
	"net"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/internal/testenv"
)

// A cluster before its slots are assigned has no master to ask.
func TestExamine_RedisClusterWithoutSlots(t *testing.T) {
	_, bus, err := net.SplitHostPort(testenv.FreeAddr(t))
	require.NoError(t, err)
	addr := testenv.RedisServer(t, "--cluster-enabled", "yes", "--cluster-port", bus)
	single := redis.NewClient(&redis.Options{Addr: addr})
	cluster := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{addr}})
	for _, client := range []redis.UniversalClient{single, cluster} {
		t.Cleanup(func() { _ = client.Close() })
		r, err := Examine(t.Context(), Input{Group: "g", Stores: []Store{{Redis: client}}})
		require.NoError(t, err)
		require.Equal(t, Bad, worst(r, "redis.cluster").Verdict, "%T: %+v", client, r)
		require.Contains(t, worst(r, "redis.cluster").Detail, "no slot is assigned")
	}
}
