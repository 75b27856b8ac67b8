package drills

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/dedup/redisstore"
	"github.com/idem-go/idem/internal/testenv"
)

// redisServer is a server of a drill.
type redisServer struct {
	*process
	addr  string
	admin *redis.Client
}

func startRedis(t testing.TB, args ...string) *redisServer {
	t.Helper()
	path := program(t, "redis-server", "Debian: apt-get install redis-server")
	s := &redisServer{addr: testenv.FreeAddr(t)}
	host, port, err := net.SplitHostPort(s.addr)
	require.NoError(t, err)
	dir := directory(t)
	s.process = start(t, filepath.Join(dir, "log"), path, slices.Concat([]string{
		"--bind", host, "--port", port, "--dir", dir, "--save", "", "--appendonly", "yes",
		"--maxmemory-policy", "noeviction", "--repl-diskless-sync-delay", "0", "--repl-timeout", "60",
	}, args)...)
	s.admin = redis.NewClient(&redis.Options{Addr: s.addr, MaxRetries: -1, DialTimeout: time.Second})
	t.Cleanup(func() { _ = s.admin.Close() })
	require.Eventually(t, func() bool { return s.admin.Ping(t.Context()).Err() == nil },
		10*time.Second, 20*time.Millisecond, "redis-server does not answer")
	return s
}

// replicate makes s a replica that reaches its primary through a link.
func (s *redisServer) replicate(t testing.TB, primary *redisServer) *link {
	t.Helper()
	k := newLink(t, primary.addr)
	host, port, err := net.SplitHostPort(k.addr)
	require.NoError(t, err)
	require.NoError(t, s.admin.ReplicaOf(t.Context(), host, port).Err())
	require.Eventually(t, func() bool {
		info, err := s.admin.Info(t.Context(), "replication").Result()
		return err == nil && strings.Contains(info, "master_link_status:up")
	}, 20*time.Second, 20*time.Millisecond, "the replica does not follow")
	return k
}

// promote makes the replica the primary, and sends all clients to it.
func (s *redisServer) promote(t testing.TB, current *atomic.Pointer[string]) {
	t.Helper()
	require.NoError(t, s.admin.ReplicaOf(t.Context(), "NO", "ONE").Err())
	current.Store(&s.addr)
}

// clientOf returns a client of the server that is current, as a name in DNS would be.
func clientOf(t testing.TB, current *atomic.Pointer[string]) *redis.Client {
	t.Helper()
	c := redis.NewClient(&redis.Options{
		Addr: "the-primary:6379", ContextTimeoutEnabled: true,
		DialTimeout: time.Second, ReadTimeout: 2 * time.Second, PoolTimeout: time.Second, MaxRetries: 1,
		Dialer: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return (&net.Dialer{Timeout: time.Second}).DialContext(ctx, network, *current.Load())
		},
	})
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// waitHook adds WAIT to each pipeline. A call fails unless so many replicas have its writes.
type waitHook struct{ replicas int }

var errNotReplicated = errors.New("not enough replicas have the writes")

func (waitHook) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (waitHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

func (h waitHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		wait := redis.NewIntCmd(ctx, "wait", h.replicas, 500)
		err := next(ctx, append(slices.Clip(cmds), wait))
		switch {
		case wait.Err() != nil:
			return fmt.Errorf("wait: %w", wait.Err())
		case wait.Val() < int64(h.replicas):
			return errNotReplicated
		default:
			return err
		}
	}
}

// promotion is a drill with a primary that dies and a replica that takes over.
type promotion struct {
	name     string
	cut      time.Duration // before the death of the primary, the replica stops to receive
	replicas int           // the last one is cut off, and is promoted
	wait     int           // WAIT for so many replicas; 0: no WAIT
	settings []string      // of the primary
	// mayDouble: records that the replica lacked are forgotten, and their events run again.
	mayDouble bool
}

// a replica takes over from a primary that dies under load. No event is lost. Events without
// a record at the replica run again if they are delivered again.
func TestRedisFailover_R12(t *testing.T) {
	for _, d := range []promotion{
		{name: "healthy replica", replicas: 1, mayDouble: true},
		{name: "replica cut off", cut: time.Second, replicas: 1, mayDouble: true},
		{
			name: "replica cut off, min-replicas-to-write", cut: 4 * time.Second, replicas: 1, mayDouble: true,
			settings: []string{"--min-replicas-to-write", "1", "--min-replicas-max-lag", "1"},
		},
		{name: "replica cut off, WAIT 1", cut: time.Second, replicas: 1, wait: 1},
		{name: "one of two replicas cut off and promoted, WAIT 1", cut: time.Second, replicas: 2, wait: 1, mayDouble: true},
	} {
		t.Run(d.name, func(t *testing.T) {
			if d.replicas > 1 || len(d.settings) > 0 {
				needLong(t)
			}
			d.run(t)
		})
	}
}

func (d promotion) run(t *testing.T) {
	primary := startRedis(t, d.settings...)
	var heir *redisServer
	var k *link
	for range d.replicas {
		heir = startRedis(t)
		k = heir.replicate(t, primary)
	}
	var current atomic.Pointer[string]
	current.Store(&primary.addr)
	effects := newCounts()
	var workers []*idem.Processor
	for range 3 {
		client := clientOf(t, &current)
		if d.wait > 0 {
			client.AddHook(waitHook{d.wait})
		}
		router := idem.NewRouter()
		idem.On(router, "outside", func(_ context.Context, e idem.Event[event]) error {
			effects.add(e.ID)
			return nil
		})
		workers = append(workers, worker(t, redisstore.New(client), router))
	}
	l := startLoad(t, workers, time.Millisecond, "outside")
	time.Sleep(lasting(2*time.Second, 8*time.Second))
	atCut := time.Now()
	if d.cut > 0 {
		k.stop()
		time.Sleep(d.cut)
	}
	primary.kill()
	died := time.Now()
	heir.replicas(t, d, &current)
	time.Sleep(lasting(time.Second, 4*time.Second))
	l.stop()
	l.again(t, workers[0]) // as after a rewind: late copies of all events
	r := tally(l.sent(""), effects.copyOf())
	r.began = l.began
	age, span := l.reach(effects.copyOf(), died)
	r.notes = fmt.Sprintf("forgotten: the records of %d ms, from %d ms before the death of the primary on",
		span.Milliseconds(), age.Milliseconds())
	if d.cut > 0 {
		r.notes += fmt.Sprintf(", the link was cut %d ms before", died.Sub(atCut).Milliseconds())
	}
	r.print(t)
	require.Zero(t, r.lost)
	if !d.mayDouble {
		require.Zero(t, r.doubled)
	}
	if d.cut > 0 && d.mayDouble {
		require.Positive(t, r.doubled, "else the drill shows nothing")
	}
	require.Less(t, age, died.Sub(atCut)+2*time.Second, "older records are on the replica")
}

// replicas promotes the replica. WAIT for a replica needs one again.
func (s *redisServer) replicas(t testing.TB, d promotion, current *atomic.Pointer[string]) {
	t.Helper()
	s.promote(t, current)
	if d.wait > 0 {
		for range d.replicas {
			startRedis(t).replicate(t, s)
		}
	}
}

// again delivers copies of all events.
func (l *load) again(t testing.TB, p *idem.Processor) {
	t.Helper()
	for k := range l.end.Load() {
		ctx, cancel := context.WithTimeout(t.Context(), settleLimit)
		err := settle(ctx, p, l.messages(k, 7))
		cancel()
		require.NoError(t, err, "batch %d", k)
	}
}

// reach returns how long before a moment the oldest event with two effects was settled, and the
// time from that event to the youngest such event.
func (l *load) reach(effects map[string]int, moment time.Time) (oldest, span time.Duration) {
	var first, last time.Time
	for k := range l.end.Load() {
		at, ok := l.settledAt.Load(k)
		settled, _ := at.(time.Time)
		if !ok || !l.twice(effects, k) {
			continue
		}
		if first.IsZero() || settled.Before(first) {
			first = settled
		}
		if settled.After(last) && settled.Before(moment) {
			last = settled
		}
	}
	if first.IsZero() || first.After(moment) {
		return 0, 0
	}
	return moment.Sub(first), last.Sub(first)
}

// twice reports whether an event of a batch has more than one effect.
func (l *load) twice(effects map[string]int, k int64) bool {
	for i := range batchSize {
		if effects[idOf(k, i)] > 1 {
			return true
		}
	}
	return false
}
