package lane

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem"
)

func offsetsOf(entries []*entry) (offsets []int64) {
	for _, e := range entries {
		offsets = append(offsets, e.m.Offset)
	}
	return offsets
}

// TestQueue_OldestFirst: a lane takes its share of the lines, the oldest first, with all their
// entries, and no line of another lane. A returned entry keeps its age.
func TestQueue_OldestFirst(t *testing.T) {
	q := newQueue(Config{Lanes: 3}.withDefaults(), newTracker(100),
		func(m *idem.Message) string { return string(m.Key) })
	q.perEvent = 0
	for i, key := range []string{"a", "b", "", "a", "c", "d", "b", "e", "a"} {
		require.True(t, q.put(keyed(int64(i), key)))
	}
	first := q.nextWork(nil)
	require.Equal(t, []int64{0, 1, 3, 6, 8}, offsetsOf(first), "of a and b, which are 2 of 6")
	second := q.nextWork(nil)
	require.Equal(t, []int64{2, 4}, offsetsOf(second), "of none and c, which are 2 of 4")
	require.True(t, q.put(keyed(9, "b")))

	require.True(t, q.settled(first[:1]))
	first = q.keep(first, 1)
	require.Equal(t, []int64{1}, offsetsOf(first), "keeps b, gives back a")
	second = q.keep(second, 0)
	require.Equal(t, []int64{2}, offsetsOf(second), "keeps none, gives back c")
	third := q.nextWork(nil)
	require.Equal(t, []int64{3, 4, 8}, offsetsOf(third), "of a and c, which are 2 of 4")

	require.False(t, q.settled(third), "older ones are not")
	require.True(t, q.settled(first))
	next, _ := q.watermark()
	require.EqualValues(t, 2, next)
	require.True(t, q.settled(second))
	next, _ = q.watermark()
	require.EqualValues(t, 5, next)
	require.Equal(t, []int64{5}, offsetsOf(q.nextWork(third)), "of d, which is one of 2")
	require.Equal(t, []int64{6, 9}, offsetsOf(q.nextWork(first)), "of b, which is one of 2 again")
	require.Equal(t, []int64{7}, offsetsOf(q.nextWork(second)))
	require.Len(t, q.keyed, 3, "b, d, e")
	require.Equal(t, 4, q.held)
}

// TestLines_Heap: after any sequence of changes, the oldest line is the first.
func TestLines_Heap(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	var h lines
	var model []uint64
	for range 10_000 {
		if rnd.IntN(2) == 0 || len(model) == 0 {
			seq := rnd.Uint64N(1000)
			h.put(&line{first: &entry{seq: seq}})
			model = append(model, seq)
			slices.Sort(model)
		} else {
			l := h.takeFirst()
			require.False(t, l.ready)
			require.Equal(t, model[0], l.first.seq)
			model = model[1:]
		}
	}
}

// TestQueue_OneOutlier: one slow event makes batches smaller, but does not reduce them to single
// events.
func TestQueue_OneOutlier(t *testing.T) {
	q := newQueue(Config{Lanes: 2}.withDefaults(), newTracker(100),
		func(*idem.Message) string { return "" })
	q.perEvent = 0
	q.took(time.Hour, 1)
	for i := range int64(20) {
		require.True(t, q.put(message(i)))
	}
	require.Len(t, q.nextWork(nil), 4)
	for range 100 {
		q.took(time.Millisecond, 100)
	}
	require.Len(t, q.nextWork(nil), 8, "its share")
}
