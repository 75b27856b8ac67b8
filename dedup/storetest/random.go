package storetest

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"

	"github.com/stretchr/testify/require"
)

// randomTests try sequences that no written case has. A failure prints the seed; IDEM_SEED
// repeats the run.
var randomTests = []test{
	{name: "random: thousands of calls agree with a model", alone: true, run: randomModel},
	{name: "random: workers that race and crash never overlap and lose nothing", alone: true,
		run: randomRace},
}

// random returns a source of random numbers with a new seed, or that of the environment variable
// IDEM_SEED.
func (k *kit) random() (*rand.Rand, uint64) {
	k.Helper()
	seed := rand.Uint64()
	if s := os.Getenv("IDEM_SEED"); s != "" {
		var err error
		seed, err = strconv.ParseUint(s, 10, 64)
		require.NoError(k, err, "IDEM_SEED")
	}
	k.Logf("IDEM_SEED=%d", seed)
	return rand.New(rand.NewPCG(seed, 1)), seed
}

// numbered makes IDs that sort as their numbers do.
func numbered(name string, i int) string { return fmt.Sprintf("%s-%05d", name, i) }

// inParallel calls fn n times at once.
func inParallel[T any](n int, fn func(i int) T) []T {
	out := make([]T, n)
	start := make(chan struct{})
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			<-start
			out[i] = fn(i)
		})
	}
	close(start)
	wg.Wait()
	return out
}

func tally[T comparable](all []T) map[T]int {
	n := make(map[T]int)
	for _, v := range all {
		n[v]++
	}
	return n
}
