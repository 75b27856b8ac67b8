package main

import (
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/internal/doctor"
	"github.com/idem-go/idem/internal/testenv"
)

// redisPlace is a server of the test's own, as it should be.
type redisPlace struct {
	*testing.T
	addr string
	*redis.Client
}

func newRedisPlace(t *testing.T) *redisPlace {
	t.Helper()
	testenv.RedisOptions(t) // only where services are wanted at all
	p := &redisPlace{T: t, addr: testenv.RedisServer(t, "--appendonly", "yes", "--appendfsync", "everysec", "--maxmemory", "1gb",
		"--maxmemory-policy", "noeviction")}
	p.Client = redis.NewClient(&redis.Options{Addr: p.addr})
	t.Cleanup(func() { _ = p.Client.Close() })
	return p
}

func (p *redisPlace) base() []string {
	return []string{"--store", "redis://" + p.addr, "-G", "billing"}
}

func (p *redisPlace) set(name, value string) {
	p.Helper()
	require.NoError(p, p.ConfigSet(p.T.Context(), name, value).Err())
}

func (p *redisPlace) follow(master string) {
	p.Helper()
	host, port, err := net.SplitHostPort(master)
	require.NoError(p, err)
	require.NoError(p, p.ReplicaOf(p.T.Context(), host, port).Err())
}

// info waits until INFO says so.
func (p *redisPlace) info(section, says string) {
	p.Helper()
	require.Eventually(p, func() bool {
		text, err := p.Info(p.T.Context(), section).Result()
		return err == nil && strings.Contains(text, says)
	}, 20*time.Second, 50*time.Millisecond, says)
}

// Misconfigurations of a Redis, each alone on a server that was
// right.
func TestDoctor_RedisPlanted(t *testing.T) {
	for _, c := range []struct {
		plant
		do func(p *redisPlace)
	}{
		{plant{name: "evicts", id: "redis.eviction", want: doctor.Bad, says: "CONFIG SET maxmemory-policy noeviction"},
			func(p *redisPlace) { p.set("maxmemory-policy", "allkeys-lru") }},
		{plant{name: "has evicted", id: "redis.evicted", want: doctor.Warn, says: "may be handled again"}, func(p *redisPlace) {
			require.NoError(p, p.Set(p.T.Context(), "x", strings.Repeat("x", 1000), 0).Err())
			p.set("maxmemory-policy", "allkeys-random")
			p.set("maxmemory", "1")
			_ = p.Set(p.T.Context(), "y", "y", 0).Err() // makes room, in vain
			p.set("maxmemory", "1gb")
			p.set("maxmemory-policy", "noeviction")
		}},
		{plant{name: "no limit", id: "redis.memory", want: doctor.Warn, says: "maxmemory is not set"}, func(p *redisPlace) { p.set("maxmemory", "0") }},
		{plant{name: "full", id: "redis.memory", want: doctor.Bad, says: "soon no event can be claimed"}, func(p *redisPlace) { p.set("maxmemory", "800kb") }},
		{plant{name: "forgets", id: "redis.persistence", want: doctor.Warn, says: "CONFIG SET appendonly yes"}, func(p *redisPlace) { p.set("appendonly", "no") }},
		{plant{name: "forgets half a minute", id: "redis.persistence", want: doctor.Warn, says: "appendfsync everysec"}, func(p *redisPlace) { p.set("appendfsync", "no") }},
		{plant{name: "cannot save", id: "redis.writing", want: doctor.Bad, says: "rdb_last_bgsave_status"}, func(p *redisPlace) {
			dir, err := p.ConfigGet(p.T.Context(), "dir").Result()
			require.NoError(p, err)
			require.NoError(p, os.RemoveAll(dir["dir"]))
			_ = p.BgSave(p.T.Context()).Err()
			p.info("persistence", "rdb_last_bgsave_status:err")
		}},
		{plant{name: "a replica", id: "redis.role", want: doctor.Bad, says: "a replica"}, func(p *redisPlace) {
			p.follow(newRedisPlace(p.T).addr)
			p.info("replication", "role:slave")
		}},
		{plant{name: "a master that is cut off", id: "redis.replication", want: doctor.Warn, says: "min-replicas-to-write 1"}, func(p *redisPlace) {
			newRedisPlace(p.T).follow(p.addr)
			p.info("replication", "connected_slaves:1")
		}},
		{plant{name: "may not tell", id: "redis.rights", want: doctor.Unknown, says: "ACL SETUSER default +info +config|get"}, func(p *redisPlace) {
			require.NoError(p, p.Do(p.T.Context(), "ACL", "SETUSER", "default", "-info", "-config").Err())
		}},
		{plant{name: "may not tell appendfsync", id: "redis.rights", want: doctor.Unknown, says: "+config|get"}, func(p *redisPlace) {
			require.NoError(p, p.Do(p.T.Context(), "ACL", "SETUSER", "default", "-config").Err())
		}},
		{plant{name: "may not tell the time", id: "redis.rights", want: doctor.Bad, says: "+time"}, func(p *redisPlace) {
			require.NoError(p, p.Do(p.T.Context(), "ACL", "SETUSER", "default", "-time").Err())
		}},
		{plant{name: "password", id: "redis.connect", want: doctor.Bad, says: "NOAUTH"}, func(p *redisPlace) { p.set("requirepass", "secret") }},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := newRedisPlace(t)
			c.found(t, p.base(), func() { c.do(p) })
		})
	}
}

// A server as it should be, and a master with a replica that counts.
func TestDoctor_RedisClean(t *testing.T) {
	p := newRedisPlace(t)
	clean := func() {
		t.Helper()
		r := examined(t, p.base()...)
		for _, f := range r {
			if strings.HasPrefix(f.ID, "redis.") {
				require.Equal(t, doctor.OK, f.Verdict, "%+v", f)
			}
			if f.ID == "redis.rights" {
				require.Contains(t, f.Detail, "INFO, CONFIG GET and TIME are permitted", "only what was tried")
			}
		}
	}
	clean()
	newRedisPlace(t).follow(p.addr)
	p.info("replication", "connected_slaves:1")
	p.set("min-replicas-to-write", "1")
	clean()
}

// Every master of a cluster is looked at, and its slots.
func TestDoctor_RedisCluster(t *testing.T) {
	testenv.RedisOptions(t)
	addrs := testenv.RedisClusterServers(t, 2)
	base := []string{"--store", "redis+cluster://" + strings.Join(addrs, ","), "-G", "billing"}
	second := redis.NewClient(&redis.Options{Addr: addrs[1]})
	defer second.Close()
	plant{id: "redis.eviction", want: doctor.Bad, says: "is evicted"}.found(t, base, func() {
		require.NoError(t, second.ConfigSet(t.Context(), "maxmemory-policy", "volatile-ttl").Err())
	})
	r := examined(t, base...)
	require.Equal(t, "redis "+addrs[1], r.worst("redis.eviction").On)
	require.NoError(t, second.ConfigSet(t.Context(), "maxmemory-policy", "noeviction").Err())
	r = examined(t, "--store", "redis://"+addrs[0], "-G", "billing")
	require.Equal(t, doctor.Warn, r.worst("redis.connect").Verdict)
	require.Contains(t, r.worst("redis.connect").Remedy, "redis+cluster://")
	require.Equal(t, doctor.OK, r.worst("redis.cluster").Verdict)
	plant{id: "redis.cluster", want: doctor.Bad, says: "slots", also: []string{"redis.connect", "redis.store"}}.found(t, base, func() {
		for _, addr := range addrs {
			c := redis.NewClient(&redis.Options{Addr: addr})
			require.NoError(t, c.ClusterDelSlots(t.Context(), 16383).Err())
			_ = c.Close()
		}
	})
}
