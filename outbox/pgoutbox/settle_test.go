package pgoutbox_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/outbox"
	"github.com/idem-go/idem/outbox/pgoutbox"
)

// O-08: only the given rows are deleted. O-13: rows of a shard that another relay has taken stay as
// they are, and Settle returns the shard.
func TestSettleIsFenced(t *testing.T) {
	box, pool := newBox(t)
	for i := range 40 {
		add(t, pool, box, entry(fmt.Sprint(i), fmt.Sprint(i)))
	}
	old := hold(t, box, "a")
	rows := fetch(t, box)
	_, err := pool.Exec(t.Context(), "UPDATE idem_outbox_shards SET lease_until = now() WHERE shard = $1", rows[0].Shard)
	require.NoError(t, err)
	hold(t, box, "b") // takes this one
	var stale, ours []outbox.Row
	for _, r := range rows {
		if r.Shard == rows[0].Shard {
			stale = append(stale, r)
		} else {
			ours = append(ours, r)
		}
	}
	for _, s := range []outbox.Settlement{
		{Sent: seqs(stale)}, {Sent: seqs(stale), Keep: true}, {Parked: map[int64]string{stale[0].Seq: "x"}, Sent: seqs(stale[1:])},
	} {
		lost, err := box.Settle(t.Context(), "a", old, s)
		require.NoError(t, err)
		require.Equal(t, []int{rows[0].Shard}, lost)
	}
	forged := append([]outbox.Lease(nil), old...) // the epoch alone is not enough, nor is the name
	for i := range forged {
		forged[i].Epoch++
	}
	lost, err := box.Settle(t.Context(), "a", forged, outbox.Settlement{Sent: seqs(ours)})
	require.NoError(t, err)
	require.Len(t, lost, outbox.Shards)
	lost, err = box.Settle(t.Context(), "a", old, outbox.Settlement{Sent: append(seqs(stale), seqs(ours[:5])...)})
	require.NoError(t, err)
	require.Equal(t, []int{rows[0].Shard}, lost)
	require.ElementsMatch(t, ids(append(stale, ours[5:]...)), ids(fetch(t, box)))
}

// O-10: a row is parked with its reason, the rows behind it in its aggregate are blocked, and
// others go on. Then a person acts.
func TestStates(t *testing.T) {
	box, pool := newBox(t)
	add(t, pool, box, entry("A", "a0"), entry("A", "a1"), entry("A", "a2"), entry("A", "a3"), entry("A", "a4"), entry("B", "b1"))
	held := hold(t, box, "r")
	seq := map[string]int64{}
	for _, r := range fetch(t, box) {
		require.False(t, r.Blocked)
		seq[r.Entry.ID] = r.Seq
	}
	settle := func(s outbox.Settlement) {
		lost, err := box.Settle(t.Context(), "r", held, s)
		require.NoError(t, err)
		require.Empty(t, lost)
	}
	reason := strings.Repeat("ü", 600) + "\x00\xff"
	settle(outbox.Settlement{Parked: map[int64]string{seq["a1"]: reason}, Blocked: []int64{seq["a0"], seq["a2"], seq["b1"]}})
	require.Equal(t, map[string]int{"a0": 0, "a1": 2, "a2": 3, "a3": 0, "a4": 0, "b1": 0}, states(t, pool), "a0 and b1 are behind nothing")
	settle(outbox.Settlement{Sent: []int64{seq["a0"]}})
	blocked := map[string]bool{}
	for _, r := range fetch(t, box) {
		blocked[r.Entry.ID] = r.Blocked
	}
	require.Equal(t, map[string]bool{"a3": true, "a4": true, "b1": false}, blocked)
	for _, r := range fetchWith(t, box, outbox.Fetch{Limit: 1000, Bytes: 1 << 20}) {
		require.False(t, r.Blocked, "without Halt nothing is")
	}
	settle(outbox.Settlement{Parked: map[int64]string{seq["a3"]: "other"}, Blocked: []int64{seq["a4"]}})
	backlog, err := box.Backlog(t.Context(), 100)
	require.NoError(t, err)
	require.Equal(t, []int64{1, 2, 2}, []int64{backlog.Waiting, backlog.Parked, backlog.Blocked})

	parked, err := box.Parked(t.Context(), 10)
	require.NoError(t, err)
	require.Len(t, parked, 2)
	require.Equal(t, "a1", parked[0].Row.Entry.ID)
	require.EqualValues(t, 2, parked[0].Behind)
	require.EqualValues(t, 1, parked[1].Behind)
	require.True(t, utf8.ValidString(parked[0].Error) && strings.HasPrefix(reason, parked[0].Error))
	require.Greater(t, len(parked[0].Error), 1000)
	require.False(t, parked[0].At.IsZero())

	require.NoError(t, box.Retry(t.Context(), seq["a1"]))
	require.Equal(t, map[string]int{"a1": 0, "a2": 0, "a3": 2, "a4": 3, "b1": 0}, states(t, pool), "a4 is behind another one")
	require.ErrorIs(t, box.Retry(t.Context(), seq["a1"]), pgoutbox.ErrNotParked)
	require.ErrorIs(t, box.Skip(t.Context(), seq["a4"]), pgoutbox.ErrNotParked)
	require.ErrorIs(t, box.Skip(t.Context(), 1<<40), pgoutbox.ErrNotParked)
	require.NoError(t, box.Skip(t.Context(), seq["a3"]))
	require.Equal(t, map[string]int{"a1": 0, "a2": 0, "a4": 0, "b1": 0}, states(t, pool))
	settle(outbox.Settlement{Sent: []int64{seq["a1"]}, Keep: true})
	settle(outbox.Settlement{Sent: []int64{seq["a1"]}}) // repeated after an answer that was lost
	require.Equal(t, 1, states(t, pool)["a1"])
	n, err := box.Purge(t.Context(), time.Hour, 10)
	require.NoError(t, err)
	require.Zero(t, n)
}

// A row that a relay blocks while a person releases what is in front of it must not stay blocked
// behind nothing, for ever.
func TestBlockedWhileReleased(t *testing.T) {
	box, pool := newBox(t)
	held := hold(t, box, "r")
	for i := range 60 {
		_, err := pool.Exec(t.Context(), "DELETE FROM idem_outbox")
		require.NoError(t, err)
		add(t, pool, box, entry("A", "parked"), entry("A", "behind"))
		rows := fetch(t, box)
		_, err = box.Settle(t.Context(), "r", held, outbox.Settlement{Parked: map[int64]string{rows[0].Seq: "x"}})
		require.NoError(t, err)
		require.NoError(t, together(2, func(who int) error {
			if who == 0 {
				return box.Retry(t.Context(), rows[0].Seq)
			}
			_, err := box.Settle(t.Context(), "r", held, outbox.Settlement{Blocked: []int64{rows[1].Seq}})
			return err
		}))
		require.Equal(t, map[string]int{"parked": 0, "behind": 0}, states(t, pool), "run %d", i)
	}
}

// While a person acts on a shard, a relay that blocks or parks rows of that shard waits. Relays
// that renew or take other shards do not wait, and no relay takes this one. Afterwards the lease is
// renewed.
func TestReleaseHoldsTheShard(t *testing.T) {
	box, pool := newBox(t)
	add(t, pool, box, entry("A", "a1"), entry("A", "a2"))
	held := hold(t, box, "r")
	rows := fetch(t, box)
	this := held[rows[0].Shard]
	_, err := pool.Exec(t.Context(), "UPDATE idem_outbox_shards SET lease_until = now()")
	require.NoError(t, err)
	person := begin(t, pool)
	_, err = person.Exec(t.Context(), "SELECT FROM idem_outbox_shards WHERE shard = $1 FOR UPDATE", this.Shard)
	require.NoError(t, err)

	bounded, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	again, err := box.Hold(bounded, "r", time.Minute, false)
	require.NoError(t, err)
	require.Len(t, again, outbox.Shards-1)
	require.NotContains(t, again, this)
	_, err = pool.Exec(bounded, "UPDATE idem_outbox_shards SET lease_until = now() WHERE shard <> $1", this.Shard)
	require.NoError(t, err)
	_, err = pool.Exec(bounded, "UPDATE idem_outbox_relays SET alive_until = now()")
	require.NoError(t, err)
	taken, err := box.Hold(bounded, "b", time.Minute, true)
	require.NoError(t, err)
	require.Len(t, taken, outbox.Shards-1)

	short, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	_, err = box.Settle(short, "r", []outbox.Lease{this}, outbox.Settlement{Blocked: seqs(rows[1:])})
	require.ErrorIs(t, err, context.DeadlineExceeded, "it did not wait")
	require.NoError(t, person.Rollback(t.Context()))
	again, err = box.Hold(t.Context(), "r", time.Minute, false)
	require.NoError(t, err)
	require.Equal(t, []outbox.Lease{this}, again)
}

// Two relays that both seem to hold the shard settle the same rows in any order, and leases are
// renewed meanwhile. No transaction deadlocks.
func TestSettlementsAtOnce(t *testing.T) {
	const workers = 6
	box, pool := newBox(t, maxConns(workers))
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	fill(t, pool, 2000, 0, 50)
	held := hold(t, box, "r")
	all := seqs(fetch(t, box))
	require.NoError(t, together(workers, func(w int) error {
		r := rand.New(rand.NewPCG(seed, uint64(w)))
		for range 40 {
			var s outbox.Settlement
			s.Parked = map[int64]string{}
			for range 40 {
				seq := all[r.IntN(len(all))]
				switch r.IntN(4) {
				case 0:
					s.Parked[seq] = "x"
				case 1:
					s.Blocked = append(s.Blocked, seq)
				default:
					s.Sent = append(s.Sent, seq)
				}
			}
			if r.IntN(2) == 0 {
				s.Parked, s.Blocked = nil, nil
			}
			if _, err := box.Settle(t.Context(), "r", held, s); err != nil {
				return err
			}
			if _, err := box.Hold(t.Context(), "r", time.Minute, r.IntN(2) == 0); err != nil {
				return err
			}
		}
		return nil
	}))
}

// Kept rows are deleted in batches, by several calls at once.
func TestPurge(t *testing.T) {
	box, pool := newBox(t)
	fill(t, pool, 1000, 1, 50)
	fill(t, pool, 10, 0, 50)
	deleted := make([]int64, 4)
	require.NoError(t, together(len(deleted), func(i int) error {
		for {
			n, err := box.Purge(t.Context(), 0, 70)
			deleted[i] += n
			if err != nil || n == 0 {
				return err
			}
			if n > 70 {
				return fmt.Errorf("%d rows in one batch", n)
			}
		}
	}))
	require.EqualValues(t, 1000, deleted[0]+deleted[1]+deleted[2]+deleted[3])
	require.Len(t, fetch(t, box), 10)
}
