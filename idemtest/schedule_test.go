package idemtest

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSchedule_Text(t *testing.T) {
	s, err := parseSchedule("7:fail 2:die 12:copies")
	require.NoError(t, err)
	require.Equal(t, schedule{{2, die}, {7, fail}, {12, copies}}, s)
	again, err := parseSchedule(s.String())
	require.NoError(t, err)
	require.Equal(t, s, again)
	require.Equal(t, fail, s.at(7))
	require.Empty(t, s.at(3))
	for _, bad := range []string{"x", "0:die", "-1:die", "3:sleep", "3", ":die", "2:die 3:die 2:fail"} {
		_, err := parseSchedule(bad)
		require.ErrorContains(t, err, "die", bad)
	}
}

func TestSchedule_Faults(t *testing.T) {
	points := []point{{what: "claims"}, {what: "calls", call: true}}
	require.Len(t, singles(points, 1), 3+4)
	require.Len(t, singles(points, 2), 4+5)
}

// Both faults of a pair can happen: the second is at a later point of the run with the first, which
// has other points than a run without faults.
func TestSchedule_Pair(t *testing.T) {
	ran := []single{
		{step{1, die}, []point{{what: "claims"}}}, // no later point
		{step{2, copies}, []point{{}, {}, {what: "calls", call: true}, {what: "commits"}}},
		{step{4, die}, []point{{}, {}, {}, {}, {what: "claims"}}},
	}
	drawn := make(map[string]bool)
	for seed := range uint64(500) {
		s := pair(ran, 1, rand.New(rand.NewPCG(seed, 0)).IntN)
		require.Len(t, s, 2)
		require.Less(t, s[0].point, s[1].point)
		again, err := parseSchedule(s.String())
		require.NoError(t, err)
		require.Equal(t, s, again)
		drawn[s.String()] = true
	}
	require.Equal(t, map[string]bool{
		"2:copies 3:die": true, "2:copies 3:freeze": true, "2:copies 3:copies": true, "2:copies 3:fail": true,
		"2:copies 4:die": true, "2:copies 4:freeze": true, "2:copies 4:copies": true,
		"4:die 5:die": true, "4:die 5:freeze": true, "4:die 5:copies": true,
	}, drawn)
	require.Nil(t, pair(ran[:1], 1, rand.IntN))
}

func TestSchedule_Shrink(t *testing.T) {
	s := schedule{{1, die}, {2, copies}, {3, die}, {4, fail}}
	needs := func(one step) func(schedule) bool {
		return func(s schedule) bool { return s.at(one.point) == one.fault }
	}
	for _, one := range s {
		require.Equal(t, schedule{one}, shrink(s, needs(one)))
	}
	both := func(s schedule) bool { return s.at(2) == copies && s.at(4) == fail }
	require.Equal(t, schedule{{2, copies}, {4, fail}}, shrink(s, both))
}
