package doctor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/idem-go/idem/dedup/redisstore"
	"github.com/idem-go/idem/internal/redact"
	"github.com/idem-go/idem/internal/words"
)

// redisFacts is the state of one server.
type redisFacts struct {
	addr         string
	user         string
	info         settings
	noInfo       bool   // not permitted
	noTime       bool   // not permitted
	appendfsync  string // "": not permitted
	skew, within time.Duration
}

func (d *examination) checkRedis(ctx context.Context, r *Findings, l *Store) {
	client, on, err := d.openRedis(ctx, l)
	if err != nil {
		r.say(Bad, "redis.connect", "redis", d.text(err), "redis://user:password@host:port/db")
		return
	}
	info := settings{}
	if single, is := client.(*redis.Client); is {
		if info, err = infoOf(ctx, single); err != nil && !notPermitted(err) {
			r.say(Bad, "redis.connect", on, d.text(err), "")
			return
		}
	}
	if single, is := client.(*redis.Client); is && info["cluster_enabled"] == "1" {
		r.say(Warn, "redis.connect", on, "the server is part of a cluster, and this URL is for "+
			"one server: the doctor checks the other masters too, but a redis.Client reaches "+
			"this one only",
			"redis+cluster:// in the URL, and a redis.ClusterClient in the workers")
		o := single.Options()
		cluster := redis.NewClusterClient(&redis.ClusterOptions{
			Addrs: []string{o.Addr}, Username: o.Username, Password: o.Password,
			TLSConfig: o.TLSConfig,
		})
		defer cluster.Close()
		client = cluster
	} else {
		r.say(OK, "redis.connect", on, "the server answers", "")
	}
	own, err := d.checkServers(ctx, client)
	if err != nil {
		r.say(Bad, "redis.connect", on, d.text(err), "")
		return
	}
	d.checkRedisStore(ctx, &own, on, client)
	*r = append(*r, own...)
}

// openRedis returns a client and its name, without credentials.
func (d *examination) openRedis(
	ctx context.Context, l *Store,
) (client redis.UniversalClient, name string, err error) {
	switch {
	case l.Redis == nil && (l.OpenRedis == nil || redact.SplitsPassword(l.URL)):
		return nil, "", errors.New("the URL cannot be opened (not shown, it may have a password)")
	case l.Redis == nil:
		return l.OpenRedis(ctx)
	}
	access := l.redisAccess()
	if single, is := l.Redis.(*redis.Client); is {
		return l.Redis, fmt.Sprintf("%s/%d", access.name(), single.Options().DB), nil
	}
	return l.Redis, "redis cluster " + strings.Join(access.hosts, ","), nil
}

// checkServers checks every master, in the order of their addresses.
func (d *examination) checkServers(
	ctx context.Context, client redis.UniversalClient,
) (own Findings, err error) {
	switch c := client.(type) {
	case *redis.ClusterClient:
		return d.checkCluster(ctx, c)
	case *redis.Client:
		f, err := d.askRedis(ctx, c)
		if err == nil {
			f.judge(&own)
		}
		return own, err
	}
	return nil, fmt.Errorf("unknown client %T", client)
}

func (d *examination) checkCluster(
	ctx context.Context, cluster *redis.ClusterClient,
) (own Findings, err error) {
	var mu sync.Mutex
	var all []*redisFacts
	err = cluster.ForEachMaster(ctx, func(ctx context.Context, c *redis.Client) error {
		f, err := d.askRedis(ctx, c)
		mu.Lock()
		defer mu.Unlock()
		all = append(all, f)
		return err
	})
	if err != nil {
		return nil, err
	}
	slices.SortFunc(all, func(a, b *redisFacts) int { return strings.Compare(a.addr, b.addr) })
	for _, f := range all {
		f.judge(&own)
	}
	const id, on = "redis.cluster", "redis cluster"
	if len(all) == 0 {
		own.say(Bad, id, on, "no slot is assigned to a master: no event can be recorded",
			"redis-cli --cluster create with the addresses of all servers")
		return own, nil
	}
	text, err := cluster.ClusterInfo(ctx).Result()
	if err != nil {
		own.say(Unknown, id, on, "not known: "+d.text(err), clusterRemedy(err, all[0].user))
		return own, nil
	}
	info := settings{}
	info.readLines(text)
	state, served := info["cluster_state"], info["cluster_slots_ok"]
	own.choose(id, on,
		fmt.Sprintf("%d masters serve all slots; the workers need a redis.ClusterClient", len(all)),
		choice{state != "ok" || served != "16384", Bad,
			fmt.Sprintf("cluster_state is %s, %s of 16384 slots are served: events in the other "+
				"slots wait", state, served),
			"redis-cli --cluster check " + all[0].addr})
	return own, nil
}

// infoOf reads INFO.
func infoOf(ctx context.Context, c *redis.Client) (settings, error) {
	info := settings{}
	sections := []string{"server", "memory", "persistence", "stats", "replication", "cluster"}
	for _, section := range sections {
		text, err := c.Info(ctx, section).Result()
		if err != nil {
			return info, err
		}
		info.readLines(text)
	}
	return info, nil
}

// notPermitted reports whether the server refuses the command for this user.
func notPermitted(err error) bool {
	return redis.HasErrorPrefix(err, "NOPERM") || redis.HasErrorPrefix(err, "unknown command")
}

func (d *examination) askRedis(ctx context.Context, c *redis.Client) (f *redisFacts, err error) {
	f = &redisFacts{addr: c.Options().Addr, user: c.Options().Username}
	f.info, err = infoOf(ctx, c)
	if f.noInfo = notPermitted(err); err != nil && !f.noInfo {
		return f, err
	}
	config, err := c.ConfigGet(ctx, "appendfsync").Result()
	if err != nil && !notPermitted(err) {
		return f, err
	}
	f.appendfsync = config["appendfsync"]
	f.skew, f.within, err = compareClocks(d.in.Now, func() (time.Time, error) {
		return c.Time(ctx).Result()
	})
	if f.noTime = notPermitted(err); f.noTime {
		return f, nil
	}
	return f, err
}

// clusterRemedy returns the remedy for a CLUSTER INFO that failed with err. It is empty unless the
// server said that a right is missing.
func clusterRemedy(err error, user string) string {
	if !notPermitted(err) {
		return ""
	}
	return aclSet(user, "+cluster|info")
}

func aclSet(user, rule string) string {
	if user == "" {
		user = "default"
	}
	return fmt.Sprintf("ACL SETUSER %s %s", user, rule)
}

// judge adds the findings of one server.
func (f *redisFacts) judge(r *Findings) {
	on := "redis " + f.addr
	f.judgeRights(r, on)
	if f.noInfo {
		return
	}
	version := f.info["redis_version"]
	major, err := strconv.Atoi(strings.SplitN(version, ".", 2)[0])
	r.choose("redis.version", on, version,
		choice{err != nil, Unknown, fmt.Sprintf("not known: %q", version), ""},
		choice{major < 7, Bad, version + ": SET with NX and GET together needs 7.0",
			"upgrade the server"})
	policy := f.info["maxmemory_policy"]
	r.choose("redis.eviction", on, policy,
		choice{policy == "", Unknown, "INFO does not return maxmemory-policy", ""},
		choice{policy != "noeviction", Bad, "maxmemory-policy is " + policy +
			": an event whose key is evicted is handled again, unnoticed",
			"CONFIG SET maxmemory-policy noeviction; CONFIG REWRITE; or a separate Redis"})
	evicted, _ := f.info.number("evicted_keys")
	r.choose("redis.evicted", on, "none",
		choice{evicted > 0, Warn,
			fmt.Sprintf("%d keys were evicted since the server started: "+
				"those events may be handled again", evicted),
			"the remedy of redis.eviction; CONFIG RESETSTAT resets the count"})
	f.judgeMemory(r, on)
	f.judgePersistence(r, on)
	f.judgeReplication(r, on)
	if !f.noTime {
		checkClock(r, "redis.clock", on, f.skew, f.within)
	}
}

func (f *redisFacts) judgeRights(r *Findings, on string) {
	r.choose("redis.rights", on, "INFO, CONFIG GET and TIME are permitted; "+
		"no other right was tried",
		choice{f.noTime, Bad, "TIME is not permitted: a worker refuses to start, " +
			"because it cannot compute the age of events", aclSet(f.user, "+time")},
		choice{f.noInfo, Unknown, "INFO is not permitted: version, eviction, memory, persistence " +
			"and role are not known", aclSet(f.user, "+info +config|get")},
		choice{f.appendfsync == "", Unknown,
			"CONFIG GET is not permitted: appendfsync is not known",
			aclSet(f.user, "+config|get")})
}

func (f *redisFacts) judgeMemory(r *Findings, on string) {
	limit, _ := f.info.number("maxmemory")
	used, _ := f.info.number("used_memory")
	share := 0.0
	if limit > 0 {
		share = 100 * float64(used) / float64(limit)
	}
	const mend = "CONFIG SET maxmemory <more>, or a shorter idem.Retention"
	full := fmt.Sprintf("%.0f %% of maxmemory is used", share)
	r.choose("redis.memory", on, fmt.Sprintf("%.0f %% of %d MB", share, limit>>20),
		choice{limit == 0, Warn,
			fmt.Sprintf("maxmemory is not set, %d MB are used: when memory is short, the system "+
				"kills the server, instead of the server refusing claims", used>>20),
			"CONFIG SET maxmemory <three quarters of the host's memory>"},
		choice{share >= 95, Bad,
			full + ": soon no event can be claimed, and the consumers stop", mend},
		choice{share >= 80, Warn, full, mend})
}

func (f *redisFacts) judgePersistence(r *Findings, on string) {
	aof := f.info["aof_enabled"]
	r.choose("redis.persistence", on, "appendonly is yes, appendfsync "+f.appendfsync+
		"; with everysec a crash loses at most the last second",
		choice{aof == "", Unknown, "INFO does not return the state of appendonly", ""},
		choice{aof == "0", Warn, "appendonly is no: a restart loses all events since the last " +
			"snapshot, if there is one, and those events are handled again",
			"CONFIG SET appendonly yes; CONFIG REWRITE"},
		choice{f.appendfsync == "no", Warn, "appendfsync is no: a crash of the host loses the " +
			"last half minute, and those events are handled again",
			"CONFIG SET appendfsync everysec; CONFIG REWRITE"},
		choice{f.appendfsync == "", OK, "appendonly is yes", ""})
	var failing []string
	for _, name := range []string{
		"aof_last_write_status", "aof_last_bgrewrite_status", "rdb_last_bgsave_status",
	} {
		if s := f.info[name]; s != "" && s != "ok" {
			failing = append(failing, name+" is "+s)
		}
	}
	r.choose("redis.writing", on, "the last writes succeeded",
		choice{len(failing) > 0, Bad, strings.Join(failing, ", ") +
			": the server refuses writes, or a restart loses them",
			"space and rights in the server's dir; the server's log has the cause"})
}

func (f *redisFacts) judgeReplication(r *Findings, on string) {
	role := f.info["role"]
	r.choose("redis.role", on, role,
		choice{role == "", Unknown, "INFO does not return the role", ""},
		choice{role != "master", Bad, "a replica: no event can be recorded",
			fmt.Sprintf("the address of the master, %s:%s, or a client that follows Sentinel",
				f.info["master_host"], f.info["master_port"])})
	if role != "master" {
		return
	}
	replicas, _ := f.info.number("connected_slaves")
	good, guarded := f.info.number("min_slaves_good_slaves") // only with min-replicas-to-write
	r.choose("redis.replication", on, words.Plain(replicas, "replica"),
		choice{guarded, OK, fmt.Sprintf("%s, %d of them close enough for "+
			"min-replicas-to-write", words.Plain(replicas, "replica"), good), ""},
		choice{replicas > 0, Warn,
			words.Plain(replicas, "replica") + ", and min-replicas-to-write is 0: a master that lost its " +
				"replicas still grants claims, and a failover loses those",
			"CONFIG SET min-replicas-to-write 1; CONFIG SET min-replicas-max-lag 10; " +
				"CONFIG REWRITE; a Postgres store for effects that must not repeat"})
}

// checkRedisStore runs the check of a worker's start, and reports the results that no other check
// has reported.
func (d *examination) checkRedisStore(
	ctx context.Context, own *Findings, on string, client redis.UniversalClient,
) {
	warnings, err := redisstore.New(client).Check(ctx)
	reported, refused := 0, false
	for _, f := range *own {
		switch f.ID {
		case "redis.rights", "redis.version", "redis.eviction", "redis.persistence":
			refused = refused || f.Verdict == Bad
			if f.Verdict != OK {
				reported++
			}
		}
	}
	detail := ""
	if err != nil {
		detail = d.text(err)
	}
	own.choose("redis.store", on, "no other problem",
		choice{err != nil && !refused, Bad, detail, ""},
		choice{len(warnings) > reported, Warn, strings.Join(warnings, "; "), ""})
}
