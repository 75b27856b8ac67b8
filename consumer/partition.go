package consumer

import (
	"cmp"
	"maps"
	"slices"
)

// partition names a partition of a topic.
type partition struct {
	topic string
	id    int32
}

func sortedPartitions[V any](of map[partition]V) []partition {
	return slices.SortedFunc(maps.Keys(of), func(a, b partition) int {
		return cmp.Or(cmp.Compare(a.topic, b.topic), cmp.Compare(a.id, b.id))
	})
}
