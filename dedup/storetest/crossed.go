package storetest

import (
	"context"
	"slices"

	"github.com/idem-go/idem/dedup"
	"github.com/stretchr/testify/require"
)

// crossedTests cover calls at once that take the same keys in opposite orders.
var crossedTests = []testCase{
	{name: "calls: in opposite orders at once they do not block each other (P-04)", alone: true,
		run: oppositeOrders},
	{name: "calls: ends in opposite orders at once do not block each other (P-04)", alone: true,
		run: oppositeEnds},
}

// oppositeOrders: Only requests must ascend, so a store sorts the keys that are locked.
func oppositeOrders(k *kit) {
	const n = 40
	reqs := make([]dedup.Request, n)
	for i := range reqs {
		reqs[i] = request(numbered("crossed", i))
	}
	for range 15 {
		up := k.claimAll(reqs)
		var back []dedup.Release
		for i := range up {
			back = append(back, release(up[i], dedup.Failed))
		}
		k.atOnce(6, func(ctx context.Context, s dedup.Store, i int) error {
			return s.Renew(ctx, long, ordered(up, i%2 == 1))
		})
		k.release(ordered(back, true)...)
	}
}

// oppositeEnds: Completions and releases of the same claims, with a request for the same keys.
func oppositeEnds(k *kit) {
	const n = 40
	for round := range 15 {
		reqs := make([]dedup.Request, n)
		for i := range reqs {
			reqs[i] = request(numbered(numbered("crossed", round), i))
		}
		var done []dedup.Completion
		var back []dedup.Release
		for _, c := range k.claimAll(reqs) {
			done, back = append(done, completion(c)), append(back, release(c, dedup.Failed))
		}
		k.atOnce(7, func(ctx context.Context, s dedup.Store, i int) error {
			switch i {
			case 0, 1, 2, 3:
				return lostIsFine(s.Complete(ctx, ordered(done, i%2 == 1)))
			case 4, 5:
				return lostIsFine(s.Release(ctx, ordered(back, i%2 == 1)))
			}
			return s.Claim(ctx, dedup.NewToken(), long, reqs, make([]dedup.Answer, n))
		})
	}
}

// claimAll claims reqs in one call.
func (k *kit) claimAll(reqs []dedup.Request) []dedup.Claim {
	k.Helper()
	t, answers := dedup.NewToken(), make([]dedup.Answer, len(reqs))
	require.NoError(k, k.s.Claim(k.ctx, t, long, reqs, answers))
	claims := make([]dedup.Claim, len(reqs))
	for i := range reqs {
		require.Equal(k, dedup.Fresh, answers[i].Verdict, "%q", reqs[i].Key)
		claims[i] = reqs[i].Held(t, answers[i])
	}
	return claims
}

// atOnce makes n calls in parallel, through the store and its peer in turn. A call that blocks
// another one forever runs into the deadline.
func (k *kit) atOnce(n int, call func(ctx context.Context, s dedup.Store, i int) error) {
	k.Helper()
	ctx, cancel := context.WithTimeout(k.ctx, long)
	defer cancel()
	for i, err := range inParallel(n, func(i int) error {
		if i%2 == 0 {
			return call(ctx, k.s, i)
		}
		return call(ctx, k.peer, i)
	}) {
		require.NoError(k, err, "call %d of calls at once", i)
	}
}

// ordered returns a copy of all, in reverse if down.
func ordered[T any](all []T, down bool) []T {
	all = slices.Clone(all)
	if down {
		slices.Reverse(all)
	}
	return all
}
