package runner

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/observe"
)

// fakeLog has the offsets of a cluster. A partition has the log oldest to newest.
type fakeLog struct {
	committed, oldest, newest map[TopicPartition]int64
	errs                      []error // of the next calls of Committed
}

func at(topic string, id int32) TopicPartition { return TopicPartition{topic, id} }

func (f *fakeLog) Partitions(_ context.Context, topics []string) (map[string][]int32, error) {
	all := make(map[string][]int32)
	for _, topic := range topics {
		all[topic] = []int32{0, 1}
	}
	return all, nil
}

func (f *fakeLog) Committed(
	_ context.Context, _ string, partitions map[string][]int32,
) (map[TopicPartition]int64, error) {
	if len(f.errs) > 0 {
		err := f.errs[0]
		f.errs = f.errs[1:]
		return nil, err
	}
	return pickOffsets(f.committed, partitions), nil
}

func (f *fakeLog) Oldest(_ context.Context, partitions map[string][]int32) (map[TopicPartition]int64, error) {
	return pickOffsets(f.oldest, partitions), nil
}

func (f *fakeLog) Newest(_ context.Context, partitions map[string][]int32) (map[TopicPartition]int64, error) {
	return pickOffsets(f.newest, partitions), nil
}

func (f *fakeLog) Ends(ctx context.Context, partitions map[string][]int32) (map[TopicPartition]int64, error) {
	return f.Newest(ctx, partitions)
}

func pickOffsets(of map[TopicPartition]int64, partitions map[string][]int32) map[TopicPartition]int64 {
	some := make(map[TopicPartition]int64)
	for topic, ids := range partitions {
		for _, id := range ids {
			if offset, ok := of[at(topic, id)]; ok {
				some[at(topic, id)] = offset
			}
		}
	}
	return some
}

// recalling is a store with progress on record.
type recalling struct {
	dedup.Store
	progress []dedup.Progress
	err      error
}

func (r *recalling) RecordProgress(context.Context, string, []dedup.Progress) error { return nil }

func (r *recalling) Progress(context.Context, string, ...string) ([]dedup.Progress, error) {
	return r.progress, r.err
}

type gapsSeen []observe.GapEvent

func (g *gapsSeen) ObserveGap(_ context.Context, e observe.GapEvent) { *g = append(*g, e) }

// TestGapOf_K17_K28 is the table of gaps.
func TestGapOf_K17_K28(t *testing.T) {
	for name, c := range map[string]struct {
		committed, oldest, newest int64
		gap                       bool
	}{
		"inside":             {5, 0, 10, false},
		"at the oldest":      {5, 5, 10, false},
		"at the end":         {10, 5, 10, false},
		"empty log":          {10, 10, 10, false},
		"before the oldest":  {4, 5, 10, true},
		"beyond the end":     {11, 5, 10, true},
		"empty log, deleted": {9, 10, 10, true},
	} {
		gap := gapOf(at("t", 3), c.committed, c.oldest, c.newest)
		require.Equal(t, c.gap, gap != nil, name)
		if gap != nil {
			require.Equal(t, &GapError{Topic: "t", Partition: 3, Committed: c.committed, Oldest: c.oldest, Newest: c.newest}, gap)
		}
	}
}

// TestGapPolicyOf_K17: no policy skips a copy in a retry topic of the group.
func TestGapPolicyOf_K17(t *testing.T) {
	for name, c := range map[string]struct {
		configured GapPolicy
		topic      string
		applied    GapPolicy
	}{
		"fail":                        {FailOnGap, "orders", FailOnGap},
		"fail, retry topic":           {FailOnGap, "orders.g.retry", FailOnGap},
		"earliest":                    {EarliestOnGap, "orders", EarliestOnGap},
		"earliest, retry topic":       {EarliestOnGap, "orders.g.retry", EarliestOnGap},
		"latest":                      {LatestOnGap, "orders", LatestOnGap},
		"latest, retry topic":         {LatestOnGap, "orders.g.retry", EarliestOnGap},
		"latest, topic of a delay":    {LatestOnGap, "orders.g.retry.1m", EarliestOnGap},
		"latest, of another group":    {LatestOnGap, "orders.h.retry", LatestOnGap},
		"latest, no topic of a delay": {LatestOnGap, "orders.g.retry.soon", LatestOnGap},
	} {
		require.Equal(t, c.applied, Config{Group: "g", OnGap: c.configured}.GapPolicyOf(c.topic), name)
	}
}

// TestOffsetCheck_K17_K19 is the table of all policies. Partition orders/0 has a gap, orders/1 no
// committed offset but progress on record, and orders/2 is in order. A retry topic has a gap too.
func TestOffsetCheck_K17_K19(t *testing.T) {
	const retry = "orders.g.retry"
	claims := map[string][]int32{"orders": {2, 0, 1}, retry: {0, 1}}
	gapSource := Move{TopicPartition: at("orders", 0), From: 3}
	gapRetry := Move{TopicPartition: at(retry, 0), From: 0, To: 2}
	resumed := Move{TopicPartition: at("orders", 1), From: -1, To: 7}
	to := func(m Move, offset int64) Move { m.To = offset; return m }
	for name, c := range map[string]struct {
		gap   GapPolicy
		lost  LostOffsetsPolicy
		scope string
		moves []Move
		gaps  int // in the error
		isErr bool
	}{
		"refuse all":          {FailOnGap, RefuseLost, "g", nil, 0, true},
		"fail on gaps":        {FailOnGap, StartLost, "g", nil, 2, true},
		"another scope":       {EarliestOnGap, RefuseLost, "other", []Move{to(gapSource, 5), gapRetry}, 0, false},
		"earliest, start":     {EarliestOnGap, StartLost, "g", []Move{to(gapSource, 5), gapRetry}, 0, false},
		"latest, start":       {LatestOnGap, StartLost, "g", []Move{to(gapSource, 9), gapRetry}, 0, false},
		"latest, resume":      {LatestOnGap, ResumeLost, "g", []Move{resumed, to(gapSource, 9), gapRetry}, 0, false},
		"resume, yet a gap":   {FailOnGap, ResumeLost, "g", nil, 2, true},
		"resume, other scope": {EarliestOnGap, ResumeLost, "other", []Move{resumed, to(gapSource, 5), gapRetry}, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			log := &fakeLog{
				committed: map[TopicPartition]int64{at("orders", 0): 3, at("orders", 2): 6, at(retry, 0): 0},
				oldest:    map[TopicPartition]int64{at("orders", 0): 5, at("orders", 1): 0, at("orders", 2): 0, at(retry, 0): 2},
				newest:    map[TopicPartition]int64{at("orders", 0): 9, at("orders", 1): 8, at("orders", 2): 6, at(retry, 0): 4},
			}
			seen := new(gapsSeen)
			cfg := good()
			cfg.OnGap, cfg.OnLostOffsets, cfg.Scope, cfg.Observers = c.gap, c.lost, c.scope, []observe.Observer{seen}
			cfg.Logger = slog.New(slog.DiscardHandler)
			store := &recalling{progress: []dedup.Progress{
				{Topic: "orders", Partition: 1, Next: 7}, {Topic: "orders", Partition: 2, Next: 1}, {Topic: "orders", Partition: 9, Next: 1},
			}}
			moves, err := NewOffsetCheck(cfg, log, []dedup.Store{store}).Check(t.Context(), claims)
			require.Equal(t, c.moves, moves)
			require.Equal(t, c.isErr, err != nil)
			if c.lost == RefuseLost && c.scope == "g" {
				var lost *OffsetsLostError
				require.ErrorAs(t, err, &lost)
				require.Equal(t, &OffsetsLostError{Scope: "g", Known: store.progress[:1]}, lost)
				require.Empty(t, *seen)
				return
			}
			require.Len(t, *seen, 2)
			if c.gaps > 0 {
				require.Equal(t, c.gaps, strings.Count(err.Error(), "were deleted before they were consumed"))
			}
		})
	}
}

// TestLostOffsets_K19: which positions on record count.
func TestLostOffsets_K19(t *testing.T) {
	claims := map[string][]int32{"orders": {0, 1, 2, 3}}
	log := &fakeLog{
		oldest: map[TopicPartition]int64{at("orders", 0): 4, at("orders", 1): 0, at("orders", 2): 0, at("orders", 3): 0},
		newest: map[TopicPartition]int64{at("orders", 0): 10, at("orders", 1): 10, at("orders", 2): 10, at("orders", 3): 2},
	}
	one := &recalling{progress: []dedup.Progress{
		{Topic: "orders", Partition: 0, Next: 3}, // its records are deleted: the nearest one
		{Topic: "orders", Partition: 1, Next: 8},
		{Topic: "orders", Partition: 2}, // no position
		{Topic: "orders", Partition: 3, Next: 3},
	}}
	two := &recalling{progress: []dedup.Progress{{Topic: "orders", Partition: 1, Next: 6}}} // the least of all stores
	cfg := good()
	cfg.OnLostOffsets = ResumeLost
	cfg.Logger = slog.New(slog.DiscardHandler)
	moves, err := NewOffsetCheck(cfg, log, []dedup.Store{one, two}).Check(t.Context(), claims)
	require.NoError(t, err)
	require.Equal(t, []Move{
		{TopicPartition: at("orders", 0), From: -1, To: 4}, {TopicPartition: at("orders", 1), From: -1, To: 6},
	}, moves, "orders/3 was made anew")
	one.err = errTest
	_, err = NewOffsetCheck(cfg, log, []dedup.Store{one, two}).Check(t.Context(), claims)
	require.ErrorIs(t, err, errTest, "no partition begins at a guess")
	log.errs = []error{errTest}
	_, err = NewOffsetCheck(cfg, log, nil).Check(t.Context(), claims)
	require.ErrorIs(t, err, errTest)
	moves, err = NewOffsetCheck(cfg, log, []dedup.Store{one}).Check(t.Context(), nil)
	require.NoError(t, err, "a member without partitions")
	require.Empty(t, moves)
}

// TestOffsetCheck_Newest_K29: with Newest, partitions of sources without an offset begin at the end,
// which is committed. A recorded position goes first, and copies begin at the oldest.
func TestOffsetCheck_Newest_K29(t *testing.T) {
	log := &fakeLog{
		committed: map[TopicPartition]int64{at("orders", 2): 6},
		oldest:    map[TopicPartition]int64{at("orders", 1): 0, at("orders", 2): 0},
		newest:    map[TopicPartition]int64{at("orders", 0): 0, at("orders", 1): 8, at("orders", 2): 6, at("orders", 3): 9},
	}
	claims := map[string][]int32{"orders": {3, 0, 1, 2}, "orders.g.retry": {0}}
	store := &recalling{progress: []dedup.Progress{{Topic: "orders", Partition: 1, Next: 7}}}
	cfg := good()
	cfg.Start, cfg.OnLostOffsets, cfg.Logger = Newest, ResumeLost, slog.New(slog.DiscardHandler)
	moves, err := NewOffsetCheck(cfg, log, []dedup.Store{store}).Check(t.Context(), claims)
	require.NoError(t, err)
	require.Equal(t, []Move{
		{TopicPartition: at("orders", 1), From: -1, To: 7},
		{TopicPartition: at("orders", 0), From: -1, To: 0, fresh: true},
		{TopicPartition: at("orders", 3), From: -1, To: 9, fresh: true},
	}, moves)
	delete(log.newest, at("orders", 3))
	_, err = NewOffsetCheck(cfg, log, []dedup.Store{store}).Check(t.Context(), claims)
	require.ErrorIs(t, err, ErrNoAnswer, "no partition begins at a guess")
	cfg.Start = Oldest
	moves, err = NewOffsetCheck(cfg, log, []dedup.Store{store}).Check(t.Context(), claims)
	require.NoError(t, err)
	require.Len(t, moves, 1)
}

// TestRetryBeginnings_K29: all partitions of retry topics, and no partition of a source.
func TestRetryBeginnings_K29(t *testing.T) {
	log := &fakeLog{
		committed: map[TopicPartition]int64{at("a.g.retry", 0): 0},
		oldest:    map[TopicPartition]int64{at("a.g.retry", 1): 0, at("a.g.retry.5s", 0): 7, at("a.g.retry.5s", 1): 9, at("a", 0): 1},
	}
	begin, committed, err := RetryBeginnings(t.Context(), log, "g", []string{"a", "a.g.retry", "a.g.retry.5s", "a.h.retry"})
	require.NoError(t, err)
	require.Equal(t, map[TopicPartition]int64{at("a.g.retry", 0): 0}, committed)
	require.Equal(t, map[TopicPartition]int64{at("a.g.retry", 1): 0, at("a.g.retry.5s", 0): 7, at("a.g.retry.5s", 1): 9}, begin)
	begin, _, err = RetryBeginnings(t.Context(), log, "g", []string{"a"})
	require.NoError(t, err)
	require.Empty(t, begin)
}

// TestNoOffsets_Rule46: the answer for each class of error.
func TestNoOffsets_Rule46(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for class, want := range map[Class]struct{ none, ends, warns bool }{
			Transient: {none: true}, UnknownGroup: {none: true}, BadLogin: {ends: true},
			DeniedGroup: {warns: true}, DeniedTopic: {warns: true},
		} {
			var lines strings.Builder
			cfg := good()
			cfg.Logger = slog.New(slog.NewTextHandler(&lines, nil))
			retry := NewRetrier(cfg, "client", func(error) Class { return class }, func(err error) error { return err })
			none, err := noOffsets(t.Context(), cfg, retry, &fakeLog{errs: []error{errors.New("x")}})
			require.Equal(t, want.ends, err != nil, class)
			require.Equal(t, want.none, none, class)
			require.Equal(t, want.warns, strings.Contains(lines.String(), "grant Describe on the group"), class)
		}
		cfg := good()
		retry := NewRetrier(cfg, "client", func(error) Class { return Transient }, nil)
		none, err := noOffsets(t.Context(), cfg, retry, &fakeLog{committed: map[TopicPartition]int64{at("t", 1): 0}})
		require.NoError(t, err)
		require.False(t, none)
	})
}
