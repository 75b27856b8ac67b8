package outboxtest

import (
	"fmt"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/outbox"
)

// roundTrip: entries come out as they were added, in one transaction or one each, and are deleted
// when they were sent.
func (k *kit[Tx]) roundTrip(alone bool) {
	in := []outbox.Entry{
		{Topic: "orders", Key: "\xff\x00k", Type: "t", ID: "1", Payload: []byte{0, 255},
			Headers: []idem.Header{
				{Key: "b", Value: []byte("text")}, {Key: "a", Value: []byte{0xff}},
				{Key: "b", Value: nil}, {Key: "e", Value: []byte{}},
				{Key: "nul", Value: []byte("a\x00b")}, {Key: "ü", Value: []byte(`"<é\'`)}}},
		{Topic: "orders", Type: "t", ID: "2"},
		{Topic: "orders", Key: "k", Type: "tüp ", ID: "3 🎉 ", Payload: []byte{}},
	}
	if alone {
		for _, e := range in {
			k.commit(e)
		}
	} else {
		k.commit(in...)
	}
	held := k.hold("a")
	require.Len(k, held, outbox.Shards)
	rows := k.fetch(outbox.Fetch{Shards: held, Limit: 1000, Bytes: 1 << 20, Halt: true})
	require.Len(k, rows, 3)
	for _, r := range rows {
		var want outbox.Entry
		for _, e := range in {
			if e.ID == r.Entry.ID {
				want = e
			}
		}
		require.Equal(k, want, r.Entry)
		require.False(k, r.Added.IsZero())
		require.False(k, r.Blocked)
	}
	k.settle("a", held, outbox.Settlement{Sent: rowIDs(rows)[:1]})
	k.settle("a", held, outbox.Settlement{Sent: rowIDs(rows)[1:2], Keep: true,
		Parked: map[outbox.RowID]string{rows[2].RowID(): "too\x00 large"}})
	require.Equal(k, map[string]int{rows[1].Entry.ID: 1, rows[2].Entry.ID: 2}, k.rowStates())
	parked, err := k.Outbox.Parked(k.ctx, 10)
	require.NoError(k, err)
	require.Len(k, parked, 1)
	require.Equal(k, "too large", parked[0].Error)
	require.Equal(k, rows[2], parked[0].Row)
	require.NoError(k, k.Outbox.Skip(k.ctx, rows[2].RowID()))
	n, err := k.Outbox.Purge(k.ctx, 0, 10)
	require.NoError(k, err)
	require.EqualValues(k, 1, n)
	require.Empty(k, k.rowStates())
	require.NoError(k, k.Outbox.Leave(k.ctx, "a"))
	require.Len(k, k.hold("b"), outbox.Shards)
}

// rolledBack: entries of a transaction that is rolled back never appear (rule 22).
func (k *kit[Tx]) rolledBack() {
	for range 3 {
		tx := k.begin()
		require.NoError(k, k.Add(k.ctx, tx, entry("A", "gone"), entry("B", "gone too")))
		require.NoError(k, k.Rollback(k.ctx, tx))
		require.Error(k, k.Add(k.ctx, tx, entry("A", "late")), "the transaction has ended")
	}
	k.commit(entry("A", "there"))
	require.Equal(k, map[string]int{"there": 0}, k.rowStates())
}

// savepoint: entries of a savepoint that is rolled back never appear, and others do.
func (k *kit[Tx]) savepoint() {
	tx := k.begin()
	require.NoError(k, k.Add(k.ctx, tx, entry("A", "before")))
	inner, undo, _, err := k.Savepoint(k.ctx, tx)
	require.NoError(k, err)
	require.NoError(k, k.Add(k.ctx, inner, entry("A", "undone"), entry("B", "undone too")))
	require.NoError(k, undo(k.ctx))
	inner, _, keep, err := k.Savepoint(k.ctx, tx)
	require.NoError(k, err)
	require.NoError(k, k.Add(k.ctx, inner, entry("A", "kept")))
	require.NoError(k, keep(k.ctx))
	require.NoError(k, k.Add(k.ctx, tx, entry("B", "after")))
	require.NoError(k, k.Commit(k.ctx, tx))
	require.Equal(k, map[string]int{"before": 0, "kept": 0, "after": 0}, k.rowStates())
}

// refusedEntries: with a refused entry, no entry of its call is added, and the transaction goes on
// (O-10, rule 23). The ID depends on the parent alone.
func (k *kit[Tx]) refusedEntries() {
	parent := dedup.Key{Scope: "g", Type: "order.placed", ID: "7"}
	ctx := dedup.WithParent(k.ctx, parent)
	line := func(name string) outbox.Entry {
		return outbox.Entry{Topic: "orders", Key: "7", Type: "line.added", Name: name}
	}
	tx := k.begin()
	err := k.Add(ctx, tx, entry("9", "9"), line(""), line(""))
	require.ErrorIs(k, err, outbox.ErrSameID)
	err = k.Add(ctx, tx, entry("9", "9"), outbox.Entry{Topic: "not a topic", Type: "t", ID: "1"})
	require.ErrorIs(k, err, outbox.ErrEntry)
	err = k.Add(dedup.WithParent(k.ctx, dedup.Key{}), tx, entry("9", "9"), line(""))
	require.ErrorIs(k, err, outbox.ErrNoParent)
	require.NoError(k, k.Add(ctx, tx, line("1"), line("2")))
	require.NoError(k, k.Commit(k.ctx, tx))
	one, two := line("1"), line("2")
	require.Equal(k, map[string]int{outbox.ID(parent, &one): 0, outbox.ID(parent, &two): 0},
		k.rowStates())
}

// manyAtOnce: the numbers of rows follow the order within each aggregate. The transaction has more
// aggregates than it locks one by one.
func (k *kit[Tx]) manyAtOnce() {
	k.many(5000, 1700)
	rows := k.fetchAll()
	require.Len(k, rows, 5000)
	last := map[string]int{}
	for _, r := range rows {
		var n int
		_, err := fmt.Sscan(r.Entry.ID, &n)
		require.NoError(k, err)
		before, ok := last[r.Entry.Key]
		require.True(k, !ok || before < n, "key %s: %d after %d", r.Entry.Key, n, before)
		last[r.Entry.Key] = n
	}
}
