package redisstore

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/internal/testenv"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// privateCluster is a cluster of three servers that the test may stop and change.
type privateCluster struct {
	t      testing.TB
	addrs  []string
	nodes  []*redis.Client
	ids    []string
	client *redis.ClusterClient
}

func newPrivateCluster(t testing.TB) *privateCluster {
	p := &privateCluster{t: t, addrs: testenv.RedisClusterServers(t, 3)}
	for _, addr := range p.addrs {
		node := redis.NewClient(&redis.Options{Addr: addr, MaxRetries: -1})
		t.Cleanup(func() { _ = node.Close() })
		p.nodes = append(p.nodes, node)
		id, err := node.Do(t.Context(), "cluster", "myid").Text()
		require.NoError(t, err)
		p.ids = append(p.ids, id)
	}
	p.client = redis.NewClusterClient(&redis.ClusterOptions{Addrs: p.addrs})
	t.Cleanup(func() { _ = p.client.Close() })
	return p
}

// owner returns the index of the server that has the slot.
func (p *privateCluster) owner(slot int) int {
	shards, err := p.nodes[0].ClusterShards(p.t.Context()).Result()
	require.NoError(p.t, err)
	for _, shard := range shards {
		for _, r := range shard.Slots {
			if int64(slot) >= r.Start && int64(slot) <= r.End {
				return slices.Index(p.ids, shard.Nodes[0].ID)
			}
		}
	}
	require.Fail(p.t, "nobody has the slot")
	return 0
}

// move gives a slot and its keys from one server to another, as redis-cli --cluster reshard does.
// In between, for a while, some keys are at the source and some at the target. The target is asked
// for a key that is not at the source.
func (p *privateCluster) move(ctx context.Context, slot, from, to int) error {
	source, target := p.nodes[from], p.nodes[to]
	if err := target.Do(ctx, "cluster", "setslot", slot, "importing", p.ids[from]).Err(); err != nil {
		return err
	}
	if err := source.Do(ctx, "cluster", "setslot", slot, "migrating", p.ids[to]).Err(); err != nil {
		return err
	}
	for between := time.After(300 * time.Millisecond); ; {
		keys, err := source.ClusterGetKeysInSlot(ctx, slot, 20).Result()
		if err != nil {
			return err
		}
		if len(keys) == 0 {
			break
		}
		if err := p.migrate(ctx, from, to, keys); err != nil {
			return err
		}
		if between != nil {
			<-between
			between = nil
		}
	}
	for _, node := range []int{to, from, 3 - to - from} {
		if err := p.nodes[node].Do(ctx, "cluster", "setslot", slot, "node", p.ids[to]).Err(); err != nil {
			return err
		}
	}
	return p.agree(ctx)
}

func (p *privateCluster) migrate(ctx context.Context, from, to int, keys []string) error {
	host, port, err := net.SplitHostPort(p.addrs[to])
	if err != nil {
		return err
	}
	args := []any{"migrate", host, port, "", 0, 5000, "keys"}
	for _, key := range keys {
		args = append(args, key)
	}
	return p.nodes[from].Do(ctx, args...).Err()
}

// agree waits until every server knows the epoch of every other. Before that the news of an earlier move may undo a
// later one, and the keys with it.
func (p *privateCluster) agree(ctx context.Context) error {
	for deadline := time.Now().Add(10 * time.Second); ; {
		views := make(map[string]bool)
		for _, node := range p.nodes {
			text, err := node.ClusterNodes(ctx).Result()
			if err != nil {
				return err
			}
			epochs := make([]string, 0, len(p.nodes))
			for line := range strings.Lines(text) {
				f := strings.Fields(line)
				epochs = append(epochs, f[0]+" "+f[6]+" "+strings.Join(f[8:], " "))
			}
			slices.Sort(epochs)
			views[strings.Join(epochs, "\n")] = true
		}
		switch {
		case len(views) == 1:
			return nil
		case time.Now().After(deadline):
			return fmt.Errorf("the servers do not agree: %v", views)
		}
		<-time.After(2 * time.Millisecond)
	}
}

// refusals is how often the servers answered with this error.
func (p *privateCluster) refusals(name string) (sum int) {
	for _, node := range p.nodes {
		text, err := node.Info(p.t.Context(), "errorstats").Result()
		require.NoError(p.t, err)
		for line := range strings.Lines(text) {
			if n, ok := strings.CutPrefix(strings.TrimSpace(line), "errorstat_"+name+":count="); ok {
				count, err := strconv.Atoi(n)
				require.NoError(p.t, err)
				sum += count
			}
		}
	}
	return sum
}

// while a slot with all keys in it goes round the cluster, each event is handled once and no
// event is lost. The client looks for keys where they are (MOVED, ASK), and sends scripts to
// servers that have never seen them. The store recognises a repeated command by its token.
func TestSlotMovesWhileClaimsRun(t *testing.T) {
	p := newPrivateCluster(t)
	const prefix = "idem{hot}:" // all keys in one slot, which no store should be
	slot64, err := p.nodes[0].ClusterKeySlot(t.Context(), prefix).Result()
	require.NoError(t, err)
	slot, at := int(slot64), p.owner(int(slot64))

	require.NoError(t, p.agree(t.Context()))

	const moves, workers = 4, 3
	moving, stop := context.WithCancel(context.Background())
	var mover, all sync.WaitGroup
	mover.Go(func() {
		defer stop()
		for range moves {
			to := (at + 1) % len(p.nodes)
			if err := p.move(context.Background(), slot, at, to); err != nil {
				t.Errorf("move of the slot: %v", err)
				return
			}
			at = to
			// A client may follow an ASK up to half a second late. If a slot goes all the way round
			// within that time, the protocol of Redis Cluster cannot keep the two apart.
			<-time.After(700 * time.Millisecond)
		}
	})
	var effects [workers][]*[16]int
	for w := range workers {
		all.Go(func() {
			s := New(p.client, Prefix(prefix))
			for round := 0; moving.Err() == nil; round++ {
				counts := new([16]int)
				effects[w] = append(effects[w], counts)
				if err := handleOnce(s, batchOf(fmt.Sprintf("%d-%d", w, round), 16), counts); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	mover.Wait()
	events := 0
	for w := range effects {
		for round, counts := range effects[w] {
			for i, n := range counts {
				require.Equal(t, 1, n, "event %d of round %d of worker %d", i, round, w)
				events++
			}
		}
	}
	moved, ask := p.refusals("MOVED"), p.refusals("ASK")
	t.Logf("%d events, %d moves of their slot, %d MOVED, %d ASK", events, moves, moved, ask)
	require.Positive(t, moved)
	require.Positive(t, ask)
}

// a server that was restarted, or has just become a master, has forgotten the scripts. It
// gets the scripts again, in batches that also go to servers with the scripts.
func TestOneNodeForgetsItsScripts(t *testing.T) {
	p := newPrivateCluster(t)
	s, reqs := New(p.client), batchOf("scripts", 60)
	tok, answers := dedup.NewToken(), make([]dedup.Answer, len(reqs))
	require.NoError(t, s.Claim(t.Context(), tok, long, reqs, answers))
	held := make([]dedup.Claim, len(reqs))
	for i, a := range answers {
		require.Equal(t, dedup.Fresh, a.Verdict)
		held[i] = reqs[i].Held(tok, a)
	}
	require.NoError(t, s.Renew(t.Context(), long, held))
	for _, node := range p.nodes {
		require.NoError(t, node.ScriptFlush(t.Context()).Err())
		before := p.refusals("NOSCRIPT")
		require.NoError(t, s.Renew(t.Context(), long, held))
		require.Greater(t, p.refusals("NOSCRIPT"), before, "the server must have forgotten")
	}
}

// if a dead server has a part of a batch, no key of the batch is answered. The claims that
// other servers granted run no handler.
func TestDeadNodeFailsTheWholeCall(t *testing.T) {
	p := newPrivateCluster(t)
	s := New(p.client)
	require.NoError(t, s.Claim(t.Context(), dedup.NewToken(), long, batchOf("before", 60), make([]dedup.Answer, 60)))
	_ = p.nodes[1].ShutdownNoSave(t.Context()).Err() // its answer is that it is gone
	reqs, answers := batchOf("after", 60), make([]dedup.Answer, 60)
	require.ErrorIs(t, s.Claim(t.Context(), dedup.NewToken(), long, reqs, answers), dedup.ErrUnavailable)
	require.Equal(t, make([]dedup.Answer, 60), answers)
	require.ErrorIs(t, s.Ping(t.Context()), dedup.ErrUnavailable)
}

// a dead server has the birth of the scope. The keys of the other servers are claimed as before.
func TestServerOfTheBirthDies_R14(t *testing.T) {
	p := newPrivateCluster(t)
	slot := func(key string) int {
		n, err := p.client.ClusterKeySlot(t.Context(), key).Result()
		require.NoError(t, err)
		return int(n)
	}
	b := bench{TB: t, Store: New(p.client)}
	b.meets(dedup.Fresh, request("before"))
	dead := p.owner(slot(b.about("born", request("").Key.Scope)))
	var elsewhere []dedup.Request
	for _, r := range batchOf("after", 60) {
		if p.owner(slot(b.key(r.Key))) != dead {
			elsewhere = append(elsewhere, r)
		}
	}
	for _, node := range p.nodes {
		require.NoError(t, node.ConfigSet(t.Context(), "cluster-require-full-coverage", "no").Err())
	}
	_ = p.nodes[dead].ShutdownNoSave(t.Context()).Err() // its answer is that it is gone

	b.births.age(clockAge)
	answers := make([]dedup.Answer, len(elsewhere))
	require.NoError(t, b.Claim(t.Context(), dedup.NewToken(), long, elsewhere, answers))
	for i := range answers {
		require.Equal(t, dedup.Fresh, answers[i].Verdict, "%q", elsewhere[i].Key)
	}
}

// nodePipelines counts the pipelines to each server.
type nodePipelines struct {
	mu    sync.Mutex
	count map[string]int
}

func (n *nodePipelines) hook(addr string) redis.Hook { return &nodeHook{of: n, addr: addr} }

func (n *nodePipelines) take() map[string]int {
	n.mu.Lock()
	defer n.mu.Unlock()
	taken := n.count
	n.count = make(map[string]int)
	return taken
}

type nodeHook struct {
	of   *nodePipelines
	addr string
}

func (h *nodeHook) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (h *nodeHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

func (h *nodeHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if name := cmds[0].Name(); name == "set" || name == "evalsha" {
			h.of.mu.Lock()
			h.of.count[h.addr]++
			h.of.mu.Unlock()
		}
		return next(ctx, cmds)
	}
}

// Every verb costs each server one round trip, however many keys there are.
func TestOnePipelineForEachNode(t *testing.T) {
	opts := testenv.RedisClusterOptions(t)
	sent := &nodePipelines{count: make(map[string]int)}
	opts.NewClient = func(o *redis.Options) *redis.Client {
		c := redis.NewClient(o)
		c.AddHook(sent.hook(o.Addr))
		return c
	}
	client := redis.NewClusterClient(opts)
	t.Cleanup(func() { _ = client.Close() })
	_, prefix := testenv.RedisCluster(t)
	s := New(client, Prefix(prefix))
	require.NoError(t, s.Claim(t.Context(), dedup.NewToken(), long, batchOf("warm", 100), make([]dedup.Answer, 100)))

	reqs, tok, answers := batchOf("counted", 600), dedup.NewToken(), make([]dedup.Answer, 600)
	once := func(verb string, err error) {
		t.Helper()
		require.NoError(t, err, verb)
		taken := sent.take()
		require.Len(t, taken, len(opts.Addrs), verb)
		for addr, n := range taken {
			require.Equal(t, 1, n, "%s at %s", verb, addr)
		}
	}
	sent.take()
	once("claim", s.Claim(t.Context(), tok, long, reqs, answers))
	held, done := make([]dedup.Claim, len(reqs)), make([]dedup.Completion, len(reqs))
	for i, a := range answers {
		held[i] = reqs[i].Held(tok, a)
		done[i] = completed(held[i])
	}
	require.NoError(t, s.Renew(t.Context(), long, held), "each server learns the script")
	sent.take()
	once("renew", s.Renew(t.Context(), long+time.Second, held))
	once("complete", s.Complete(t.Context(), done))
}
