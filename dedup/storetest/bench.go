package storetest

import (
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/idem-go/idem/dedup"
	"github.com/stretchr/testify/require"
)

// Bench measures claims and completions of fresh keys in batches of several sizes, from one
// caller and from many. Bench measures pure duplicates as well. One operation is one key, at
// every size of a batch.
func Bench(b *testing.B, new func(testing.TB) dedup.Store) {
	for _, size := range []int{1, 16, 256} {
		b.Run(fmt.Sprintf("fresh/batch=%d", size), func(b *testing.B) {
			benchFresh(b, new(b), size)
		})
		b.Run(fmt.Sprintf("duplicates/batch=%d", size), func(b *testing.B) {
			benchDuplicates(b, new(b), size)
		})
	}
	b.Run("fresh/parallel/batch=16", func(b *testing.B) { benchParallel(b, new(b), 16) })
}

// benchKeys makes size requests with keys from number on; IDs have the length of a UUID.
func benchKeys(reqs []dedup.Request, from int64) {
	for i := range reqs {
		reqs[i] = dedup.Request{Key: key(fmt.Sprintf("%036d", from+int64(i))), Retention: retention,
			Origin: origin(0, i)}
	}
}

func cycle(tb testing.TB, s dedup.Store, reqs []dedup.Request, answers []dedup.Answer,
	done []dedup.Completion) {
	t := dedup.NewToken()
	require.NoError(tb, s.Claim(tb.Context(), t, long, reqs, answers))
	for i := range reqs {
		if answers[i].Verdict != dedup.Fresh {
			require.Equal(tb, dedup.Fresh, answers[i].Verdict)
		}
		done[i] = completion(reqs[i].Held(t, answers[i]))
	}
	require.NoError(tb, s.Complete(tb.Context(), done))
}

func benchFresh(b *testing.B, s dedup.Store, size int) {
	reqs, answers, done := make([]dedup.Request, size), make([]dedup.Answer, size),
		make([]dedup.Completion, size)
	b.ReportAllocs()
	b.ResetTimer()
	for n := 0; n < b.N; n += size {
		benchKeys(reqs, int64(n))
		cycle(b, s, reqs, answers, done)
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "keys/s")
}

func benchDuplicates(b *testing.B, s dedup.Store, size int) {
	reqs, answers, done := make([]dedup.Request, size), make([]dedup.Answer, size),
		make([]dedup.Completion, size)
	benchKeys(reqs, 0)
	cycle(b, s, reqs, answers, done)
	b.ReportAllocs()
	b.ResetTimer()
	for n := 0; n < b.N; n += size {
		require.NoError(b, s.Claim(b.Context(), dedup.NewToken(), long, reqs, answers))
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "keys/s")
}

func benchParallel(b *testing.B, s dedup.Store, size int) {
	var next atomic.Int64
	b.SetParallelism(8)
	b.ReportAllocs()
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		reqs, answers, done := make([]dedup.Request, size), make([]dedup.Answer, size),
			make([]dedup.Completion, size)
		for pb.Next() {
			benchKeys(reqs, next.Add(int64(size)))
			cycle(b, s, reqs, answers, done)
			for range size - 1 { // one operation is one key
				if !pb.Next() {
					return
				}
			}
		}
	})
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "keys/s")
}
