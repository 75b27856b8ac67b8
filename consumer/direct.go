package consumer

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/IBM/sarama"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/consumer/internal/conns"
)

// directCommits commits offsets beside sarama, on a connection of its own, and returns the broker's answer. During a
// cooperative rebalance sarama lets no commit through until the rejoin was answered. The brokers do: the generation of a
// member is valid until all members have joined the next one.
type directCommits struct {
	group  string
	client sarama.Client
	config *sarama.Config
}

func newDirectCommits(group string, client sarama.Client) *directCommits {
	config := *client.Config()
	config.Net.ReadTimeout = min(config.Net.ReadTimeout, commitWait)
	config.Net.WriteTimeout = min(config.Net.WriteTimeout, commitWait)
	return &directCommits{group: group, client: client, config: &config}
}

// commit returns the partitions that the coordinator refused, but for those of topics that do not exist any longer: nothing of them can
// be delivered again (K-27). An error says that there was no answer. The end of ctx closes the connection.
func (d *directCommits) commit(ctx context.Context, sess sarama.ConsumerGroupSession, offsets map[partition]int64) (map[partition]error, error) {
	coordinator, err := d.client.Coordinator(d.group)
	if err != nil {
		return nil, err
	}
	own := conns.New(d.config)
	defer context.AfterFunc(ctx, own.Cut)()
	broker := sarama.NewBroker(coordinator.Addr())
	if err := broker.Open(own.Config(d.config)); err != nil {
		return nil, err
	}
	defer broker.Close() // the answer is there, or an error
	answer, err := broker.CommitOffset(d.request(sess, offsets))
	if err != nil {
		return nil, err
	}
	refused := make(map[partition]error)
	unknown := make(map[string][]partition)
	moved := false
	for p := range offsets {
		code, ok := answer.Errors[p.topic][p.id]
		switch {
		case !ok:
			refused[p] = sarama.ErrIncompleteResponse
		case !errors.Is(code, sarama.ErrNoError):
			refused[p] = code
			if errors.Is(code, sarama.ErrUnknownTopicOrPartition) {
				unknown[p.topic] = append(unknown[p.topic], p)
			}
			moved = moved || isAny(code, sarama.ErrNotCoordinatorForConsumer, sarama.ErrConsumerCoordinatorNotAvailable)
		}
	}
	for _, topic := range d.gone(broker, unknown) {
		for _, p := range unknown[topic] {
			delete(refused, p)
		}
	}
	if moved {
		return refused, d.client.RefreshCoordinator(d.group)
	}
	return refused, nil
}

// gone returns those of some topics that do not exist, as a broker has it; none without an answer.
func (d *directCommits) gone(broker *sarama.Broker, topics map[string][]partition) (missing []string) {
	if len(topics) == 0 {
		return nil
	}
	answer, err := broker.GetMetadata(sarama.NewMetadataRequest(d.config.Version, slices.Sorted(maps.Keys(topics))))
	if err != nil {
		return nil
	}
	for _, t := range answer.Topics {
		if errors.Is(t.Err, sarama.ErrUnknownTopicOrPartition) {
			missing = append(missing, t.Name)
		}
	}
	return missing
}

// request has the version that the configured version of Kafka knows, as sarama's own commits do.
func (d *directCommits) request(sess sarama.ConsumerGroupSession, offsets map[partition]int64) *sarama.OffsetCommitRequest {
	r := &sarama.OffsetCommitRequest{
		Version: 2, ConsumerGroup: d.group, ConsumerID: sess.MemberID(), ConsumerGroupGeneration: sess.GenerationID(), RetentionTime: -1,
	}
	for _, known := range []struct {
		since   sarama.KafkaVersion
		version int16
	}{{sarama.V2_1_0_0, 6}, {sarama.V2_3_0_0, 7}, {sarama.V2_4_0_0, 8}} {
		if d.config.Version.IsAtLeast(known.since) {
			r.Version = known.version
		}
	}
	if id := d.config.Consumer.Group.InstanceId; id != "" && r.Version >= 7 {
		r.GroupInstanceId = &id
	}
	const noEpoch = -1
	for p, offset := range offsets {
		r.AddBlockWithLeaderEpoch(p.topic, p.id, offset, noEpoch, 0, "")
	}
	return r
}

// directWait is how long the end of a claim waits for sarama's commit before it commits directly, and directPause the pause
// between two tries.
const (
	directWait  = time.Second
	directPause = 250 * time.Millisecond
)

// commitAtEnd commits what a claim has marked, before its partition is given back. At the stop of a Consumer, the broker
// must confirm it: sarama returns no result of its commits, and in a rebalance it makes none.
func (s *session) commitAtEnd(c *claimed, marked int64) {
	if s.h.direct == nil || !s.h.stops() {
		s.commitNow(commitWait)
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), commitWait)
	defer cancel()
	s.commitNow(directWait)
	if marked <= max(c.claim.InitialOffset(), 0) {
		return // nothing was handled
	}
	if err := s.assure(ctx, c.partition, marked); err != nil {
		err = fmt.Errorf("%w: %s/%d before %d: %w", ErrNotCommitted, c.topic, c.id, marked, err)
		s.h.mu.Lock()
		s.h.unsafe = errors.Join(s.h.unsafe, err)
		s.h.mu.Unlock()
	}
}

// assure commits directly until a broker has confirmed the offset of a partition. One claim commits for all of the session.
func (s *session) assure(ctx context.Context, p partition, next int64) error {
	for {
		select {
		case s.direct <- struct{}{}:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		err := s.commitDirectly(ctx, p, next)
		<-s.direct
		if err == nil || isFinalCommit(err) {
			return err
		}
		if pause(ctx, directPause) != nil {
			return err
		}
	}
}

// commitDirectly commits all marks that are not confirmed yet, and returns why that of p is none of them then.
func (s *session) commitDirectly(ctx context.Context, p partition, next int64) error {
	s.mu.Lock()
	open := make(map[partition]int64)
	for q, mark := range s.marks {
		if safe, ok := s.safe[q]; !ok || safe < mark {
			open[q] = mark
		}
	}
	safe := s.safe[p] >= next
	s.mu.Unlock()
	if safe {
		return nil
	}
	began := time.Now()
	refused, err := s.h.direct.commit(ctx, s.sess, open)
	s.h.observeCommit(idem.CommitEvent{Group: s.h.cfg.Group, Partitions: len(open), Took: time.Since(began), Err: firstError(err, refused)})
	s.mu.Lock()
	defer s.mu.Unlock()
	if refused == nil {
		return err
	}
	for q, mark := range open {
		if refused[q] == nil {
			s.safe[q] = mark
		}
	}
	if s.safe[p] >= next {
		return nil
	}
	return refused[p]
}

func firstError(err error, refused map[partition]error) error {
	for _, p := range sortedPartitions(refused) {
		return refused[p]
	}
	return err
}

// isFinalCommit reports whether no other try can commit: the member is not in the group any longer, or may not commit.
func isFinalCommit(err error) bool {
	return isAny(err, sarama.ErrUnknownMemberId, sarama.ErrFencedInstancedId, sarama.ErrGroupAuthorizationFailed,
		sarama.ErrTopicAuthorizationFailed)
}

// busy reports whether a claim of the session has not ended, or has not committed.
func (s *session) busy() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.claims) > 0 || len(s.ending) > 0
}

// notCommitted returns which offsets could not be committed at the stop.
func (h *GroupHandler) notCommitted() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.unsafe
}

// observeCommit tells observers of a commit.
func (h *GroupHandler) observeCommit(e idem.CommitEvent) {
	for _, o := range h.obs.commit {
		o.ObserveCommit(context.Background(), e)
	}
}
