package runner

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// TestPosition_Look_K17 is the table of the results of look.
func TestPosition_Look_K17(t *testing.T) {
	for name, c := range map[string]struct {
		visible, position, offset, newest int64

		want Look
		ok   bool
	}{
		"at the end":                    {10, 10, 10, 10, Look{Clear: 10, End: true}, true},
		"markers up to the end":         {10, 12, 10, 12, Look{Clear: 12, End: true}, true},
		"markers, then an open one":     {10, 12, 10, 15, Look{Clear: 12}, true},
		"records to come":               {10, 10, 10, 15, Look{Clear: 10}, true},
		"a record in between":           {11, 12, 10, 12, Look{}, false},
		"asked beyond what was fetched": {10, 12, 13, 13, Look{Clear: 13, End: true}, true},
	} {
		p := &Position{visible: c.visible, next: c.position}
		found, ok := p.look(c.offset, c.newest)
		require.Equal(t, c.ok, ok, name)
		require.Equal(t, c.want, found, name)
	}
}

// TestPosition_Advance: records that were fetched before do not change the position, and no marker
// is visible.
func TestPosition_Advance(t *testing.T) {
	p := NewPosition(at("t", 3), Place{Offset: 5, Committed: true})
	require.Equal(t, "t", p.Topic())
	require.EqualValues(t, 3, p.Partition())
	require.EqualValues(t, 5, p.InitialOffset())
	require.True(t, p.Advance(7, 7))
	require.False(t, p.Advance(7, 7), "known")
	require.False(t, p.Advance(6, 6), "known")
	require.True(t, p.Advance(9, 0), "a marker")
	require.EqualValues(t, 9, p.HighWaterMarkOffset())
	found, ok := p.look(7, 9)
	require.True(t, ok, "nothing visible lies behind the last visible record")
	require.Equal(t, Look{Clear: 9, End: true}, found)

	fresh := NewPosition(at("t", 3), Place{Offset: 7, Initial: OffsetOldest})
	require.EqualValues(t, OffsetOldest, fresh.InitialOffset())
	require.EqualValues(t, 7, fresh.HighWaterMarkOffset())
}

// TestPosition_Learn_K17: the offsets of markers behind the last visible record count as consumed.
func TestPosition_Learn_K17(t *testing.T) {
	p, tail := NewPosition(at("t", 0), Place{Offset: 5, Committed: true}), newTail()
	p.Advance(8, 8)
	p.learn(tail)
	require.EqualValues(t, 8, tail.beyond(8), "there is no marker")
	p.Advance(10, 0)
	p.learn(tail)
	require.EqualValues(t, 10, tail.beyond(8))
	require.EqualValues(t, 7, tail.beyond(7), "a record is not handled yet")
}

// hangingLog does not answer before the end of the context.
type hangingLog struct{ *fakeLog }

func (hangingLog) Newest(
	ctx context.Context, _ map[string][]int32,
) (map[TopicPartition]int64, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// partialLog has no answer for any partition, and no error.
type partialLog struct{ *fakeLog }

func (partialLog) Newest(
	context.Context, map[string][]int32,
) (map[TopicPartition]int64, error) {
	return nil, nil
}

// headlessLog has no leader for one partition.
type headlessLog struct {
	*fakeLog
	without TopicPartition
}

func (l headlessLog) Newest(
	ctx context.Context, partitions map[string][]int32,
) (map[TopicPartition]int64, error) {
	found, err := l.fakeLog.Newest(ctx, partitions)
	delete(found, l.without)
	if err == nil && slices.Contains(partitions[l.without.Topic], l.without.Partition) {
		err = &OffsetError{l.without, errors.New("no leader")}
	}
	return found, err
}

// TestPositionEnds_NoLeader_Rule8: a partition without a leader keeps no other partition from
// learning its end. The end of that partition is asked for again.
func TestPositionEnds_NoLeader_Rule8(t *testing.T) {
	log := &fakeLog{newest: map[TopicPartition]int64{at("t", 0): 10, at("t", 1): 10}}
	question := func(id int32) EndQuestion {
		p := NewPosition(at("t", id), Place{Offset: 10, Committed: true})
		return EndQuestion{TopicPartition: p.At(), Claim: p, Tail: newTail(), Next: 10}
	}
	led, headless := question(0), question(1)
	positionEnds{headlessLog{log, at("t", 1)}}.Ask([]EndQuestion{led, headless}, nil)
	require.True(t, led.Tail.caughtUp(10, time.Now()))
	require.False(t, headless.Tail.caughtUp(10, time.Now()), "its end is not known")
	positionEnds{log}.Ask([]EndQuestion{headless}, nil)
	require.True(t, headless.Tail.caughtUp(10, time.Now()), "it has a leader again")
}

// TestPositionEnds: a partition is caught up when it was fetched up to the end of the log. The
// question ends with the stop, and in time.
func TestPositionEnds(t *testing.T) {
	log := &fakeLog{newest: map[TopicPartition]int64{at("t", 0): 10, at("t", 1): 10}}
	question := func(id int32, fetched int64) EndQuestion {
		p := NewPosition(at("t", id), Place{Offset: 5, Committed: true})
		p.Advance(fetched, fetched)
		return EndQuestion{TopicPartition: p.At(), Claim: p, Tail: newTail(), Next: fetched}
	}
	end, before := question(0, 10), question(1, 8)
	positionEnds{log}.Ask([]EndQuestion{end, before}, nil)
	require.True(t, end.Tail.caughtUp(10, time.Now()))
	require.False(t, before.Tail.caughtUp(8, time.Now()))
	log.newest[at("t", 0)] = 11
	positionEnds{log}.Ask([]EndQuestion{end}, nil)
	require.False(t, end.Tail.caughtUp(10, time.Now()), "records have come")
	silent := question(2, 10)
	positionEnds{partialLog{log}}.Ask([]EndQuestion{silent}, nil)
	require.False(t, silent.Tail.caughtUp(10, time.Now()), "its end is not known")

	synctest.Test(t, func(t *testing.T) {
		began, q := time.Now(), question(0, 10)
		positionEnds{hangingLog{log}}.Ask([]EndQuestion{q}, nil)
		require.Equal(t, EndsWait, time.Since(began))
		stop := make(chan struct{})
		close(stop)
		positionEnds{hangingLog{log}}.Ask([]EndQuestion{q}, stop)
		require.Equal(t, EndsWait, time.Since(began), "a stop ends the question at once")
	})
}
