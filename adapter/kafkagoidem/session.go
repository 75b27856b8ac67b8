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

	mu    sync.Mutex
	marks map[partition]int64 // not committed yet
}

func newSession(m *member, gen *kafka.Generation) *session {
	s := &session{m: m, gen: gen, marks: make(map[partition]int64)}
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
	s.marks[p] = next
}

// Commit implements [runner.Session]. The connection of the generation may be broken while the
// member is in the group; then the commit takes another one.
func (s *session) Commit() {
	for _, a := range s.m.r.group.Assignments() { // for the next commit
		if c, ok := a.Claim().(*claim); ok {
			c.learn(a.Tail())
		}
	}
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
		refused, err = s.CommitDirectly(ctx, marks)
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

// CommitDirectly implements [runner.DirectCommitter]. Partitions of deleted topics count as
// committed, since no event there can be delivered again (K-27).
func (s *session) CommitDirectly(
	ctx context.Context, offsets map[partition]int64,
) (map[partition]error, error) {
	topics := make(map[string][]kafka.OffsetCommit)
	refused := make(map[partition]error)
	for p, next := range offsets {
		topics[p.Topic] = append(topics[p.Topic], kafka.OffsetCommit{Partition: int(p.Partition), Offset: next})
		refused[p] = errNoAnswerFor
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
			if p.Error == nil || errors.Is(p.Error, kafka.UnknownTopicOrPartition) && r.deleted(ctx, topic) {
				delete(refused, at)
			} else {
				refused[at] = p.Error
			}
		}
	}
	return refused, nil
}

// heartbeat asks the coordinator whether the member is in the group.
func (s *session) heartbeat() error {
	ctx, cancel := context.WithTimeout(context.Background(), pulseTime)
	defer cancel()
	r := s.m.r
	answer, err := r.offsets.cl.Heartbeat(ctx, &kafka.HeartbeatRequest{
		Addr: r.offsets.addr, GroupID: r.cfg.Group, GenerationID: s.gen.ID, MemberID: s.gen.MemberID,
	})
	if err != nil {
		return err
	}
	return answer.Error
}

// watch ends the session after the generation has ended. kafka-go does not tell the reason, and
// sends no heartbeats from then on. So watch sends them until finished is closed: the answers tell
// whether the partitions are lost, and keep the member in the group while handlers have their grace
// (K-11).
func (s *session) watch(ended, finished <-chan struct{}) {
	select {
	case <-ended:
	case <-finished:
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

var _ runner.DirectCommitter = (*session)(nil)
