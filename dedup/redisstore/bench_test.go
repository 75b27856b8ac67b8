package redisstore

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/internal/testenv"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// BenchmarkNaive measures the usual code, without token, lease or compare-and-set: GET, SETNX,
// handle, SET.
func BenchmarkNaive(b *testing.B) {
	s := newBench(b)
	ctx := context.Background()
	for i := 0; b.Loop(); i++ {
		key := fmt.Sprintf("%s%036d", s.prefix, i)
		_ = s.rdb.Get(ctx, key).Err() // redis.Nil: not seen yet
		ok, err := s.rdb.SetNX(ctx, key, "PENDING", retention).Result()
		require.True(b, ok && err == nil)
		require.NoError(b, s.rdb.Set(ctx, key, "COMPLETED", retention).Err())
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "keys/s")
}

// BenchmarkAgainstNaive runs the store and the usual code in turns, so that other work of the
// machine hits both. Their ratio can be compared with other machines.
func BenchmarkAgainstNaive(b *testing.B) {
	const size, share = 256, 16 // the naive way gets one key for each 16, which is about as much time
	ctx := context.Background()
	for name, open := range map[string]func(testing.TB) (redis.UniversalClient, string){
		"server":  func(t testing.TB) (redis.UniversalClient, string) { return testenv.Redis(t) },
		"cluster": func(t testing.TB) (redis.UniversalClient, string) { return testenv.RedisCluster(t) },
	} {
		b.Run(name, func(b *testing.B) {
			client, prefix := open(b)
			s := New(client, Prefix(prefix))
			var naive, batched time.Duration
			keys := 0
			for b.Loop() {
				began := time.Now()
				for i := range size / share {
					key := fmt.Sprint(prefix, "naive:", keys+i)
					_ = client.Get(ctx, key).Err() // redis.Nil: not seen yet
					ok, err := client.SetNX(ctx, key, "PENDING", retention).Result()
					require.True(b, ok && err == nil)
					require.NoError(b, client.Set(ctx, key, "COMPLETED", retention).Err())
				}
				between := time.Now()
				naive += between.Sub(began)
				cycle(b, s, batchOf(fmt.Sprintf("%036d", keys), size))
				batched += time.Since(between)
				keys += size
			}
			b.ReportMetric(float64(keys)/batched.Seconds(), "keys/s")
			b.ReportMetric(float64(keys/share)/naive.Seconds(), "naive-keys/s")
			b.ReportMetric(share*naive.Seconds()/batched.Seconds(), "x-naive")
		})
	}
}

// cycle claims and completes new keys.
func cycle(b *testing.B, s *Store, reqs []dedup.Request) {
	tok, answers, done := dedup.NewToken(), make([]dedup.Answer, len(reqs)), make([]dedup.Completion, len(reqs))
	require.NoError(b, s.Claim(context.Background(), tok, long, reqs, answers))
	for i, a := range answers {
		if a.Verdict != dedup.Fresh {
			b.Fatal(a.Verdict)
		}
		done[i] = completed(reqs[i].Held(tok, a))
	}
	require.NoError(b, s.Complete(context.Background(), done))
}

// BenchmarkClaimComplete is claim and completion of new keys in pipelines; one operation is one key.
func BenchmarkClaimComplete(b *testing.B) {
	for _, size := range []int{16, 256} {
		for _, workers := range []int{1, 4} {
			for _, looks := range []bool{false, true} {
				b.Run(fmt.Sprintf("batch=%d/workers=%d/compared=%v", size, workers, looks), func(b *testing.B) {
					s := newBench(b)
					s.results.Store(looks)
					cycles(b, s.Store, size, workers)
				})
			}
		}
	}
}

func cycles(b *testing.B, s *Store, size, workers int) {
	var next atomic.Int64
	var all sync.WaitGroup
	ctx := context.Background()
	b.ResetTimer()
	for range workers {
		all.Go(func() {
			reqs, answers, done := make([]dedup.Request, size), make([]dedup.Answer, size), make([]dedup.Completion, size)
			for n := next.Add(int64(size)); n-int64(size) < int64(b.N); n = next.Add(int64(size)) {
				for i := range reqs {
					reqs[i] = request(fmt.Sprintf("%036d", n+int64(i)))
				}
				tok := dedup.NewToken()
				err := s.Claim(ctx, tok, long, reqs, answers)
				for i, a := range answers {
					if a.Verdict != dedup.Fresh {
						b.Errorf("%v, %v", a.Verdict, err)
						return
					}
					done[i] = completed(reqs[i].Held(tok, a))
				}
				if err := s.Complete(ctx, done); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "keys/s")
}
