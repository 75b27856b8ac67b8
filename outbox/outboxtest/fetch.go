package outboxtest

import (
	"fmt"
	"strconv"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/outbox"
)

// fetchIsBounded: a batch never exceeds its limits, and no shard exceeds its share. The rows of a
// shard come in their order without a gap (O-06, O-15). Writers and settlements run meanwhile.
func (k *kit[Tx]) fetchIsBounded() {
	k.logSeed()
	k.many(4000, 300)
	stop, done := make(chan struct{}), make(chan error, 1)
	go func() {
		r := k.random(1)
		for i := 0; ; i++ {
			select {
			case <-stop:
				done <- nil
				return
			default:
			}
			if err := k.write(entry(fmt.Sprint(r.IntN(300)), fmt.Sprint("w", i))); err != nil {
				done <- err
				return
			}
		}
	}()
	r, held, last := k.random(2), k.hold("a"), map[int]int64{}
	for range 150 {
		f := outbox.Fetch{Shards: held[:1+r.IntN(len(held))], Limit: 1 + r.IntN(200),
			Bytes: 200 + r.IntN(40_000), Halt: r.IntN(2) == 0}
		rows := k.fetch(f)
		size, each := 0, map[int]int{}
		for _, row := range rows {
			size += row.Entry.Size()
			each[row.Shard]++
			require.Greater(k, row.Seq, last[row.Shard], "shard %d", row.Shard)
			last[row.Shard] = row.Seq
		}
		require.LessOrEqual(k, len(rows), f.Limit)
		require.True(k, size <= f.Bytes || len(rows) == 1,
			"%d bytes in %d rows, the limit is %d", size, len(rows), f.Bytes)
		for shard, n := range each {
			require.LessOrEqual(k, n, (f.Limit+len(f.Shards)-1)/len(f.Shards), "shard %d", shard)
		}
		k.settle("a", held, outbox.Settlement{Sent: rowIDs(rows), Keep: r.IntN(2) == 0})
	}
	close(stop)
	require.NoError(k, <-done)
	for { // the remaining rows: no row was passed over
		rows := k.fetchAll()
		if len(rows) == 0 {
			break
		}
		k.settle("a", held, outbox.Settlement{Sent: rowIDs(rows)})
	}
	for id, state := range k.rowStates() {
		require.Equal(k, 1, state, id)
	}
	require.Empty(k, k.fetch(outbox.Fetch{Shards: held, Limit: 0, Bytes: 1}))
	require.Empty(k, k.fetch(outbox.Fetch{Limit: 1, Bytes: 1}))
}

// rowAboveBytes: a row above the limit of bytes is returned alone, so it never stops its shard
// (O-15). A row behind it in its aggregate does not overtake it.
func (k *kit[Tx]) rowAboveBytes() {
	large := entry("A", "large")
	large.Payload = make([]byte, 1000)
	k.commit(large, entry("A", "small"))
	held := k.hold("a")
	f := outbox.Fetch{Shards: held, Limit: 100, Bytes: 200, Halt: true}
	rows := k.fetch(f)
	require.Equal(k, []string{"large"}, ids(rows))
	require.Equal(k, large, rows[0].Entry)
	k.settle("a", held, outbox.Settlement{Sent: rowIDs(rows)})
	require.Equal(k, []string{"small"}, ids(k.fetch(f)))
}

// oldestFirst: a batch has the oldest of the first rows of all shards, so no shard starves while
// others have a backlog.
func (k *kit[Tx]) oldestFirst() {
	k.many(2000, 1000)
	held := k.hold("a")
	for range 5 {
		var want []string
		shards := map[int]bool{}
		for _, r := range k.fetchAll() {
			if !shards[r.Shard] && len(want) < 40 {
				want = append(want, r.Entry.ID)
			}
			shards[r.Shard] = true
		}
		rows := k.fetch(outbox.Fetch{Shards: held, Limit: 40, Bytes: 1 << 20})
		require.Equal(k, want, ids(rows))
		k.settle("a", held, outbox.Settlement{Sent: rowIDs(rows)})
	}
}

// skipLists: only the listed aggregates, and the listed rows without a key, are left out.
func (k *kit[Tx]) skipLists() {
	k.many(400, 200)
	other := entry("7", "other topic")
	other.Topic = "invoices"
	free := []outbox.Entry{entry("", "free 1"), entry("", "free 2")}
	k.commit(append(free, other)...)
	f := everything()
	for i := range 150 {
		f.Skip = append(f.Skip, outbox.Aggregate{Topic: "orders", Key: strconv.Itoa(i)})
	}
	want := map[string]bool{"other topic": true, "free 2": true}
	for _, r := range k.fetchAll() {
		if r.Entry.ID == "free 1" {
			f.SkipRows = append(f.SkipRows, r.Seq)
		}
		if n, err := strconv.Atoi(r.Entry.Key); err == nil && n >= 150 {
			want[r.Entry.ID] = true
		}
	}
	got := map[string]bool{}
	for _, r := range k.fetch(f) {
		got[r.Entry.ID] = true
	}
	require.Equal(k, want, got)
	f.Skip = nil
	require.Len(k, k.fetch(f), 402)
}
