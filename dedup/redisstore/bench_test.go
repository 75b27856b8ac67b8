package redisstore

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/idem-go/idem/dedup"
	"github.com/stretchr/testify/require"
)

// BenchmarkNaive is what is usually written, without token, lease or compare-and-set: GET, SETNX, handle, SET.
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
