package kafkagoidem

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/segmentio/kafka-go"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/runner"
)

const (
	// commitTime bounds one commit on the transport.
	commitTime = 4 * time.Second
	// pulseTime bounds one heartbeat on the transport.
	pulseTime = 2 * time.Second
)

// errRevoked is the cause of the end of a generation in order.
var errRevoked = errors.New("the group changes: all partitions are given back")

// session is a [runner.Session] and [runner.DirectCommitter]: one generation of the group.
type session struct {
	m   *member
	gen *kafka.Generation
	ctx context.Context
	end context.CancelCauseFunc // the first cause counts

	committing turn // held during a commit: none overtakes another

	mu    sync.Mutex
	marks map[partition]int64 // not committed yet
	known map[partition]int64 // all partitions, with the last mark or where they begin
}

func newSession(m *member, gen *kafka.Generation) *session {
	s := &session{m: m, gen: gen, committing: make(turn, 1), marks: make(map[partition]int64), known: make(map[partition]int64)}
	s.ctx, s.end = context.WithCancelCause(m.ctx)
	return s
}

// Context implements [runner.Session].
func (s *session) Context() context.Context { return s.ctx }

// Generation implements [runner.Session].
func (s *session) Generation() int32 { return s.gen.ID }

// Mark implements [runner.Session].
func (s *session) Mark(p partition, next int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.marks[p], s.known[p] = next, next
}

// begins notes where a partition begins.
func (s *session) begins(p partition, at runner.Place) {
	if at.Chosen {
		s.Mark(p, at.Offset)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.known[p] = at.Offset
}

// Commit implements [runner.Session]. The connection of the generation may be broken while the
// member is in the group; then the commit takes another one.
func (s *session) Commit() {
	s.m.r.group.LearnPositions()                // for the next commit
	_ = s.committing.take(context.Background()) // each commit is bounded
	defer s.committing.leave()
	s.mu.Lock()
	marks := maps.Clone(s.marks)
	s.mu.Unlock()
	if len(marks) == 0 {
		return
	}
	err := s.gen.CommitOffsets(byTopic(marks))
	var refused map[partition]error
	if code := kafka.Error(0); err != nil && !errors.As(err, &code) {
		ctx, cancel := context.WithTimeout(context.Background(), commitTime)
		defer cancel()
		refused, err = s.send(ctx, marks)
	}
	for _, one := range refused {
		err = one
	}
	s.m.r.group.NoteError(err)
	if err != nil && refused == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for p, next := range marks {
		if refused[p] == nil && s.marks[p] == next {
			delete(s.marks, p)
		}
	}
}

func byTopic(marks map[partition]int64) map[string]map[int]int64 {
	all := make(map[string]map[int]int64)
	for p, next := range marks {
		if all[p.Topic] == nil {
			all[p.Topic] = make(map[int]int64)
		}
		all[p.Topic][int(p.Partition)] = next
	}
	return all
}

// CommitDirectly implements [runner.DirectCommitter].
func (s *session) CommitDirectly(
	ctx context.Context, offsets map[partition]int64,
) (map[partition]error, error) {
	if err := s.committing.take(ctx); err != nil {
		return nil, err
	}
	defer s.committing.leave()
	return s.send(ctx, offsets)
}

// send commits on the transport. Partitions of deleted topics count as committed, since no event
// there can be delivered again (K-27).
func (s *session) send(
	ctx context.Context, offsets map[partition]int64,
) (map[partition]error, error) {
	topics := make(map[string][]kafka.OffsetCommit)
	refused := make(map[partition]error)
	for p, next := range offsets {
		topics[p.Topic] = append(topics[p.Topic], kafka.OffsetCommit{Partition: int(p.Partition), Offset: next})
		refused[p] = runner.ErrNoAnswer
	}
	r := s.m.r
	answer, err := r.offsets.cl.OffsetCommit(ctx, &kafka.OffsetCommitRequest{
		Addr: r.offsets.addr, GroupID: r.cfg.Group, GenerationID: int(s.gen.ID), MemberID: s.gen.MemberID,
		Topics: topics,
	})
	if err != nil {
		return nil, err
	}
	for topic, partitions := range answer.Topics {
		for _, p := range partitions {
			at := partition{Topic: topic, Partition: int32(p.Partition)} //nolint:gosec // from an int32
			if p.Error == nil || errors.Is(p.Error, kafka.UnknownTopicOrPartition) && r.life.TopicDeleted(ctx, topic) {
				delete(refused, at)
			} else {
				refused[at] = p.Error
			}
		}
	}
	return refused, nil
}

// heartbeat commits an offset again that is committed, or where a partition begins. The commit
// keeps the member in the group, and the answer shows whether the member is in the group. The
// request of kafka-go for this purpose is malformed: Client.Heartbeat reads no error.
func (s *session) heartbeat() error {
	ctx, cancel := context.WithTimeout(context.Background(), pulseTime)
	defer cancel()
	if err := s.committing.take(ctx); err != nil {
		return err
	}
	defer s.committing.leave()
	s.mu.Lock()
	one := make(map[partition]int64)
	for p, next := range s.known {
		one[p] = next
		break
	}
	s.mu.Unlock()
	refused, err := s.send(ctx, one)
	for _, err := range refused {
		return err
	}
	return err
}

// watch ends the session after the generation has ended. kafka-go does not report the reason, and
// sends no heartbeats from then on. So watch sends heartbeats until finished is closed. They keep
// the member in the group while handlers have their grace, and the answers show whether the
// partitions are lost (K-11).
func (s *session) watch(ended, finished <-chan struct{}) {
	select {
	case <-ended:
	case <-finished:
		return
	}
	if !s.begun() {
		s.end(errRevoked)
		return
	}
	answered := time.Now()
	tick := time.NewTicker(s.m.r.cfg.client.Heartbeat)
	defer tick.Stop()
	for {
		err := s.heartbeat()
		switch {
		case classify(err).Lost():
			s.end(fmt.Errorf("%w: %w", idem.ErrPartitionLost, err))
			return
		case err == nil, isAny(err, kafka.RebalanceInProgress):
			answered = time.Now()
			s.end(errRevoked)
		case time.Since(answered) > s.m.r.cfg.client.SessionTimeout:
			s.end(fmt.Errorf("%w: no answer to heartbeats: %w", idem.ErrPartitionLost, err))
			return
		}
		select {
		case <-tick.C:
		case <-finished:
			return
		}
	}
}

// begun reports whether a partition has begun in this generation. Without one there is no partition
// to lose, and no offset for a heartbeat. Brokers answer a commit without offsets, but do not look
// at the group.
func (s *session) begun() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.known) > 0
}

var _ runner.DirectCommitter = (*session)(nil)

// turn lets one caller at a time go on. Make it with room for one.
type turn chan struct{}

// take waits until ctx ends at the latest. Call leave after a nil error.
func (t turn) take(ctx context.Context) error {
	select {
	case t <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (t turn) leave() { <-t }
