package outbox

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// After a suspension of the machine, leases that ended meanwhile are over, whichever clock stood
// still (rule 49).
func TestDeadline_EarlierClock_Rule49(t *testing.T) {
	now := time.Now()
	d := newDeadline(now.Add(time.Minute))
	require.False(t, d.over(now, now.Round(0)))
	require.True(t, d.over(now.Add(time.Minute), now.Round(0)), "the wall clock was set back")
	require.True(t, d.over(now, now.Add(time.Minute).Round(0)), "the machine was suspended")
}

// The lease counts from before the request, and ends a sixth early.
func TestShare_Held(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := shardLeases{lease: 6 * time.Second}
		require.Empty(t, s.held())
		began := time.Now()
		time.Sleep(time.Second)
		s.answered(began, []Lease{{Shard: 3, Epoch: 7}}, true)
		require.Equal(t, map[int]Lease{3: {Shard: 3, Epoch: 7}}, s.held())
		time.Sleep(4*time.Second - time.Nanosecond)
		require.Len(t, s.held(), 1)
		time.Sleep(time.Nanosecond)
		require.Empty(t, s.held())
		s.answered(time.Now(), []Lease{{Shard: 3, Epoch: 8}, {Shard: 4, Epoch: 1}}, false)
		s.drop([]int{3, 4}, map[int]Lease{3: {Shard: 3, Epoch: 7}, 4: {Shard: 4, Epoch: 1}})
		require.Equal(t, map[int]Lease{3: {Shard: 3, Epoch: 8}}, s.held(), "taken back meanwhile")
	})
}

// TestShare_NotRenewed_O13: a lease that the store could not renew ends when it did before, by the
// database's clock; the others last longer.
func TestShare_NotRenewed_O13(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := shardLeases{lease: 6 * time.Second}
		s.answered(time.Now(), []Lease{
			{Shard: 1, Epoch: 1},
			{Shard: 2, Epoch: 1, Left: 6 * time.Second},
			{Shard: 3, Epoch: 1, Left: 3 * time.Second},
			{Shard: 4, Epoch: 1, Left: time.Second},
			{Shard: 5, Epoch: 1, Left: time.Hour},
		}, true)
		one := func(shards ...int) map[int]Lease {
			m := map[int]Lease{}
			for _, i := range shards {
				m[i] = Lease{Shard: i, Epoch: 1}
			}
			return m
		}
		require.Equal(t, one(1, 2, 3, 5), s.held())
		time.Sleep(2*time.Second - time.Nanosecond)
		require.Equal(t, one(1, 2, 3, 5), s.held())
		time.Sleep(time.Nanosecond)
		require.Equal(t, one(1, 2, 5), s.held())
		time.Sleep(3 * time.Second)
		require.Empty(t, s.held())
	})
}

// slowHold is a store that takes a while to answer Hold.
type slowHold struct {
	Store
	takes time.Duration
}

func (s slowHold) Hold(context.Context, string, time.Duration, bool) ([]Lease, error) {
	time.Sleep(s.takes)
	return []Lease{{Shard: 1, Epoch: 1}}, nil
}

// A lease counts from before its request, however long the answer took.
func TestShare_CountsFromTheRequest_O13(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := slog.New(slog.DiscardHandler)
		cfg := &RelayConfig{Store: slowHold{takes: 2 * time.Second}, Lease: 12 * time.Second, Logger: log}
		s := newShareKeeper(cfg, "relay", newHealth(log))
		require.NoError(t, s.hold(t.Context(), true))
		time.Sleep(8*time.Second - time.Nanosecond)
		require.Len(t, s.held(), 1)
		time.Sleep(time.Nanosecond)
		require.Empty(t, s.held(), "a sixth before the end")
	})
}

func TestWaves_OneOfEachAggregate(t *testing.T) {
	var rows []Row
	for i, key := range []string{"a", "a", "", "b", "a", "", "b"} {
		rows = append(rows, Row{Seq: int64(i + 1), Entry: Entry{Topic: "t", Key: key}})
	}
	rows = append(rows, Row{Seq: 8, Entry: Entry{Topic: "other", Key: "a"}})
	var got []string
	for wave := range waves(rows, indexesOf(rows)) {
		got = append(got, fmt.Sprint(wave))
	}
	require.Equal(t, []string{"[0 2 3 5 7]", "[1 6]", "[4]"}, got)
}

// The number of remembered failures is bounded, and old failures are forgotten.
func TestFailures_Bounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := failures{}
		row := func(i int) *Row { return &Row{Seq: int64(i), Entry: Entry{Topic: "t", Key: fmt.Sprint("k", i)}} }
		for i := range maxFailures {
			_, ok := m.add(row(i), false)
			require.True(t, ok)
		}
		_, ok := m.add(row(maxFailures), false)
		require.False(t, ok)
		blamed, ok := m.add(row(0), false)
		require.True(t, ok)
		require.Equal(t, 2, blamed)
		skip, _ := m.skip(time.Now(), false)
		require.Len(t, skip, maxFailures)
		require.Equal(t, time.Second, m.next(time.Now()))
		time.Sleep(2 * time.Second)
		skip, _ = m.skip(time.Now(), false)
		require.Empty(t, skip)
		skip, _ = m.skip(time.Now(), true)
		require.Len(t, skip, maxFailures)
		m.settled(row(0))
		_, ok = m.add(row(maxFailures), true)
		require.True(t, ok)
		require.True(t, m.ofBroker())
		m.keep(map[int]Lease{0: {}})
		require.Len(t, m, maxFailures)
		m.keep(map[int]Lease{1: {}})
		require.Empty(t, m)
		_, _ = m.add(row(0), false)
		time.Sleep(failureMemory + 2*time.Second)
		require.True(t, m.prune(time.Now()))
		require.Empty(t, m)
	})
}

// The count of another row of the aggregate starts at one. Failures of the broker do not count.
func TestFailures_Count(t *testing.T) {
	m := failures{}
	first, second := &Row{Seq: 1, Entry: Entry{Topic: "t", Key: "k"}}, &Row{Seq: 2, Entry: Entry{Topic: "t", Key: "k"}}
	for i, want := range []int{1, 2, 2, 3} {
		blamed, _ := m.add(first, i == 2)
		require.Equal(t, want, blamed)
	}
	blamed, _ := m.add(second, false)
	require.Equal(t, 1, blamed)
}

func TestGrow(t *testing.T) {
	b := backoff{min: time.Second, max: 5 * time.Second}
	for _, want := range []time.Duration{time.Second, 2 * time.Second, 4 * time.Second, 5 * time.Second} {
		got := b.next()
		require.LessOrEqual(t, got, want)
		require.GreaterOrEqual(t, got, want-want/10-1)
	}
	require.Equal(t, 5*time.Second, grow(time.Second, 5*time.Second, 1_000_000))
	b.reset()
	require.LessOrEqual(t, b.next(), time.Second)
}

// A batch grows with the backlog, unless aggregates would wait long for each other.
func TestNextLimit(t *testing.T) {
	const quick, steady, slow = time.Millisecond, 500 * time.Millisecond, 2 * time.Second
	for name, c := range map[string]struct {
		rows, broker int
		took         time.Duration
		backlog      bool
		limit, most  int
		want         int
	}{
		"full":                 {100, 0, quick, true, 100, 2000, 200},
		"full, at the maximum": {2000, 0, quick, true, 2000, 2000, 2000},
		"no power of two":      {1600, 0, quick, true, 1600, 2000, 2000},
		"one shard is full":    {799, 0, quick, true, 800, 2000, 800},
		"not quick":            {800, 0, steady, true, 800, 2000, 800},
		"slow":                 {800, 0, slow, true, 800, 2000, 400},
		"slow, least":          {100, 0, slow, true, 100, 2000, 100},
		"no backlog":           {799, 0, quick, false, 800, 2000, 400},
		"no row":               {0, 0, quick, false, 150, 2000, 100},
		"the broker failed":    {800, 1, quick, true, 800, 2000, 100},
		"a small maximum":      {3, 0, quick, true, 3, 3, 3},
		"small, broker failed": {3, 3, quick, true, 3, 3, 3},
		"small, no backlog":    {0, 0, quick, false, 3, 3, 3},
	} {
		b := &batch{broker: c.broker, seen: Round{Rows: c.rows, Took: c.took}}
		require.Equal(t, c.want, nextLimit(b, c.limit, c.most, c.backlog), name)
	}
}

// indexesOf returns all indexes of rows.
func indexesOf(rows []Row) (all []int) {
	for i := range rows {
		all = append(all, i)
	}
	return all
}
