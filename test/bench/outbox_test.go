package main

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
)

func TestPayloadsTellWhichEventTheyAre(t *testing.T) {
	for _, seq := range []int{0, 9, 59_999, 1_200_000} {
		b := payloadOf(seq)
		require.Len(t, b, payloadBytes)
		got, err := seqOf(b)
		require.NoError(t, err)
		require.Equal(t, seq, got)
	}
	_, err := seqOf([]byte("{}"))
	require.Error(t, err)
}

func TestAggregatesAreAsManyAsTheRowSays(t *testing.T) {
	r := row{aggregates: 10, spec: spec{seed: 6}}
	seen := make(map[string]int)
	for seq := range 1000 {
		seen[r.aggregateOf(seq)]++
	}
	require.Len(t, seen, 10)
	for key, n := range seen {
		require.Greater(t, n, 50, key)
	}
	again := row{aggregates: 10, spec: spec{seed: 6}}
	require.Equal(t, r.aggregateOf(7), again.aggregateOf(7), "equal rows add equal events")
}

// TestWhatWasPublishedWronglyIsFound: twice (O-07 without a crash), out of order (O-09), of no
// event, and too many.
func TestWhatWasPublishedWronglyIsFound(t *testing.T) {
	rec := func(key string, seq int) *kgo.Record {
		return &kgo.Record{Key: []byte(key), Value: payloadOf(seq)}
	}
	read := func(records ...*kgo.Record) (*published, error) {
		p := &published{
			seen: make([]bool, 3),
			last: make(map[string]int),
			ends: make(map[int32]int64),
		}
		part := kgo.FetchTopicPartition{
			FetchPartition: kgo.FetchPartition{
				HighWatermark: int64(len(records)),
				Records:       records,
			},
		}
		err := p.add(part)
		return p, err
	}
	p, err := read(rec("a", 1), rec("b", 0), rec("a", 2))
	require.NoError(t, err)
	require.Equal(t, 3, p.n)
	require.EqualValues(t, 3, p.end())
	for name, wrong := range map[string][]*kgo.Record{
		"twice":        {rec("a", 1), rec("a", 1)},
		"out of order": {rec("a", 2), rec("b", 0), rec("a", 1)},
		"of nobody":    {rec("a", 3)},
		"no event":     {{Value: []byte("x")}},
	} {
		_, err := read(wrong...)
		require.Error(t, err, name)
	}
}

func TestPacedKeepsItsRateAndEndsAtAnError(t *testing.T) {
	var n atomic.Int64
	began, failed := time.Now(), newFirstError()
	require.NoError(t, paced(t.Context(), 4, 100, 1000, failed, func(context.Context, int) error {
		n.Add(1)
		return nil
	}))
	require.EqualValues(t, 100, n.Load())
	require.GreaterOrEqual(t, time.Since(began), 99*time.Millisecond, "not all at once")

	broken := errors.New("broken")
	require.Error(
		t,
		paced(
			t.Context(),
			4,
			1_000_000,
			1000,
			failed,
			func(context.Context, int) error { return broken },
		),
	)
	require.ErrorIs(t, failed.get(), broken)
}

func TestDelayIsCountedWithoutTheFirstEvents(t *testing.T) {
	a, at := newArrivals(3), time.Now()
	a.sent = []time.Time{at, at, at}
	a.arrived(0, at.Add(time.Hour))
	a.arrived(1, at.Add(10*time.Millisecond))
	a.arrived(1, at.Add(time.Hour)) // again: only the first counts
	a.arrived(2, at.Add(-time.Millisecond))
	<-a.done
	p50, p99, most := a.percentiles(1)
	require.Zero(t, p50)
	require.Zero(t, p99)
	require.InDelta(t, 10, most, 0.01)
}

func TestPlateauComparesTheHalves(t *testing.T) {
	r := sizeResult{
		samples: []sizeSampled{
			{heap: 1, indexes: 1},
			{heap: 5, indexes: 2},
			{heap: 3, indexes: 1},
			{heap: 4, indexes: 4},
		},
	}
	first, second := r.plateau()
	require.EqualValues(t, 7, first)
	require.EqualValues(t, 8, second)
}
