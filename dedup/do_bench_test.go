package dedup_test

import (
	"context"
	"strconv"
	"testing"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/dedup/memstore"
)

// BenchmarkDo measures the cost of Do without a server: the store is in memory.
func BenchmarkDo(b *testing.B) {
	pay := func(context.Context) (paid, error) { return paid{Receipt: 1}, nil }
	run := func(b *testing.B, key func(i int) dedup.Key) {
		g := dedup.NewGuard(memstore.New(memstore.Capacity(1<<30)), dedup.GuardConfig{})
		defer g.Close()
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			if _, _, err := dedup.Do(b.Context(), g, key(i), pay); err != nil {
				b.Fatal(err)
			}
		}
	}
	b.Run("first", func(b *testing.B) {
		run(b, func(i int) dedup.Key { return dedup.Key{Scope: "pay", ID: strconv.Itoa(i)} })
	})
	b.Run("replay", func(b *testing.B) { run(b, func(int) dedup.Key { return thisKey }) })
	b.Run("replay of one key in parallel", func(b *testing.B) {
		g := dedup.NewGuard(memstore.New(), dedup.GuardConfig{})
		defer g.Close()
		b.ReportAllocs()
		b.RunParallel(func(p *testing.PB) {
			for p.Next() {
				if _, _, err := dedup.Do(b.Context(), g, thisKey, pay); err != nil {
					b.Error(err)
					return
				}
			}
		})
	})
}
