package drills

import (
	"context"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/dedup/redisstore"
	"github.com/idem-go/idem/internal/testenv"
)

// a node of a cluster dies under load, and its replica takes over by itself. No event
// is lost.
func TestRedisClusterFailover_R12_R14(t *testing.T) {
	needLong(t)
	nodes, addrs := startRedisCluster(t)
	effects := newCounts()
	var workers []*idem.Processor
	for range 3 {
		client := redis.NewClusterClient(&redis.ClusterOptions{
			Addrs: addrs, ContextTimeoutEnabled: true, DialTimeout: time.Second, ReadTimeout: 2 * time.Second, PoolTimeout: time.Second,
		})
		t.Cleanup(func() { _ = client.Close() })
		router := idem.NewRouter()
		idem.On(router, "outside", func(_ context.Context, e idem.Event[event]) error {
			effects.add(e.ID)
			return nil
		})
		workers = append(workers, worker(t, redisstore.New(client), router))
	}
	l := startLoad(t, workers, time.Millisecond, "outside")
	time.Sleep(5 * time.Second)
	nodes[0].kill()
	died := time.Now()
	require.Eventually(t, func() bool {
		info, err := nodes[1].admin.ClusterInfo(t.Context()).Result()
		return err == nil && strings.Contains(info, "cluster_state:ok") && strings.Contains(roleOf(t, nodes[3]), "role:master")
	}, 30*time.Second, 50*time.Millisecond, "no replica takes over")
	away := time.Since(died)
	time.Sleep(5 * time.Second)
	l.stop()
	l.again(t, workers[0])
	r := tally(l.sent(""), effects.copyOf())
	r.began = l.began
	back := l.back(died)
	age, span := l.reach(effects.copyOf(), died)
	r.notes = fmt.Sprintf("the replica took over after %d ms, and events were settled again after %d ms; forgotten: the records of %d ms, from %d ms before the death of the node on",
		away.Milliseconds(), back.Milliseconds(), span.Milliseconds(), age.Milliseconds())
	r.print(t)
	require.Zero(t, r.lost)
	require.Less(t, age, 2*time.Second, "older records are on the replica")
	require.Less(t, back, 20*time.Second, "the client of the cluster goes on asking the dead node")
}

// back returns how long after a moment the first batch was settled that was not settled before.
func (l *load) back(moment time.Time) (after time.Duration) {
	for k := range l.end.Load() {
		at, ok := l.settledAt.Load(k)
		settled, _ := at.(time.Time)
		if ok && settled.After(moment) {
			return settled.Sub(moment)
		}
	}
	return 0
}

func roleOf(t testing.TB, s *redisServer) string {
	t.Helper()
	info, err := s.admin.Info(t.Context(), "replication").Result()
	if err != nil {
		return err.Error()
	}
	return info
}

// startRedisCluster starts three masters and, behind them, a replica of each.
func startRedisCluster(t testing.TB) (nodes []*redisServer, addrs []string) {
	t.Helper()
	const masters, slots = 3, 16384
	for i := range 2 * masters {
		_, bus, err := net.SplitHostPort(testenv.FreeAddr(t))
		require.NoError(t, err)
		n := startRedis(t, "--cluster-enabled", "yes", "--cluster-port", bus, "--cluster-node-timeout", "2000")
		require.NoError(t, n.admin.Do(t.Context(), "cluster", "set-config-epoch", i+1).Err())
		if i < masters {
			require.NoError(t, n.admin.ClusterAddSlotsRange(t.Context(), i*slots/masters, (i+1)*slots/masters-1).Err())
		}
		if i > 0 {
			host, port, err := net.SplitHostPort(addrs[0])
			require.NoError(t, err)
			first, err := nodes[0].admin.ConfigGet(t.Context(), "cluster-port").Result()
			require.NoError(t, err)
			require.NoError(t, n.admin.Do(t.Context(), "cluster", "meet", host, port, first["cluster-port"]).Err())
		}
		nodes, addrs = append(nodes, n), append(addrs, n.addr)
	}
	for i, n := range nodes[masters:] {
		id, err := nodes[i].admin.Do(t.Context(), "cluster", "myid").Text()
		require.NoError(t, err)
		require.Eventually(t, func() bool { return n.admin.ClusterReplicate(t.Context(), id).Err() == nil },
			20*time.Second, 50*time.Millisecond, "a replica does not know its master")
	}
	for _, n := range nodes {
		require.Eventually(t, func() bool {
			info, err := n.admin.ClusterInfo(t.Context()).Result()
			role := roleOf(t, n)
			return err == nil && strings.Contains(info, "cluster_state:ok") && strings.Contains(info, "cluster_known_nodes:6\r") &&
				(strings.Contains(role, "role:master") || strings.Contains(role, "master_link_status:up"))
		}, 30*time.Second, 50*time.Millisecond, "the cluster does not become healthy")
	}
	return nodes, addrs
}
