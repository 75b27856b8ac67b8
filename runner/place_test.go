package runner

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestPlaces_K17_K29 is the table of where partitions begin.
func TestPlaces_K17_K29(t *testing.T) {
	log := &fakeLog{
		oldest: map[TopicPartition]int64{at("t", 0): 3, at("t", 1): 4, at("t.g.retry", 0): 2},
		newest: map[TopicPartition]int64{at("t", 0): 9, at("t", 1): 8, at("t.g.retry", 0): 7},
	}
	claims := map[string][]int32{"t": {0, 1}, "t.g.retry": {0}}
	for name, c := range map[string]struct {
		start     StartPosition
		committed map[TopicPartition]int64
		want      map[TopicPartition]Place
	}{
		"nothing committed, from the oldest record": {
			Oldest, nil,
			map[TopicPartition]Place{
				at("t", 0):         {Offset: 3, Initial: OffsetOldest},
				at("t", 1):         {Offset: 4, Initial: OffsetOldest},
				at("t.g.retry", 0): {Offset: 2, Initial: OffsetOldest},
			},
		},
		"nothing committed, from the newest record: no copy is skipped": {
			Newest, nil,
			map[TopicPartition]Place{
				at("t", 0):         {Offset: 9, Committed: true, Chosen: true, fresh: true},
				at("t", 1):         {Offset: 8, Committed: true, Chosen: true, fresh: true},
				at("t.g.retry", 0): {Offset: 2, Initial: OffsetOldest},
			},
		},
		"committed, one before the log": {
			Newest, map[TopicPartition]int64{at("t", 0): 5, at("t", 1): 1, at("t.g.retry", 0): 7},
			map[TopicPartition]Place{
				at("t", 0):         {Offset: 5, Committed: true},
				at("t", 1):         {Offset: 4, Committed: true, Chosen: true},
				at("t.g.retry", 0): {Offset: 7, Committed: true},
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := good()
			cfg.Start, cfg.OnGap = c.start, EarliestOnGap
			got, err := places(t.Context(), cfg, cluster{newFakeAdmin(), log}, nil, claims, c.committed)
			require.NoError(t, err)
			require.Equal(t, c.want, got)
		})
	}
}

// TestMissingOffset: a partition without an offset is an error, which Answered drops.
func TestMissingOffset(t *testing.T) {
	asked, errTest := map[string][]int32{"t": {0, 1}}, errors.New("test")
	all := map[TopicPartition]int64{at("t", 0): 1, at("t", 1): 2}
	require.NoError(t, MissingOffset(asked, all, nil))
	one := map[TopicPartition]int64{at("t", 0): 1}
	err := MissingOffset(asked, one, nil)
	require.ErrorIs(t, err, ErrNoAnswer)
	require.ErrorContains(t, err, "t/1")
	err = MissingOffset(asked, one, map[TopicPartition]error{at("t", 1): errTest})
	require.ErrorIs(t, err, errTest)
	found, err := Answered(one, err)
	require.NoError(t, err)
	require.Equal(t, one, found)
	_, err = Answered(nil, errTest)
	require.ErrorIs(t, err, errTest)
}

// TestPartitionsOf: the error of a topic is that of the client.
func TestPartitionsOf(t *testing.T) {
	denied, unknown, errTest := errors.New("denied"), errors.New("unknown"), errors.New("test")
	for want, topic := range map[error]TopicInfo{
		denied: {Name: "t", Denied: true}, unknown: {Name: "t"}, errTest: {Name: "t", Err: errTest},
	} {
		_, err := PartitionsOf([]TopicInfo{topic}, denied, unknown)
		require.ErrorIs(t, err, want)
	}
	all, err := PartitionsOf([]TopicInfo{{Name: "t", Exists: true, Partitions: []int32{0, 1}}}, denied, unknown)
	require.NoError(t, err)
	require.Equal(t, map[string][]int32{"t": {0, 1}}, all)
}
