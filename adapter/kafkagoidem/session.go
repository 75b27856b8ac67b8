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

// pulseTime bounds one heartbeat.
const pulseTime = 2 * time.Second

// errRevoked is the cause of the end of a generation in order.
var errRevoked = errors.New("the group changes: all partitions are given back")

// session is a [runner.Session] and [runner.DirectCommitter]: one generation of the group.
//
// Commits have a connection of their own. That of the generation knows no context, and stays with a
// coordinator that has moved.
type session struct {
	m   *member
	gen *kafka.Generation
	ctx context.Context
	end context.CancelCauseFunc // the first cause counts

	turn *runner.CommitTurn

	mu    sync.Mutex
	marks map[partition]int64 // not committed yet
	known map[partition]int64 // all partitions, with the last mark or where they begin
}

func newSession(m *member, gen *kafka.Generation) *session {
	s := &session{
		m: m, gen: gen, turn: runner.NewCommitTurn(),
		marks: make(map[partition]int64), known: make(map[partition]int64),
	}
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

// Commit implements [runner.Session]. It tries again after errors that pass.
func (s *session) Commit() {
	s.m.r.group.LearnPositions() // for the next commit
	s.m.r.group.NoteError(s.turn.Commit(s.commit, passes))
}

// passes reports whether a commit may succeed soon, without a new generation. An error without a
// code is one of the connection.
func passes(err error) bool {
	var code kafka.Error
	return !errors.As(err, &code) || isAny(code, kafka.RebalanceInProgress, kafka.GroupLoadInProgress,
		kafka.GroupCoordinatorNotAvailable, kafka.NotCoordinatorForGroup)
}

// commit commits the marks, and removes those that are committed.
func (s *session) commit(ctx context.Context) error {
	s.mu.Lock()
	marks := maps.Clone(s.marks)
	s.mu.Unlock()
	if len(marks) == 0 {
		return nil
	}
	refused, err := s.send(ctx, marks)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for p, next := range marks {
		switch {
		case refused[p] != nil:
			err = refused[p]
		case s.marks[p] == next:
			delete(s.marks, p)
		}
	}
	return err
}

// CommitDirectly implements [runner.DirectCommitter].
func (s *session) CommitDirectly(
	ctx context.Context, offsets map[partition]int64,
) (refused map[partition]error, err error) {
	err = s.turn.Directly(ctx, func() (err error) {
		refused, err = s.send(ctx, offsets)
		return err
	})
	return refused, err
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
	return s.turn.Beside(ctx, func(ctx context.Context) error {
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
	})
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
