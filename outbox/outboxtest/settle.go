package outboxtest

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/outbox"
)

// settleIsFenced: only the given rows are deleted (O-08). Rows of a shard that another relay has
// taken stay as they are, and Settle returns the shard (O-13).
func (k *kit[Tx]) settleIsFenced() {
	k.many(40, 40)
	old := k.hold("a")
	rows := k.fetchAll()
	lostShard := rows[0].Shard
	require.NoError(k, k.ExpireShards(k.ctx, []int{lostShard}))
	require.Len(k, k.hold("b"), 1, "another relay takes this one")
	var stale, ours []outbox.Row
	for _, r := range rows {
		if r.Shard == lostShard {
			stale = append(stale, r)
		} else {
			ours = append(ours, r)
		}
	}
	for _, s := range []outbox.Settlement{
		{Sent: rowIDs(stale)}, {Sent: rowIDs(stale), Keep: true},
		{Parked: map[outbox.RowID]string{stale[0].RowID(): "x"}, Sent: rowIDs(stale[1:])},
		{Blocked: rowIDs(stale)},
	} {
		lost, err := k.Outbox.Settle(k.ctx, "a", old, s)
		require.NoError(k, err)
		require.Equal(k, []int{lostShard}, lost)
	}
	forged := slices.Clone(old) // the epoch alone is not enough, nor is the name
	for i := range forged {
		forged[i].Epoch++
	}
	lost, err := k.Outbox.Settle(k.ctx, "a", forged, outbox.Settlement{Sent: rowIDs(ours)})
	require.NoError(k, err)
	require.Len(k, lost, outbox.Shards)
	lost, err = k.Outbox.Settle(k.ctx, "a", old,
		outbox.Settlement{Sent: append(rowIDs(stale), rowIDs(ours[:5])...)})
	require.NoError(k, err)
	require.Equal(k, []int{lostShard}, lost)
	require.ElementsMatch(k, ids(slices.Concat(stale, ours[5:])), ids(k.fetchAll()))
}

// numberGivenTwice: a fail-over lost a row that a relay holds, and the number of that row went to
// another event. The results of the lost row leave the other one as it is, which waits (O-16).
func (k *kit[Tx]) numberGivenTwice() {
	k.commit(entry("A", "front"))
	held := k.hold("r")
	front := k.fetchAll()[0].RowID()
	k.settle("r", held, outbox.Settlement{Parked: map[outbox.RowID]string{front: "x"}})
	k.commit(entry("A", "lost"))
	lost := k.fetchAll()[0].RowID()
	require.NoError(k, k.LoseRow(k.ctx, lost.Seq))
	k.commit(entry("A", "other"))
	other := k.fetchAll()[0].RowID()
	require.Equal(k, outbox.RowID{Seq: lost.Seq, EventID: "other"}, other)
	this := []outbox.RowID{lost}
	for name, s := range map[string]outbox.Settlement{
		"sent": {Sent: this}, "kept": {Sent: this, Keep: true}, "blocked": {Blocked: this},
		"parked":            {Parked: map[outbox.RowID]string{lost: "x"}},
		"sent with another": {Sent: this, Parked: map[outbox.RowID]string{front: "x"}},
	} {
		k.settle("r", held, s)
		require.Equal(k, map[string]int{"front": 2, "other": 0}, k.rowStates(), name)
	}
	k.settle("r", held, outbox.Settlement{Sent: []outbox.RowID{other},
		Parked: map[outbox.RowID]string{lost: "x"}})
	require.Equal(k, map[string]int{"front": 2}, k.rowStates())
}

// parkedNumberGivenTwice: a fail-over lost a parked row that a person looks at, and the number of
// that row went to another event, which is parked too. Neither Retry nor Skip of the lost row
// changes the other row or the row behind it (O-16).
func (k *kit[Tx]) parkedNumberGivenTwice() {
	k.commit(entry("A", "lost"))
	held := k.hold("r")
	lost := k.fetchAll()[0].RowID()
	k.settle("r", held, outbox.Settlement{Parked: map[outbox.RowID]string{lost: "x"}})
	require.NoError(k, k.LoseRow(k.ctx, lost.Seq))
	k.commit(entry("A", "other"))
	k.commit(entry("A", "behind"))
	rows := k.fetchAll()
	other := rows[0].RowID()
	require.Equal(k, outbox.RowID{Seq: lost.Seq, EventID: "other"}, other)
	k.settle("r", held, outbox.Settlement{
		Parked: map[outbox.RowID]string{other: "x"}, Blocked: rowIDs(rows[1:]),
	})
	for name, act := range map[string]func(context.Context, outbox.RowID) error{
		"Retry": k.Outbox.Retry, "Skip": k.Outbox.Skip,
	} {
		for _, id := range []string{"lost", "", "OTHER", "other "} {
			err := act(k.ctx, outbox.RowID{Seq: lost.Seq, EventID: id})
			require.ErrorIs(k, err, outbox.ErrNotParked, "%s %q", name, id)
			require.ErrorContains(k, err, strconv.Quote(id), name)
			require.Equal(k, map[string]int{"other": 2, "behind": 3}, k.rowStates(), "%s %q", name, id)
		}
	}
	require.NoError(k, k.Outbox.Skip(k.ctx, other))
	require.Equal(k, map[string]int{"behind": 0}, k.rowStates())
}

// states: a row is parked with its reason, the rows behind it in its aggregate are blocked, and
// others go on. Then a person acts (O-10).
func (k *kit[Tx]) states() {
	k.commit(entry("A", "a0"), entry("A", "a1"), entry("A", "a2"), entry("A", "a3"),
		entry("A", "a4"), entry("B", "b1"))
	held := k.hold("r")
	row := map[string]outbox.RowID{}
	for _, r := range k.fetchAll() {
		require.False(k, r.Blocked)
		row[r.Entry.ID] = r.RowID()
	}
	settle := func(s outbox.Settlement) { k.settle("r", held, s) }
	reason := strings.Repeat("ü", 600) + "\x00\xff"
	settle(outbox.Settlement{Parked: map[outbox.RowID]string{row["a1"]: reason},
		Blocked: []outbox.RowID{row["a0"], row["a2"], row["b1"]}})
	require.Equal(k, map[string]int{"a0": 0, "a1": 2, "a2": 3, "a3": 0, "a4": 0, "b1": 0},
		k.rowStates(), "a0 and b1 are behind nothing")
	settle(outbox.Settlement{Sent: []outbox.RowID{row["a0"]}})
	blocked := map[string]bool{}
	for _, r := range k.fetchAll() {
		blocked[r.Entry.ID] = r.Blocked
	}
	require.Equal(k, map[string]bool{"a3": true, "a4": true, "b1": false}, blocked)
	f := everything()
	f.Halt = false
	for _, r := range k.fetch(f) {
		require.Equal(k, r.Entry.Key == "A", r.Blocked, "a2 is blocked already")
	}
	settle(outbox.Settlement{Parked: map[outbox.RowID]string{row["a3"]: "other"},
		Blocked: []outbox.RowID{row["a4"]}})
	k.operate(row, reason)
	settle(outbox.Settlement{Sent: []outbox.RowID{row["a1"]}, Keep: true})
	// The call is repeated after an answer that was lost.
	settle(outbox.Settlement{Sent: []outbox.RowID{row["a1"]}})
	require.Equal(k, 1, k.rowStates()["a1"])
	settle(outbox.Settlement{Parked: map[outbox.RowID]string{row["a1"]: "late"},
		Blocked: []outbox.RowID{row["a1"]}})
	require.Equal(k, 1, k.rowStates()["a1"], "a row that was sent stays sent")
	n, err := k.Outbox.Purge(k.ctx, time.Hour, 10)
	require.NoError(k, err)
	require.Zero(k, n)
}

// blockedBeforeSkip: rows were blocked under the policy Halt. Later rows of their aggregate are
// blocked without Halt too, and stay behind them. Other aggregates with a parked row are not.
func (k *kit[Tx]) blockedBeforeSkip() {
	k.commit(entry("A", "a1"), entry("A", "a2"), entry("A", "a3"), entry("B", "b1"),
		entry("B", "b2"))
	held := k.hold("r")
	row := map[string]outbox.RowID{}
	for _, r := range k.fetchAll() {
		row[r.Entry.ID] = r.RowID()
	}
	k.settle("r", held, outbox.Settlement{
		Parked:  map[outbox.RowID]string{row["a1"]: "x", row["b1"]: "x"},
		Blocked: []outbox.RowID{row["a2"]},
	})
	f := everything()
	f.Halt = false
	blocked := map[string]bool{}
	for _, r := range k.fetch(f) {
		blocked[r.Entry.ID] = r.Blocked
	}
	require.Equal(k, map[string]bool{"a3": true, "b2": false}, blocked)
	k.settle("r", held, outbox.Settlement{Blocked: []outbox.RowID{row["a3"]}})
	require.Equal(k, map[string]int{"a1": 2, "a2": 3, "a3": 3, "b1": 2, "b2": 0}, k.rowStates())
	require.NoError(k, k.Outbox.Skip(k.ctx, row["a1"]))
	rows := k.fetch(f)
	require.Equal(k, []string{"a2", "a3", "b2"}, ids(rows))
	for _, r := range rows {
		require.False(k, r.Blocked, r.Entry.ID)
	}
}

// operate lists, retries and skips the parked rows of states.
func (k *kit[Tx]) operate(row map[string]outbox.RowID, reason string) {
	parked, err := k.Outbox.Parked(k.ctx, 10)
	require.NoError(k, err)
	require.Len(k, parked, 2)
	require.Equal(k, "a1", parked[0].Row.Entry.ID)
	require.EqualValues(k, 2, parked[0].Behind)
	require.EqualValues(k, 1, parked[1].Behind)
	require.True(k, utf8.ValidString(parked[0].Error) && strings.HasPrefix(reason, parked[0].Error))
	require.Greater(k, len(parked[0].Error), 1000)
	require.LessOrEqual(k, len(parked[0].Error), 1<<10)
	require.WithinDuration(k, time.Now(), parked[0].At, time.Hour)
	first, err := k.Outbox.Parked(k.ctx, 1)
	require.NoError(k, err)
	require.Equal(k, parked[:1], first)

	require.NoError(k, k.Outbox.Retry(k.ctx, row["a1"]))
	require.Equal(k, map[string]int{"a1": 0, "a2": 0, "a3": 2, "a4": 3, "b1": 0}, k.rowStates(),
		"a4 is behind another one")
	require.ErrorIs(k, k.Outbox.Retry(k.ctx, row["a1"]), outbox.ErrNotParked)
	require.ErrorIs(k, k.Outbox.Skip(k.ctx, row["a4"]), outbox.ErrNotParked)
	require.ErrorIs(k, k.Outbox.Skip(k.ctx, outbox.RowID{Seq: 1 << 40, EventID: "a3"}), outbox.ErrNotParked)
	require.NoError(k, k.Outbox.Skip(k.ctx, row["a3"]))
	require.Equal(k, map[string]int{"a1": 0, "a2": 0, "a4": 0, "b1": 0}, k.rowStates())
}

// blockedWhileReleased: a relay blocks a row while an operator releases the parked row in front.
// The blocked row must not stay blocked.
func (k *kit[Tx]) blockedWhileReleased() {
	held := k.hold("r")
	for i := range 30 {
		k.commit(entry("A", "parked"), entry("A", "behind"))
		rows := k.fetchAll()
		require.Len(k, rows, 2)
		k.settle("r", held, outbox.Settlement{Parked: map[outbox.RowID]string{rows[0].RowID(): "x"}})
		require.NoError(k, together(2, func(who int) error {
			if who == 0 {
				return k.Outbox.Retry(k.ctx, rows[0].RowID())
			}
			_, err := k.Outbox.Settle(k.ctx, "r", held,
				outbox.Settlement{Blocked: []outbox.RowID{rows[1].RowID()}})
			return err
		}))
		require.Equal(k, map[string]int{"parked": 0, "behind": 0}, k.rowStates(), "run %d", i)
		k.settle("r", held, outbox.Settlement{Sent: rowIDs(rows)})
	}
}

// releaseHoldsTheShard: while a person acts on a shard, a relay that blocks or parks rows of that
// shard waits. Relays that renew or take other shards do not wait, and no relay takes this one.
// Afterwards the lease is renewed.
func (k *kit[Tx]) releaseHoldsTheShard() {
	k.commit(entry("A", "a1"), entry("A", "a2"))
	held := k.hold("r")
	rows := k.fetchAll()
	this := held[rows[0].Shard]
	require.NoError(k, k.ExpireShards(k.ctx, nil))
	unlock, err := k.LockShard(k.ctx, this.Shard)
	require.NoError(k, err)

	bounded, cancel := context.WithTimeout(k.ctx, 5*time.Second)
	defer cancel()
	again, err := k.Outbox.Hold(bounded, "r", time.Minute, false)
	require.NoError(k, err)
	require.Len(k, again, outbox.Shards-1)
	require.NotContains(k, again, this)
	var others []int
	for _, l := range again {
		others = append(others, l.Shard)
	}
	require.NoError(k, k.ExpireShards(bounded, others))
	require.NoError(k, k.ExpireRelays(bounded))
	taken, err := k.Outbox.Hold(bounded, "b", time.Minute, true)
	require.NoError(k, err)
	require.Len(k, taken, outbox.Shards-1)

	short, cancel := context.WithTimeout(k.ctx, 300*time.Millisecond)
	defer cancel()
	_, err = k.Outbox.Settle(short, "r", []outbox.Lease{this},
		outbox.Settlement{Blocked: rowIDs(rows[1:])})
	require.ErrorIs(k, err, context.DeadlineExceeded, "it did not wait")
	require.NoError(k, unlock())
	require.Eventually(k, func() bool { // the server may still end the transaction of Settle
		again, err := k.Outbox.Hold(k.ctx, "r", time.Minute, false)
		return err == nil && slices.Equal(bare([]outbox.Lease{this}), bare(again))
	}, 30*time.Second, 10*time.Millisecond)
}

// settlementsAtOnce: two relays that both seem to hold the shard settle the same rows in any order,
// and leases are renewed meanwhile. No transaction deadlocks.
func (k *kit[Tx]) settlementsAtOnce() {
	const workers = 6
	k.logSeed()
	k.many(2000, 50)
	held := k.hold("r")
	all := rowIDs(k.fetchAll())
	require.NoError(k, together(workers, func(w int) error {
		r := k.random(w)
		for range 40 {
			s := outbox.Settlement{Parked: map[outbox.RowID]string{}}
			for range 40 {
				row := all[r.IntN(len(all))]
				switch r.IntN(4) {
				case 0:
					s.Parked[row] = "x"
				case 1:
					s.Blocked = append(s.Blocked, row)
				default:
					s.Sent = append(s.Sent, row)
				}
			}
			if r.IntN(2) == 0 {
				s.Parked, s.Blocked = nil, nil
			}
			if _, err := k.Outbox.Settle(k.ctx, "r", held, s); err != nil {
				return err
			}
			if _, err := k.Outbox.Hold(k.ctx, "r", time.Minute, r.IntN(2) == 0); err != nil {
				return err
			}
		}
		return nil
	}))
}

// relaysDoNotWait: a transaction that adds entries and stays open delays no relay and no person.
func (k *kit[Tx]) relaysDoNotWait() {
	k.commit(entry("A", "a1"), entry("A", "a2"), entry("A", "a3"), entry("B", "b1"))
	open := k.begin()
	require.NoError(k, k.Add(k.ctx, open, entry("A", "open"), entry("B", "open too")))
	bounded, cancel := context.WithTimeout(k.ctx, 2*time.Second)
	defer cancel()
	held := k.hold("r")
	rows := k.fetchAll()
	require.Len(k, rows, 4)
	for _, s := range []outbox.Settlement{
		{Sent: rowIDs(rows[:1])},
		{Parked: map[outbox.RowID]string{rows[1].RowID(): "x"}, Blocked: rowIDs(rows[2:3])},
		{Sent: rowIDs(rows[3:]), Keep: true},
	} {
		lost, err := k.Outbox.Settle(bounded, "r", held, s)
		require.NoError(k, err)
		require.Empty(k, lost)
	}
	require.NoError(k, k.Outbox.Retry(bounded, rows[1].RowID()))
	_, err := k.Outbox.Purge(bounded, 0, 10)
	require.NoError(k, err)
	_, err = k.Outbox.Backlog(bounded, 10)
	require.NoError(k, err)
	require.NoError(k, k.Outbox.Leave(bounded, "r"))
	require.NoError(k, k.Commit(k.ctx, open))
	require.Len(k, k.fetchAll(), 4)
}

// purge: kept rows are deleted in batches, by several calls at once.
func (k *kit[Tx]) purge() {
	held := k.hold("r")
	k.many(1000, 50)
	k.settle("r", held, outbox.Settlement{Sent: rowIDs(k.fetchAll()), Keep: true})
	k.many(10, 10)
	deleted := make([]int64, 4)
	require.NoError(k, together(len(deleted), func(i int) error {
		for {
			n, err := k.Outbox.Purge(k.ctx, 0, 70)
			deleted[i] += n
			if err != nil || n == 0 {
				return err
			}
			if n > 70 {
				return fmt.Errorf("%d rows in one batch", n)
			}
		}
	}))
	require.EqualValues(k, 1000, deleted[0]+deleted[1]+deleted[2]+deleted[3])
	require.Len(k, k.fetchAll(), 10)
}

// backlog: each count stops at the limit, and rows that were sent do not count.
func (k *kit[Tx]) backlog() {
	b, err := k.Outbox.Backlog(k.ctx, 10)
	require.NoError(k, err)
	require.Equal(k, outbox.Backlog{}, b)
	k.many(90, 3)
	held, rows := k.hold("r"), k.fetchAll()
	s := outbox.Settlement{Parked: map[outbox.RowID]string{}, Sent: rowIDs(rows[:10]), Keep: true}
	behind := map[string]bool{}
	for _, r := range rows[10:60] {
		if behind[r.Entry.Key] {
			s.Blocked = append(s.Blocked, r.RowID())
		} else {
			s.Parked[r.RowID()] = "x"
			behind[r.Entry.Key] = true
		}
	}
	k.settle("r", held, s)
	for limit, want := range map[int]outbox.Backlog{
		100: {Waiting: 30, Parked: int64(len(behind)), Blocked: int64(50 - len(behind))},
		2:   {Waiting: 2, Parked: min(2, int64(len(behind))), Blocked: 2},
	} {
		b, err := k.Outbox.Backlog(k.ctx, limit)
		require.NoError(k, err)
		require.Positive(k, b.Oldest)
		require.Less(k, b.Oldest, time.Hour)
		b.Oldest = 0
		require.Equal(k, want, b)
	}
}
