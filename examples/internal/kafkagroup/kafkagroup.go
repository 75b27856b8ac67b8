// Package kafkagroup asks brokers for the progress of consumer groups, with a client that is not
// the one of the workers.
package kafkagroup

import (
	"context"

	"github.com/twmb/franz-go/pkg/kadm"
)

// Committed reports whether a group has committed the last record of every partition of a topic.
func Committed(ctx context.Context, admin *kadm.Client, group, topic string) (bool, error) {
	ends, err := admin.ListEndOffsets(ctx, topic)
	if err != nil {
		return false, err
	}
	commits, err := admin.FetchOffsets(ctx, group)
	if err != nil {
		return false, err
	}
	all := ends.Error() == nil
	ends.Each(func(end kadm.ListedOffset) {
		at, ok := commits.Lookup(end.Topic, end.Partition)
		all = all && (end.Offset == 0 || ok && at.At >= end.Offset)
	})
	return all, nil
}
