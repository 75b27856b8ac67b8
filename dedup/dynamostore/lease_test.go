package dynamostore_test

import (
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/dedup/dynamostore"
	"github.com/stretchr/testify/require"
)

// clock is that of a host. It goes on by calls of the test only.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func newClock() *clock { return &clock{now: time.Now().Round(0)} }

func (c *clock) read() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) pass(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// twoHosts are two stores of one table. Their wall clocks differ by skew, and pass lets time pass
// for both.
func twoHosts(t *testing.T, skew time.Duration) (a, b *dynamostore.Store, pass func(time.Duration)) {
	client, table := newTable(t)
	ca, cb := newClock(), newClock()
	cb.pass(skew)
	return dynamostore.New(client, table, dynamostore.Clock(ca.read)), dynamostore.New(client, table, dynamostore.Clock(cb.read)),
		func(d time.Duration) { ca.pass(d); cb.pass(d) }
}

// P-10, R-18: with wall clocks that differ by an hour, to either side, no claim is taken over
// early, nor too late.
func TestHostsWithOtherClocks(t *testing.T) {
	const lease = 30 * time.Second
	for name, skew := range map[string]time.Duration{"ahead": time.Hour, "behind": -time.Hour} {
		t.Run(name, func(t *testing.T) {
			a, b, pass := twoHosts(t, skew)
			r := request("e")
			r.Retention, r.AnyAge = time.Second, true // by the other clock long over, margin included
			_, held := ask(t, a, lease, r)
			busy := func(wait time.Duration) {
				t.Helper()
				got, _ := ask(t, b, lease, r)
				require.Equal(t, dedup.Busy, got.Verdict)
				require.Equal(t, wait, got.Wait)
			}
			busy(lease)
			pass(20 * time.Second)
			busy(10 * time.Second)
			require.NoError(t, a.Renew(t.Context(), lease, []dedup.Claim{held}))
			busy(lease) // it has changed: alive
			pass(lease - time.Millisecond)
			busy(time.Millisecond)
			pass(time.Millisecond)
			got, heir := ask(t, b, lease, r)
			require.Equal(t, dedup.Uncertain, got.Verdict)
			require.EqualValues(t, 1, got.Takeovers)
			require.EqualValues(t, 2, got.Fence)

			require.ErrorIs(t, a.Renew(t.Context(), lease, []dedup.Claim{held}), dedup.ErrClaimLost)
			require.ErrorIs(t, a.Complete(t.Context(), []dedup.Completion{{Claim: held, Retention: time.Hour}}), dedup.ErrClaimLost)
			require.NoError(t, b.Complete(t.Context(), []dedup.Completion{{Claim: heir, Retention: 24 * time.Hour}}))
			got, _ = ask(t, a, lease, r)
			require.Equal(t, dedup.Done, got.Verdict)
		})
	}
}

// P-10: a store that has not watched a claim for its whole lease answers Busy, however old the
// claim is.
func TestNotWatchedIsBusy(t *testing.T) {
	a, b, pass := twoHosts(t, 0)
	ask(t, a, time.Minute, request("e"))
	pass(10 * 24 * time.Hour)
	got, _ := ask(t, b, time.Minute, request("e"))
	require.Equal(t, dedup.Busy, got.Verdict)
	require.Equal(t, time.Minute, got.Wait)
	require.ErrorIs(t, b.Forget(t.Context(), request("e").Key), dedup.ErrHeld)
	pass(got.Wait)
	answers := make([]dedup.Answer, 1)
	require.NoError(t, b.Look(t.Context(), []dedup.Request{request("e")}, answers))
	require.Zero(t, answers[0].Verdict, "looking grants nothing")
	got, _ = ask(t, b, time.Minute, request("e"))
	require.Equal(t, dedup.Uncertain, got.Verdict)
}

// P-10, R-18: a holder renews and hosts ask at any time, with clocks an hour apart. Never do two
// hold a live claim. The claim of a dead holder is taken over within one lease of the first
// question.
func TestLeasesAtRandom(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 1))
	const lease = 10 * time.Second
	a, b, pass := twoHosts(t, time.Hour)
	var spent time.Duration // the time that has passed in truth
	until := time.Duration(-1)
	var claim dedup.Claim
	var owner *dynamostore.Store
	takeovers := 0
	for step := 0; step < 600 || takeovers <= 20; step++ { // some walks meet few ends of leases: they go on until they have
		require.Less(t, step, 6000, "no way forward (seed %d)", seed)
		d := time.Duration(rng.IntN(4000)) * time.Millisecond
		pass(d)
		spent += d
		s := a
		if rng.IntN(2) == 0 {
			s = b
		}
		if owner != nil && rng.IntN(3) == 0 && takeovers%3 != 2 { // each third holder is dead
			if owner.Renew(t.Context(), lease, []dedup.Claim{claim}) == nil {
				until = spent + lease
			}
			continue
		}
		got, c := ask(t, s, lease, request("e"))
		if !got.Verdict.Held() {
			require.Equal(t, dedup.Busy, got.Verdict)
			require.Positive(t, got.Wait)
			continue
		}
		require.GreaterOrEqual(t, spent, until, "taken over early (seed %d)", seed)
		until, claim, owner = spent+lease, c, s
		takeovers++
	}
}

// A full list of watched claims takes over later, and gets there.
func TestWatchListFull(t *testing.T) {
	client, table := newTable(t)
	now := newClock()
	a := dynamostore.New(client, table)
	b := dynamostore.New(client, table, dynamostore.Clock(now.read), dynamostore.Watched(2))
	ids := []string{"a", "b", "c", "d", "e"}
	for _, id := range ids {
		ask(t, a, time.Minute, request(id))
	}
	left := len(ids)
	for round := 0; left > 0; round++ {
		require.Less(t, round, 10, "no way forward")
		for _, id := range ids {
			got, c := ask(t, b, time.Minute, request(id))
			if got.Verdict.Held() {
				require.Equal(t, dedup.Uncertain, got.Verdict)
				require.NoError(t, b.Complete(t.Context(), []dedup.Completion{{Claim: c, Retention: time.Hour}}))
				left--
			}
		}
		require.LessOrEqual(t, b.Watching(), 2)
		now.pass(time.Minute)
	}
	require.Zero(t, b.Watching(), "what is done is not watched")
}
