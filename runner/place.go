package runner

import (
	"context"

	"github.com/idem-go/idem/dedup"
)

// Place is where an assignment begins.
type Place struct {
	Offset    int64 // of the first record to handle
	Committed bool  // Offset is committed, or a policy has chosen it
	Chosen    bool  // Offset is to be committed: a policy has chosen it
	Initial   int64 // OffsetOldest or OffsetNewest, unless Committed is set
}

// InitialOffset returns the offset that [Claim] reports: the committed one, or [OffsetOldest] or
// [OffsetNewest].
func (p Place) InitialOffset() int64 {
	if p.Committed {
		return p.Offset
	}
	return p.Initial
}

// Cluster is how a [Life] asks and changes the brokers. Safe for concurrent use.
type Cluster interface {
	Admin
	Offsets
	// AllEnds returns the end of the visible log of each partition, like Ends. A partition without
	// an answer is an error.
	AllEnds(ctx context.Context, partitions map[string][]int32) (map[TopicPartition]int64, error)
}

// fetched are the committed offsets that a client has fetched for new partitions.
type fetched struct {
	Offsets
	committed map[TopicPartition]int64
}

// Committed implements [Offsets].
func (f fetched) Committed(
	context.Context, string, map[string][]int32,
) (map[TopicPartition]int64, error) {
	return f.committed, nil
}

// places decides where partitions begin, with the policies for gaps and lost offsets (K-17, K-28).
// claims has the new partitions, and committed those with a committed offset.
func places(
	ctx context.Context, cfg Config, cluster Cluster, stores []dedup.Store,
	claims map[string][]int32, committed map[TopicPartition]int64,
) (map[TopicPartition]Place, error) {
	moves, err := NewOffsetCheck(cfg, fetched{cluster, committed}, stores).Check(ctx, claims)
	if err != nil {
		return nil, err
	}
	places := make(map[TopicPartition]Place)
	for p, at := range committed {
		places[p] = Place{Offset: at, Committed: true}
	}
	for _, m := range moves {
		places[m.TopicPartition] = Place{Offset: m.To, Committed: true, Chosen: true}
	}
	oldest, newest := withoutPlace(cfg, claims, places)
	first, err := cluster.Oldest(ctx, oldest)
	if err != nil {
		return nil, err
	}
	for p, at := range first {
		places[p] = Place{Offset: at, Initial: OffsetOldest}
	}
	last, err := cluster.AllEnds(ctx, newest)
	if err != nil {
		return nil, err
	}
	for p, at := range last {
		places[p] = Place{Offset: at, Initial: OffsetNewest}
	}
	return places, nil
}

// withoutPlace returns the partitions without a place that begin at the oldest record, and those
// that begin at the newest. The group itself wrote the copies in its retry topics, and skips no
// copy.
func withoutPlace(
	cfg Config, claims map[string][]int32, places map[TopicPartition]Place,
) (oldest, newest map[string][]int32) {
	oldest, newest = make(map[string][]int32), make(map[string][]int32)
	for topic, ids := range claims {
		for _, id := range ids {
			if _, ok := places[TopicPartition{topic, id}]; ok {
				continue
			}
			if cfg.Start == Newest && !IsRetry(topic, cfg.Group) {
				newest[topic] = append(newest[topic], id)
			} else {
				oldest[topic] = append(oldest[topic], id)
			}
		}
	}
	return oldest, newest
}
