package chaos

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"
)

// roleEnv, if set, makes the test binary a worker of a test instead of a test.
const roleEnv = "IDEM_CHAOS_ROLE"

func TestMain(m *testing.M) {
	if role := os.Getenv(roleEnv); role != "" {
		if err := playRole(role); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(runTests(m))
}

func runTests(m *testing.M) int {
	defer programs.remove()
	stop := starter.run()
	defer stop()
	return m.Run()
}

// soak reports whether there is time for the long form of a test.
func soak() bool { return os.Getenv("IDEM_SOAK") != "" }

// soaked logs the load and the outcome of a long run in one line, in the form that all such tests
// share. cuts are connections and services that were cut off. moves are changed assignments of
// partitions.
func soaked(t testing.TB, name string, seed uint64, size, kills, cuts, moves int, outcome string) {
	t.Helper()
	t.Logf("soak: %s seed=%d size=%d kills=%d cuts=%d rebalances=%d outcome=%s", name, seed, size, kills, cuts, moves, outcome)
}

// needTime skips a test where only quick ones are wanted.
func needTime(t testing.TB) {
	t.Helper()
	if testing.Short() {
		t.Skip("takes long: not with -short")
	}
}

// newRand returns the source of all that is random in a test. The seed is printed, and taken from
// IDEM_CHAOS_SEED.
func newRand(t testing.TB) *rand.Rand {
	t.Helper()
	rng, _ := newSeeded(t)
	return rng
}

// newSeeded is newRand with the seed, for [soaked].
func newSeeded(t testing.TB) (rng *rand.Rand, seed uint64) {
	t.Helper()
	seed = rand.Uint64() >> 32 // short enough to be typed
	if s := os.Getenv("IDEM_CHAOS_SEED"); s != "" {
		var err error
		if seed, err = strconv.ParseUint(s, 10, 64); err != nil {
			t.Fatalf("IDEM_CHAOS_SEED: %v", err)
		}
	}
	t.Logf("repeat with IDEM_CHAOS_SEED=%d", seed)
	return rand.New(rand.NewPCG(seed, 0)), seed
}

// pause waits for a random part of limit: kills and stops must not keep step with their victims.
func pause(t testing.TB, rng *rand.Rand, limit time.Duration) {
	t.Helper()
	pauseFor(t, time.Duration(rng.Int64N(int64(limit))))
}

// pauseFor waits for a time, or for the end of the test.
func pauseFor(t testing.TB, d time.Duration) {
	t.Helper()
	select {
	case <-time.After(d):
	case <-t.Context().Done():
	}
}
