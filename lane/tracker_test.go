package lane

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestTracker_AnyOrder_K01 finishes deliveries in random order, with random gaps between offsets
// (K-31). After each step it compares the watermark with a model that checks all deliveries. A
// tracker that commits the maximum fails within a few rounds.
func TestTracker_AnyOrder_K01(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 1))
	for range 300 {
		checkTracker(t, rnd)
	}
}

func checkTracker(t *testing.T, rnd *rand.Rand) {
	room := 1 + rnd.IntN(20)
	tr := newTracker(room)
	type step struct {
		seq      uint64
		offset   int64
		finished bool
	}
	var all []step
	var open []int // indices into all
	offset, watermark := rnd.Int64N(1000), int64(-1)
	for range 200 {
		if rnd.IntN(2) == 0 {
			offset += 1 + rnd.Int64N(5)
			seq, ok := tr.Begin(offset)
			require.LessOrEqual(t, tr.Pending(), room)
			if ok {
				open = append(open, len(all))
				all = append(all, step{seq: seq, offset: offset})
			} else {
				require.Equal(t, room, tr.Pending(), "refused although there is room")
			}
		} else if len(open) > 0 {
			i := rnd.IntN(len(open))
			s := &all[open[i]]
			open = append(open[:i], open[i+1:]...)
			s.finished = true
			moved := tr.Finish(s.seq)

			want := watermark
			for _, s := range all {
				if !s.finished {
					break
				}
				want = s.offset + 1
			}
			next, ok := tr.Watermark()
			require.Equal(t, want >= 0, ok)
			if ok {
				require.Equal(t, want, next, "watermark beyond or behind what is finished")
			}
			require.Equal(t, want != watermark, moved)
			watermark = want
			require.False(t, tr.Finish(s.seq), "finishing twice moves nothing")
		}
	}
}

// TestTracker_Sealed_K39: deliveries that an old owner finishes late do not move the watermark.
func TestTracker_Sealed_K39(t *testing.T) {
	tr := newTracker(4)
	a, _ := tr.Begin(10)
	b, _ := tr.Begin(11)
	require.True(t, tr.Finish(a))
	tr.Seal()
	require.False(t, tr.Finish(b))
	next, ok := tr.Watermark()
	require.True(t, ok)
	require.EqualValues(t, 11, next)
	_, ok = tr.Begin(12)
	require.False(t, ok)
}

func TestTracker_ForeignSequence(t *testing.T) {
	tr := newTracker(2)
	require.False(t, tr.Finish(0))
	require.False(t, tr.Finish(99))
	_, ok := tr.Watermark()
	require.False(t, ok)
}

// TestTracker_RepeatedSequence_K01: a place of the ring is used again. A repeated sequence number
// of its former delivery does not finish the present one.
func TestTracker_RepeatedSequence_K01(t *testing.T) {
	tr := newTracker(2)
	a, _ := tr.Begin(10)
	b, _ := tr.Begin(11)
	require.True(t, tr.Finish(a))
	c, ok := tr.Begin(12) // in the place of a
	require.True(t, ok)
	require.False(t, tr.Finish(a))
	require.True(t, tr.Finish(b))
	next, _ := tr.Watermark()
	require.EqualValues(t, 12, next, "12 is not finished")
	require.True(t, tr.Finish(c))
}
