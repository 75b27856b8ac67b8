package consumer

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/IBM/sarama"

	"github.com/idem-go/idem/runner"
)

// patientClient is the client of a group. sarama joins no group while a refresh of the metadata
// fails, and the refresh fails for one partition without a leader. Such a partition waits beside
// the others instead (K-18).
type patientClient struct{ sarama.Client }

// RefreshMetadata returns no error if only leaders are missing.
func (c patientClient) RefreshMetadata(topics ...string) error {
	err := c.Client.RefreshMetadata(topics...)
	if onlyLeaders(err) {
		return nil
	}
	return err
}

// onlyLeaders reports whether every error in err is that of a missing leader.
func onlyLeaders(err error) bool {
	switch e := err.(type) { //nolint:errorlint // each error of a joined one counts
	case interface{ Unwrap() []error }:
		return !slices.ContainsFunc(e.Unwrap(), func(err error) bool { return !onlyLeaders(err) })
	case interface{ Unwrap() error }:
		return onlyLeaders(e.Unwrap())
	}
	return errors.Is(err, sarama.ErrLeaderNotAvailable)
}

// withLeader returns the partitions with a leader, and the others. It asks no broker.
func withLeader(
	client sarama.Client, claims map[string][]int32,
) (led map[string][]int32, waiting []runner.TopicPartition) {
	led = make(map[string][]int32, len(claims))
	for topic, ids := range claims {
		for _, id := range ids {
			if client.PartitionNotReadable(topic, id) {
				waiting = append(waiting, runner.TopicPartition{Topic: topic, Partition: id})
			} else {
				led[topic] = append(led[topic], id)
			}
		}
	}
	return led, waiting
}

// ledOffsets are the offsets without the partitions that wait for a leader. The claims that a
// session prepares are included in any case: they must not begin without an answer.
type ledOffsets struct {
	logOffsets
	prepares map[string][]int32
}

// Partitions implements runner.Offsets.
func (o ledOffsets) Partitions(
	ctx context.Context, topics []string,
) (map[string][]int32, error) {
	all, err := o.logOffsets.Partitions(ctx, topics)
	if err != nil {
		return nil, err
	}
	led, waiting := withLeader(o.client, all)
	for _, p := range waiting {
		if slices.Contains(o.prepares[p.Topic], p.Partition) {
			led[p.Topic] = append(led[p.Topic], p.Partition)
		}
	}
	return led, nil
}

// leaderPause is the time between two looks for missing leaders. sarama begins a partition up to 5 s
// after the leader is known.
const leaderPause = 2 * time.Second

// findLeaders asks for the missing leaders of the partitions of a session, until ctx ends. While a
// partition waits, sarama looks only at the metadata it has, and refreshes that once a minute (K-18).
func findLeaders(ctx context.Context, client sarama.Client, claims func() map[string][]int32) {
	for runner.Pause(ctx, leaderPause) == nil {
		_, waiting := withLeader(client, claims())
		of := make(map[string]bool)
		for _, p := range waiting {
			of[p.Topic] = true
		}
		if topics := slices.Sorted(maps.Keys(of)); len(topics) > 0 {
			_ = client.RefreshMetadata(topics...) // after an error the next look asks again
		}
	}
}
