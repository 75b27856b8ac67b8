package redisstore

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/internal/testenv"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// trips counts round trips: single commands and pipelines, except those of a new connection for
// itself.
type trips struct{ n atomic.Int64 }

func (c *trips) count(cmd redis.Cmder) {
	if cmd.Name() != "hello" && cmd.Name() != "client" {
		c.n.Add(1)
	}
}

func (c *trips) DialHook(next redis.DialHook) redis.DialHook { return next }

func (c *trips) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		c.count(cmd)
		return next(ctx, cmd)
	}
}

func (c *trips) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		c.count(cmds[0])
		return next(ctx, cmds)
	}
}

// counted is another process, with a count of its round trips.
func (b bench) counted() (bench, *trips) {
	other, sent := b.another(), &trips{}
	other.rdb.AddHook(sent)
	return other, sent
}

// takes requires fn to cost so many round trips.
func (c *trips) takes(t testing.TB, want int64, fn func()) {
	t.Helper()
	before := c.n.Load()
	fn()
	require.Equal(t, want, c.n.Load()-before, "round trips")
}

func anyAge(id string) dedup.Request {
	r := request(id)
	r.AnyAge = true
	return r
}

func (b bench) look(r dedup.Request) dedup.Answer {
	b.Helper()
	var a [1]dedup.Answer
	require.NoError(b, b.Look(context.Background(), []dedup.Request{r}, a[:]))
	return a[0]
}

// H-04: a done event is replayed in one round trip, with its result, by Claim and by Look. A
// process that has just begun asks for two things more before its first claim.
func TestReplayIsOneRoundTrip_H04(t *testing.T) {
	b := newBench(t)
	r := anyAge("paid")
	done := completed(b.held(dedup.Fresh, long, r))
	done.Result = dedup.Result{Schema: 3, Data: []byte(`{"receipt":1}`)}
	require.NoError(t, b.finish(done))

	other, sent := b.counted()
	sent.takes(t, 1, func() { require.Equal(t, done.Result, other.look(r).Result) })
	sent.takes(t, 3, func() { require.Equal(t, done.Result, other.meets(dedup.Done, r).Result) })
	sent.takes(t, 1, func() { require.Equal(t, done.Result, other.meets(dedup.Done, r).Result) })
	other.clock.asked = other.clock.asked.Add(-2 * clockAge)
	sent.takes(t, 1, func() { other.meets(dedup.Done, r) })
	sent.takes(t, 1, func() { other.look(r) })
	sent.takes(t, 1, func() { other.look(anyAge("unknown")) })

	key := dedup.Key{Scope: "do", ID: "1"}
	pay := func(context.Context) (int, error) { return 42, nil }
	g := dedup.NewGuard(b, dedup.GuardConfig{})
	defer g.Close()
	_, _, err := dedup.Do(t.Context(), g, key, pay)
	require.NoError(t, err)
	replays := dedup.NewGuard(other, dedup.GuardConfig{})
	defer replays.Close()
	for _, want := range []int64{3, 1, 1} { // a new scope
		sent.takes(t, want, func() {
			n, replayed, err := dedup.Do(t.Context(), replays, key, pay)
			require.NoError(t, err)
			require.True(t, replayed)
			require.Equal(t, 42, n)
		})
	}
}

// Looking is one round trip on a server that has not seen its script, and for many keys.
func TestLookIsOneRoundTrip(t *testing.T) {
	b := newBench(t)
	b.held(dedup.Fresh, long, request("busy"))
	other, sent := b.counted()
	reqs := batchOf("many", 1000)
	for i := range reqs {
		reqs[i].AnyAge = true
	}
	for range 2 {
		require.NoError(t, b.rdb.ScriptFlush(t.Context()).Err())
		sent.takes(t, 1, func() {
			require.NoError(t, other.Look(t.Context(), reqs, make([]dedup.Answer, len(reqs))))
		})
		busy := anyAge("busy")
		sent.takes(t, 1, func() { require.Equal(t, dedup.Busy, other.look(busy).Verdict) })
	}
	// An event with an age costs the server's time and the scope's birth, once.
	sent.takes(t, 3, func() { other.look(request("busy")) })
	sent.takes(t, 1, func() { other.look(request("busy")) })
}

// The whole of a cluster is looked at in one pipeline to each node.
func TestLookIsOnePipelineForEachNode(t *testing.T) {
	opts := testenv.RedisClusterOptions(t)
	counts := map[string]*trips{}
	opts.NewClient = func(o *redis.Options) *redis.Client {
		c := redis.NewClient(o)
		if counts[o.Addr] == nil { // while the cluster's client is warmed up, by one goroutine
			counts[o.Addr] = &trips{}
		}
		c.AddHook(counts[o.Addr])
		return c
	}
	client := redis.NewClusterClient(opts)
	t.Cleanup(func() { _ = client.Close() })
	require.NoError(t, client.ForEachMaster(t.Context(), func(ctx context.Context, c *redis.Client) error {
		return c.Ping(ctx).Err()
	}))
	_, prefix := testenv.RedisCluster(t)
	s := New(client, Prefix(prefix))
	reqs := batchOf("looked for", 600)
	for i := range reqs {
		reqs[i].AnyAge = true
	}
	answers := make([]dedup.Answer, len(reqs))
	require.NoError(t, s.Look(t.Context(), reqs, answers), "the client learns where slots are")
	before := map[string]int64{}
	for addr, c := range counts {
		before[addr] = c.n.Load()
	}
	require.NoError(t, s.Look(t.Context(), reqs, answers))
	nodes := 0
	for addr, c := range counts {
		if n := c.n.Load() - before[addr]; n != 0 {
			require.EqualValues(t, 1, n, addr)
			nodes++
		}
	}
	require.Equal(t, 3, nodes)
}

// Look writes no birth of a scope, and no TTL where another client has removed it.
func TestLookWritesNothing(t *testing.T) {
	b := newBench(t)
	other := b.another()
	require.Zero(t, other.look(ofAge("old", 2*retention)))
	require.Zero(t, b.rdb.Exists(t.Context(), b.about("born", request("").Key.Scope)).Val())
	b.bornAt(time.Now().Add(-10 * retention))
	require.Equal(t, dedup.Answer{Verdict: dedup.TooOld}, other.look(ofAge("old", 2*retention)))
	require.Zero(t, other.look(ofAge("young", 0)))
	require.Zero(t, b.rdb.Exists(t.Context(), b.key(request("old").Key)).Val())

	r := anyAge("busy")
	b.held(dedup.Fresh, long, r)
	require.NoError(t, b.rdb.Persist(t.Context(), b.key(r.Key)).Err())
	a := other.look(r)
	require.Equal(t, dedup.Busy, a.Verdict)
	require.Equal(t, long, a.Wait)
	require.EqualValues(t, -1, b.rdb.TTL(t.Context(), b.key(r.Key)).Val())
}

// R-15, rule 35: a value that is not the record of this key, in this version, is no answer.
func TestLookAnswersFromNothingElse(t *testing.T) {
	b := newBench(t)
	b.held(dedup.Fresh, long, request("mine"))
	value := b.rdb.Get(t.Context(), b.key(request("mine").Key)).Val()
	for name, v := range map[string]string{"of another key": value, "of another version": "\x02" + value[1:], "empty": ""} {
		require.NoError(t, b.rdb.Set(t.Context(), b.key(request(name).Key), v, time.Minute).Err())
		a := []dedup.Answer{{Verdict: dedup.Done}}
		err := b.Look(t.Context(), []dedup.Request{request(name)}, a)
		require.ErrorIs(t, err, dedup.ErrUnavailable, name)
		require.Zero(t, a[0], name)
	}
	for name, reply := range map[string]string{
		"of another call": "*4\r\n" + bulk("0123456789abcdef") + bulk("none") + ":0\r\n" + bulk(""),
		"no script's":     "+OK\r\n",
		"an error":        "-LOADING\r\n",
	} {
		s := acquainted(newFake(t, func([]string) string { return reply }))
		err := s.Look(t.Context(), []dedup.Request{request("x")}, make([]dedup.Answer, 1))
		require.ErrorIs(t, err, dedup.ErrUnavailable, name)
	}
}

// BenchmarkReplay measures the cost of a result that is there: by Do, and by Look.
func BenchmarkReplay(b *testing.B) {
	s := newBench(b)
	g := dedup.NewGuard(s, dedup.GuardConfig{})
	defer g.Close()
	key := dedup.Key{Scope: "do", ID: "1"}
	pay := func(context.Context) (string, error) { return "0123456789abcdef0123456789abcdef", nil }
	replay := func(b *testing.B) {
		if _, _, err := dedup.Do(b.Context(), g, key, pay); err != nil {
			b.Fatal(err)
		}
	}
	replay(b)
	sent := &trips{}
	s.rdb.AddHook(sent)
	for name, fn := range map[string]func(*testing.B){"do": replay, "look": func(b *testing.B) {
		r := dedup.Request{Key: key, Retention: time.Hour, AnyAge: true}
		if bench := (bench{TB: b, Store: s.Store}); bench.look(r).Result.IsZero() {
			b.Fatal("no result")
		}
	}, "ping": func(b *testing.B) { s.rdb.Ping(b.Context()) }} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			before := sent.n.Load()
			for b.Loop() {
				fn(b)
			}
			b.ReportMetric(float64(sent.n.Load()-before)/float64(b.N), "trips/op")
		})
	}
}
