package outboxtest

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/outbox"
)

// relaysShare: relays share the shards evenly within a few calls (O-04, O-05). No shard has two
// holders, and a shard that is taken over has a new epoch.
func (k *kit[Tx]) relaysShare() {
	held, highest := map[string][]outbox.Lease{}, map[int]int64{}
	round := func(relays ...string) {
		for _, relay := range relays {
			before := map[int]int64{}
			for _, l := range held[relay] {
				before[l.Shard] = l.Epoch
			}
			held[relay] = k.hold(relay)
			for _, l := range held[relay] {
				if before[l.Shard] != l.Epoch {
					require.Greater(k, l.Epoch, highest[l.Shard])
					highest[l.Shard] = l.Epoch
				}
			}
		}
	}
	sizes := func(relays ...string) (n []int) {
		owner := map[int]string{}
		for _, relay := range relays {
			n = append(n, len(held[relay]))
			for _, l := range held[relay] {
				require.Empty(k, owner[l.Shard], "shard %d", l.Shard)
				owner[l.Shard] = relay
			}
		}
		return n
	}
	round("a")
	require.Equal(k, []int{64}, sizes("a"))
	for range 2 {
		round("b", "a")
	}
	round("b")
	require.Equal(k, []int{32, 32}, sizes("a", "b"))
	for range 3 {
		round("c", "d", "a", "b")
	}
	require.Equal(k, []int{16, 16, 16, 16}, sizes("a", "b", "c", "d"))

	require.NoError(k, k.Outbox.Leave(k.ctx, "a")) // one ends, and one dies
	var dead []int
	for _, l := range held["b"] {
		dead = append(dead, l.Shard)
	}
	require.NoError(k, k.ExpireShards(k.ctx, dead))
	require.NoError(k, k.ExpireRelays(k.ctx))
	delete(held, "a")
	delete(held, "b")
	for range 2 {
		round("c", "d")
	}
	round("c")
	require.Equal(k, []int{32, 32}, sizes("c", "d"))
}

// relaysShareEvenly: the shares of relays differ by one shard at most, also if 64 shards cannot be
// divided equally. Afterwards no shard moves any more (O-05).
func (k *kit[Tx]) relaysShareEvenly() {
	for _, relays := range []int{9, 12, 20} {
		held := make([][]outbox.Lease, relays)
		round := func() {
			for r := range relays {
				held[r] = k.hold(fmt.Sprint("relay ", r))
			}
		}
		for range 4 {
			round()
		}
		settled := make([][]outbox.Lease, relays)
		for r := range relays {
			require.GreaterOrEqual(k, len(held[r]), outbox.Shards/relays, "%d of %d", r, relays)
			require.LessOrEqual(k, len(held[r]), outbox.Shards/relays+1, "%d of %d", r, relays)
			settled[r] = bare(held[r])
		}
		for range 5 {
			round()
			for r := range relays {
				require.Equal(k, settled[r], bare(held[r]), "%d of %d", r, relays)
			}
		}
	}
}

// leaveIsOfOneRelay: only the shards of the relay that leaves become free (O-05). The other relays
// keep theirs, in their epochs.
func (k *kit[Tx]) leaveIsOfOneRelay() {
	relays := []string{"a", "b", "c"}
	for i, leaves := range relays {
		stays, takes := relays[(i+1)%3], relays[(i+2)%3]
		held, mine := map[string][]outbox.Lease{}, map[int]bool{}
		for range 4 {
			for _, relay := range relays {
				held[relay] = k.hold(relay)
			}
		}
		for _, l := range held[stays] {
			mine[l.Shard] = true
		}
		require.NoError(k, k.Outbox.Leave(k.ctx, leaves))
		taken := k.hold(takes)
		require.Len(k, taken, outbox.Shards/2)
		for _, l := range taken {
			require.False(k, mine[l.Shard], "%s left, %s took shard %d of %s", leaves, takes,
				l.Shard, stays)
		}
		require.Equal(k, bare(held[stays]), bare(k.renew(stays)))
		require.Empty(k, k.renew(leaves), "a relay that has left holds nothing")
	}
}

// leasesEnd: a lease lasts as long as the relay has asked for, and so does the life of the relay
// (O-13). Leases are on the clock of the database, so this test waits for three seconds.
func (k *kit[Tx]) leasesEnd() {
	const short, long, beyond = time.Second, 30 * time.Second, 1500 * time.Millisecond
	first, err := k.Outbox.Hold(k.ctx, "a", short, true)
	require.NoError(k, err)
	require.Len(k, first, outbox.Shards)
	k.wait(beyond)
	taken, err := k.Outbox.Hold(k.ctx, "b", long, true)
	require.NoError(k, err)
	require.Len(k, taken, outbox.Shards, "a lease of %s lasts for more than %s", short, beyond)
	for i := range taken {
		require.Greater(k, taken[i].Epoch, first[i].Epoch, "shard %d", taken[i].Shard)
	}
	k.wait(beyond)
	require.Empty(k, k.hold("c"), "a lease of %s lasts for less than %s", long, beyond)
	require.Equal(k, bare(taken), bare(k.renew("b")))
}

// expiredLease: a lease that ended is renewed with its epoch if no other relay took the shard, and
// is lost otherwise (O-13). Without share no shard is given up or taken.
func (k *kit[Tx]) expiredLease() {
	mine := k.hold("a")
	expire := func() {
		require.NoError(k, k.ExpireShards(k.ctx, nil))
		require.NoError(k, k.ExpireRelays(k.ctx))
	}
	expire()
	require.Equal(k, bare(mine), bare(k.renew("a")))
	require.Empty(k, k.renew("b"))
	require.Equal(k, bare(mine), bare(k.renew("a")), "without share nothing is given")

	expire()
	taken := k.hold("b")
	require.Len(k, taken, outbox.Shards)
	for i := range taken {
		require.Greater(k, taken[i].Epoch, mine[i].Epoch)
	}
	require.Empty(k, k.renew("a"))

	require.NoError(k, k.Outbox.Leave(k.ctx, "b"))
	again := k.hold("a")
	require.Len(k, again, outbox.Shards)
	for i := range again {
		require.Greater(k, again[i].Epoch, taken[i].Epoch, "an epoch never comes back")
	}
}

// bare returns the leases without the time that is left, which is never the same twice.
func bare(leases []outbox.Lease) []outbox.Lease {
	leases = slices.Clone(leases)
	for i := range leases {
		leases[i].Left = 0
	}
	return leases
}

// lockedShard: the lease of a shard that a person has locked is not renewed. The relay learns how
// much time is left (O-13).
func (k *kit[Tx]) lockedShard() {
	const locked = 5
	short, err := k.Outbox.Hold(k.ctx, "a", time.Minute, true)
	require.NoError(k, err)
	require.Len(k, short, outbox.Shards)
	unlock, err := k.LockShard(k.ctx, locked)
	require.NoError(k, err)
	long, err := k.Outbox.Hold(k.ctx, "a", time.Hour, true)
	require.NoError(k, err)
	require.NoError(k, unlock())
	require.Equal(k, bare(short), bare(long))
	for _, l := range long {
		if l.Shard == locked {
			require.Positive(k, l.Left)
			require.LessOrEqual(k, l.Left, time.Minute)
		} else {
			require.True(k, l.Left == 0 || l.Left > 59*time.Minute, "shard %d: %s", l.Shard, l.Left)
		}
	}
}

// relaysHoldAtOnce: many relays that come at once never deadlock, and no shard has two owners with
// one epoch (O-04, O-05).
func (k *kit[Tx]) relaysHoldAtOnce() {
	const relays = 8
	var mu sync.Mutex
	owners := map[outbox.Lease]string{}
	last := make([][]outbox.Lease, relays)
	require.NoError(k, together(relays, func(r int) error {
		name := fmt.Sprint("relay ", r)
		for i := range 40 {
			held, err := k.Outbox.Hold(k.ctx, name, time.Minute, i%3 != 2)
			if err != nil {
				return err
			}
			mu.Lock()
			for _, l := range held {
				if o := owners[l]; o != "" && o != name {
					err = fmt.Errorf("%+v is held by %s and %s", l, o, name)
				}
				owners[l] = name
			}
			mu.Unlock()
			if err != nil {
				return err
			}
		}
		return nil
	}))
	n := 0
	for r := range relays { // those that were first may still have to give
		last[r] = k.hold(fmt.Sprint("relay ", r))
	}
	for r := range relays {
		last[r] = k.hold(fmt.Sprint("relay ", r))
		require.Len(k, last[r], outbox.Shards/relays)
		n += len(last[r])
	}
	require.Equal(k, outbox.Shards, n)
}

// freeShardsAreTakenOnce: of many relays that call at once, only one takes a free shard (O-05,
// O-06).
func (k *kit[Tx]) freeShardsAreTakenOnce() {
	const relays = 8
	for range 15 {
		held := make([][]outbox.Lease, relays)
		require.NoError(k, together(relays, func(r int) (err error) {
			held[r], err = k.Outbox.Hold(k.ctx, fmt.Sprint("relay ", r), time.Minute, true)
			return err
		}))
		owner := map[int]int{}
		for r := range relays {
			for _, l := range held[r] {
				require.NotContains(k, owner, l.Shard, "relay %d", r)
				owner[l.Shard] = r
			}
		}
		require.NotEmpty(k, owner)
		for r := range relays {
			require.NoError(k, k.Outbox.Leave(k.ctx, fmt.Sprint("relay ", r)))
		}
	}
}
