package pgoutbox_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/outbox"
)

// O-04, O-05: relays share the shards evenly within a few calls. No shard has two holders, and a
// shard that is taken over has a new epoch.
func TestRelaysShare(t *testing.T) {
	box, pool := newBox(t)
	held, highest := map[string][]outbox.Lease{}, map[int]int64{}
	round := func(relays ...string) {
		for _, relay := range relays {
			before := map[int]int64{}
			for _, l := range held[relay] {
				before[l.Shard] = l.Epoch
			}
			held[relay] = hold(t, box, relay)
			for _, l := range held[relay] {
				if before[l.Shard] != l.Epoch {
					require.Greater(t, l.Epoch, highest[l.Shard])
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
				require.Empty(t, owner[l.Shard], "shard %d", l.Shard)
				owner[l.Shard] = relay
			}
		}
		return n
	}
	round("a")
	require.Equal(t, []int{64}, sizes("a"))
	for range 2 {
		round("b", "a")
	}
	round("b")
	require.Equal(t, []int{32, 32}, sizes("a", "b"))
	for range 3 {
		round("c", "d", "a", "b")
	}
	require.Equal(t, []int{16, 16, 16, 16}, sizes("a", "b", "c", "d"))

	require.NoError(t, box.Leave(t.Context(), "a"))
	_, err := pool.Exec(t.Context(), "UPDATE idem_outbox_relays SET alive_until = now() WHERE relay = 'b'") // it is dead
	require.NoError(t, err)
	_, err = pool.Exec(t.Context(), "UPDATE idem_outbox_shards SET lease_until = now() WHERE relay = 'b'")
	require.NoError(t, err)
	delete(held, "a")
	delete(held, "b")
	for range 2 {
		round("c", "d")
	}
	require.Equal(t, []int{32, 32}, sizes("c", "d"))
}

// O-13: a lease that ended is renewed with its epoch if no other relay took the shard, and is lost
// otherwise. Without share no shard is given up or taken.
func TestExpiredLease(t *testing.T) {
	box, pool := newBox(t)
	mine := hold(t, box, "a")
	expire := func() {
		_, err := pool.Exec(t.Context(), "UPDATE idem_outbox_shards SET lease_until = now() - interval '1s'")
		require.NoError(t, err)
		_, err = pool.Exec(t.Context(), "UPDATE idem_outbox_relays SET alive_until = now() - interval '1s'")
		require.NoError(t, err)
	}
	expire()
	again, err := box.Hold(t.Context(), "a", time.Minute, false)
	require.NoError(t, err)
	require.Equal(t, mine, again)
	none, err := box.Hold(t.Context(), "b", time.Minute, false)
	require.NoError(t, err)
	require.Empty(t, none)
	again, err = box.Hold(t.Context(), "a", time.Minute, false)
	require.NoError(t, err)
	require.Equal(t, mine, again, "without share nothing is given")

	expire()
	taken := hold(t, box, "b")
	require.Len(t, taken, outbox.Shards)
	for i := range taken {
		require.Greater(t, taken[i].Epoch, mine[i].Epoch)
	}
	again, err = box.Hold(t.Context(), "a", time.Minute, false)
	require.NoError(t, err)
	require.Empty(t, again)
}

// O-04, O-05: many relays that come at once never deadlock, and no shard has two owners with one
// epoch.
func TestRelaysHoldAtOnce(t *testing.T) {
	const relays = 8
	box, _ := newBox(t, maxConns(relays))
	var mu sync.Mutex
	owners := map[outbox.Lease]string{}
	last := make([][]outbox.Lease, relays)
	require.NoError(t, together(relays, func(r int) error {
		name := fmt.Sprint("relay ", r)
		for i := range 40 {
			held, err := box.Hold(t.Context(), name, time.Minute, i%3 != 2)
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
		last[r] = hold(t, box, fmt.Sprint("relay ", r))
	}
	for r := range relays {
		last[r] = hold(t, box, fmt.Sprint("relay ", r))
		require.Len(t, last[r], outbox.Shards/relays)
		n += len(last[r])
	}
	require.Equal(t, outbox.Shards, n)
}

// O-05, O-06: of many relays that call at once, only one takes a free shard, and none takes more
// than its share at that moment.
func TestFreeShardsAreTakenOnce(t *testing.T) {
	const relays = 8
	box, pool := newBox(t, maxConns(relays))
	for range 15 {
		_, err := pool.Exec(t.Context(), "DELETE FROM idem_outbox_relays")
		require.NoError(t, err)
		_, err = pool.Exec(t.Context(), "UPDATE idem_outbox_shards SET relay = NULL, lease_until = NULL")
		require.NoError(t, err)
		held := make([][]outbox.Lease, relays)
		require.NoError(t, together(relays, func(r int) (err error) {
			held[r], err = box.Hold(t.Context(), fmt.Sprint("relay ", r), time.Minute, true)
			return err
		}))
		owner := map[int]int{}
		for r := range relays {
			for _, l := range held[r] {
				require.NotContains(t, owner, l.Shard, "relay %d", r)
				owner[l.Shard] = r
			}
		}
	}
}
