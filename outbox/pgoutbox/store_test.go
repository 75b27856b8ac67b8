package pgoutbox_test

import (
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/outbox"
)

// Entries come out as they were added, in each execution mode (P-17), in one transaction or one
// each, and are deleted when they were sent.
func TestRoundTrip(t *testing.T) {
	for name, mode := range modes {
		t.Run(name, func(t *testing.T) { testRoundTrip(t, mode, false) })
		t.Run(name+"-alone", func(t *testing.T) { testRoundTrip(t, mode, true) })
	}
}

func testRoundTrip(t *testing.T, mode pgx.QueryExecMode, alone bool) {
	box, pool := newBox(t, inMode(mode))
	in := []outbox.Entry{
		{Topic: "orders", Key: "\xff\x00k", Type: "t", ID: "1", Payload: []byte{0, 255}, Headers: []idem.Header{
			{Key: "b", Value: []byte("text")}, {Key: "a", Value: []byte{0xff}}, {Key: "b", Value: nil},
			{Key: "e", Value: []byte{}}, {Key: "nul", Value: []byte("a\x00b")}, {Key: "ü", Value: []byte(`"<é\`)}}},
		{Topic: "orders", Type: "t", ID: "2"},
		{Topic: "orders", Key: "k", Type: "t", ID: "3", Payload: []byte{}},
	}
	if alone {
		for _, e := range in {
			add(t, pool, box, e)
		}
	} else {
		add(t, pool, box, in...)
	}
	held := hold(t, box, "a")
	require.Len(t, held, outbox.Shards)
	rows := fetchWith(t, box, outbox.Fetch{Shards: held, Limit: 1000, Bytes: 1 << 20, Halt: true})
	require.Len(t, rows, 3)
	for _, r := range rows {
		var want outbox.Entry
		for _, e := range in {
			if e.ID == r.Entry.ID {
				want = e
			}
		}
		require.Equal(t, want, r.Entry)
		require.False(t, r.Added.IsZero())
		require.False(t, r.Blocked)
	}
	skipped := fetchWith(t, box, outbox.Fetch{Shards: held, Limit: 1000, Bytes: 1 << 20,
		Skip: []outbox.Aggregate{{Topic: "orders", Key: "k"}}, SkipRows: []int64{rows[0].Seq}})
	require.Len(t, skipped, 1)
	backlog, err := box.Backlog(t.Context(), 2)
	require.NoError(t, err)
	require.EqualValues(t, 2, backlog.Waiting)
	require.Positive(t, backlog.Oldest)

	lost, err := box.Settle(t.Context(), "a", held, outbox.Settlement{Sent: seqs(rows)[:1]})
	require.NoError(t, err)
	require.Empty(t, lost)
	lost, err = box.Settle(t.Context(), "a", held, outbox.Settlement{Sent: seqs(rows)[1:2], Keep: true,
		Parked: map[int64]string{rows[2].Seq: "too\x00 large"}})
	require.NoError(t, err)
	require.Empty(t, lost)
	require.Equal(t, map[string]int{rows[1].Entry.ID: 1, rows[2].Entry.ID: 2}, states(t, pool))
	parked, err := box.Parked(t.Context(), 10)
	require.NoError(t, err)
	require.Len(t, parked, 1)
	require.Equal(t, "too large", parked[0].Error)
	require.NoError(t, box.Skip(t.Context(), rows[2].Seq))
	n, err := box.Purge(t.Context(), 0, 10)
	require.NoError(t, err)
	require.EqualValues(t, 1, n)
	require.Empty(t, states(t, pool))
	require.NoError(t, box.Leave(t.Context(), "a"))
	require.Len(t, hold(t, box, "b"), outbox.Shards)
}

// The numbers of rows follow the order of the aggregate, and all entries of a batch are added.
// Above 1,000 aggregates one lock covers all.
func TestManyAtOnce(t *testing.T) {
	box, pool := newBox(t)
	var entries []outbox.Entry
	for i := range 5000 {
		entries = append(entries, entry(fmt.Sprint(i%1700), fmt.Sprint(i)))
	}
	add(t, pool, box, entries...)
	last := map[string]int{}
	rows := fetch(t, box)
	require.Len(t, rows, len(entries))
	for _, r := range rows {
		var n int
		_, err := fmt.Sscan(r.Entry.ID, &n)
		require.NoError(t, err)
		before, ok := last[r.Entry.Key]
		require.True(t, !ok || before < n, "key %s: %d after %d", r.Entry.Key, n, before)
		last[r.Entry.Key] = n
	}
}
