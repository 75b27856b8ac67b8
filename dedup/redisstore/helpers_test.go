package redisstore

import (
	"context"
	"crypto/rand"
	"fmt"
	"testing"
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/internal/testenv"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

const (
	long      = time.Minute
	retention = time.Hour
)

// bench is a store on the real Redis, with its client at hand.
type bench struct {
	testing.TB
	*Store
	rdb *redis.Client
}

func newBench(t testing.TB) bench {
	client, prefix := testenv.Redis(t)
	return bench{TB: t, Store: New(client, Prefix(prefix)), rdb: client}
}

// another is a store of another process on the same store.
func (b bench) another() bench {
	client := redis.NewClient(testenv.RedisOptions(b))
	b.Cleanup(func() { _ = client.Close() })
	return bench{TB: b.TB, Store: New(client, Prefix(b.prefix)), rdb: client}
}

func onServer(t testing.TB, addr string, opts ...Option) bench {
	client := redis.NewClient(&redis.Options{Addr: addr})
	t.Cleanup(func() { _ = client.Close() })
	return bench{TB: t, Store: New(client, opts...), rdb: client}
}

// acquainted is a store that has claimed before: it asks only for its events.
func acquainted(client redis.UniversalClient) *Store {
	s := New(client)
	s.clock.asked, s.clock.wall, s.clock.server = time.Now(), time.Now().Round(0), time.Now().UnixMilli()
	s.births.remember(request("").Key.Scope, s.clock.server)
	return s
}

func request(id string) dedup.Request {
	return dedup.Request{
		Key:       dedup.Key{Scope: "notifier", Type: "order.created", ID: id},
		Origin:    someOrigin,
		Retention: retention,
	}
}

// batchOf returns n requests in order.
func batchOf(name string, n int) []dedup.Request {
	reqs := make([]dedup.Request, n)
	for i := range reqs {
		reqs[i] = request(fmt.Sprintf("%s-%06d", name, i))
	}
	return reqs
}

func (b bench) claim(lease time.Duration, r dedup.Request) (dedup.Answer, dedup.Claim) {
	b.Helper()
	t := dedup.NewToken()
	var a [1]dedup.Answer
	require.NoError(b, b.Claim(context.Background(), t, lease, []dedup.Request{r}, a[:]))
	return a[0], r.Held(t, a[0])
}

func (b bench) held(want dedup.Verdict, lease time.Duration, r dedup.Request) dedup.Claim {
	b.Helper()
	a, c := b.claim(lease, r)
	require.Equal(b, want, a.Verdict)
	return c
}

func (b bench) meets(want dedup.Verdict, r dedup.Request) dedup.Answer {
	b.Helper()
	a, _ := b.claim(long, r)
	require.Equal(b, want, a.Verdict)
	return a
}

func completed(c dedup.Claim) dedup.Completion {
	return dedup.Completion{Claim: c, Retention: retention}
}

func (b bench) finish(c dedup.Completion) error {
	return b.Complete(context.Background(), []dedup.Completion{c})
}

// takenOver returns a claim that was lost and the claim of its successor.
func (b bench) takenOver(r dedup.Request) (zombie, heir dedup.Claim) {
	b.Helper()
	zombie = b.held(dedup.Fresh, time.Millisecond, r)
	require.Eventually(b, func() bool {
		a, c := b.claim(long, r)
		heir = c
		return a.Verdict == dedup.Uncertain
	}, 5*time.Second, 2*time.Millisecond)
	return zombie, heir
}

func (b bench) record(r dedup.Request) record {
	b.Helper()
	value, err := b.rdb.Get(context.Background(), b.key(r.Key)).Result()
	require.NoError(b, err)
	rec, err := decode(value, checkOf(r.Key))
	require.NoError(b, err)
	return rec
}

func (b bench) ttl(r dedup.Request) time.Duration {
	b.Helper()
	d, err := b.rdb.PTTL(context.Background(), b.key(r.Key)).Result()
	require.NoError(b, err)
	return d
}

// newUUID has the length of the usual event ID.
func newUUID() string {
	s := rand.Text() + rand.Text()
	return s[:8] + "-" + s[8:12] + "-" + s[12:16] + "-" + s[16:20] + "-" + s[20:32]
}
