package runner

import (
	"context"

	"github.com/idem-go/idem/dedup"
)

// Place is where an assignment begins.
type Place struct {
	Offset    int64 // of the first record to handle
	Committed bool  // Offset is committed, or a policy has chosen it
	Chosen    bool  // a policy has chosen Offset: it is to be committed before the records are handled
	Initial   int64 // OffsetOldest, unless Committed is set
	fresh     bool  // see [Move]
}

// InitialOffset returns the offset that [Claim] reports: the committed one, or [OffsetOldest].
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
	Cluster
	committed map[TopicPartition]int64
}

// Committed implements [Offsets].
func (f fetched) Committed(
	context.Context, string, map[string][]int32,
) (map[TopicPartition]int64, error) {
	return f.committed, nil
}

// Ends implements [Offsets], with the client's error for a partition without an answer.
func (f fetched) Ends(
	ctx context.Context, partitions map[string][]int32,
) (map[TopicPartition]int64, error) {
	return f.AllEnds(ctx, partitions)
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
		places[m.TopicPartition] = Place{
			Offset: m.To, Committed: true, Chosen: true, fresh: m.fresh,
		}
	}
	first, err := cluster.Oldest(ctx, withoutPlace(claims, places))
	if err != nil {
		return nil, err
	}
	for p, at := range first {
		places[p] = Place{Offset: at, Initial: OffsetOldest}
	}
	return places, nil
}

// withoutPlace returns the partitions without a place. They begin at the oldest record: the source
// partitions of [Oldest], and the retry topics of the group, which skips no copy of its own.
func withoutPlace(
	claims map[string][]int32, places map[TopicPartition]Place,
) map[string][]int32 {
	rest := make(map[string][]int32)
	for topic, ids := range claims {
		for _, id := range ids {
			if _, ok := places[TopicPartition{topic, id}]; !ok {
				rest[topic] = append(rest[topic], id)
			}
		}
	}
	return rest
}
