package kafkagoidem

import (
	"context"

	"github.com/idem-go/idem/runner"
)

// fetched are the committed offsets that kafka-go has fetched for a generation.
type fetched struct {
	offsets
	committed map[partition]int64
}

// Committed implements [runner.Offsets].
func (f fetched) Committed(
	context.Context, string, map[string][]int32,
) (map[partition]int64, error) {
	return f.committed, nil
}

// begin decides where the partitions of a session begin, and waits for brokers and stores that are
// down. The session may end meanwhile.
func (r *Runner) begin(s *session) (map[partition]place, error) {
	committed, claims := make(map[partition]int64), make(map[string][]int32)
	for topic, assigned := range s.gen.Assignments {
		for _, a := range assigned {
			id := int32(a.ID) //nolint:gosec // from an int32
			claims[topic] = append(claims[topic], id)
			if a.Offset >= 0 {
				committed[partition{Topic: topic, Partition: id}] = a.Offset
			}
		}
	}
	var back runner.Backoff
	for {
		places, err := r.places(s.ctx, claims, committed)
		if err == nil {
			return places, nil
		}
		if err := r.retry.Wait(s.ctx, &back, err); err != nil {
			return nil, err
		}
	}
}

// places decides where partitions begin, with the policies for gaps and lost offsets.
func (r *Runner) places(
	ctx context.Context, claims map[string][]int32, committed map[partition]int64,
) (map[partition]place, error) {
	known := fetched{r.offsets, committed}
	moves, err := runner.NewOffsetCheck(r.cfg.Config, known, r.group.Processor().Stores()).Check(ctx, claims)
	if err != nil {
		return nil, err
	}
	places := make(map[partition]place)
	for p, at := range committed {
		places[p] = place{offset: at, committed: true}
	}
	for _, m := range moves {
		places[m.TopicPartition] = place{offset: m.To, committed: true, moved: true}
	}
	oldest, newest := r.fresh(claims, places)
	first, err := r.offsets.Oldest(ctx, oldest)
	if err != nil {
		return nil, err
	}
	for p, at := range first {
		places[p] = place{offset: at, initial: runner.OffsetOldest}
	}
	last, err := r.offsets.ask(ctx, newest, -1, onlyCommitted)
	if err != nil {
		return nil, err
	}
	for p, at := range last {
		places[p] = place{offset: at, initial: runner.OffsetNewest}
	}
	return places, nil
}

// fresh returns the partitions without a place that begin at the oldest record, and those that begin
// at the newest. The group itself wrote the copies in its retry topics, and skips none.
func (r *Runner) fresh(
	claims map[string][]int32, places map[partition]place,
) (oldest, newest map[string][]int32) {
	oldest, newest = make(map[string][]int32), make(map[string][]int32)
	for topic, ids := range claims {
		for _, id := range ids {
			if _, ok := places[partition{Topic: topic, Partition: id}]; ok {
				continue
			}
			if r.cfg.Start == runner.Newest && !runner.IsRetry(topic, r.cfg.Group) {
				newest[topic] = append(newest[topic], id)
			} else {
				oldest[topic] = append(oldest[topic], id)
			}
		}
	}
	return oldest, newest
}
