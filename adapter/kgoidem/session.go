package kgoidem

import (
	"context"
	"errors"
	"maps"
	"math"
	"sync"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/idem-go/idem/runner"
)

// session is a [runner.Session] and [runner.DirectCommitter]: the time for which a member is in the
// group. A cooperative group, and one of the next generation, keep it over rebalances.
//
// Commits have a connection of their own. franz-go holds its own commits back while the member
// joins the next generation, which lasts as long as the handlers of other members. The brokers
// accept commits meanwhile: the generation of a member is valid until all members have joined the
// next one.
type session struct {
	m   *member
	ctx context.Context
	end context.CancelCauseFunc
	on  *runner.ActiveSession

	turn *runner.CommitTurn

	mu     sync.Mutex
	marks  map[partition]int64 // not committed yet
	known  map[partition]int64 // all partitions, with the last mark or where they begin
	epochs map[partition]*epochs
	cuts   map[partition]int64 // where a log was cut: no offset behind is committed, and no epoch
}

func newSession(m *member) *session {
	s := &session{
		m: m, turn: runner.NewCommitTurn(),
		marks: make(map[partition]int64), known: make(map[partition]int64),
		cuts: make(map[partition]int64), epochs: make(map[partition]*epochs),
	}
	s.ctx, s.end = context.WithCancelCause(m.ctx)
	return s
}

// Context implements [runner.Session].
func (s *session) Context() context.Context { return s.ctx }

// Generation implements [runner.Session].
func (s *session) Generation() int32 {
	_, generation := s.m.cl.GroupMetadata()
	return generation
}

// Mark implements [runner.Session].
func (s *session) Mark(p partition, next int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if cut, ok := s.cuts[p]; ok {
		next = min(next, cut)
	}
	s.marks[p], s.known[p] = next, next
}

// begins notes where a partition begins. A place that a policy has chosen is committed.
func (s *session) begins(p partition, at runner.Place, read *epochs) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.epochs[p] = read
	if s.known[p] = at.Offset; at.Chosen {
		s.marks[p] = at.Offset
	}
}

// cut makes the partition go on where the log was cut, or before, at the first event that is not
// settled.
func (s *session) cut(p partition, at int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cuts[p] = at
	if known, ok := s.known[p]; ok && at < known {
		s.marks[p] = at
	}
}

// passOver makes the partition go on at the first event that is not settled, although the log was
// cut below. That offset is committed without an epoch, so the cut is not found again.
func (s *session) passOver(p partition) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cuts[p] = math.MaxInt64
	if known, ok := s.known[p]; ok {
		s.marks[p] = known
	}
}

// forget drops a partition that is given back.
func (s *session) forget(p partition) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.marks, p)
	delete(s.known, p)
	delete(s.epochs, p)
}

// Commit implements [runner.Session]. It tries again while the group changes its generation;
// franz-go tries again after other errors.
func (s *session) Commit() {
	s.m.r.group.LearnPositions() // for the next commit
	s.m.r.group.NoteError(s.turn.Commit(s.commit, func(err error) bool {
		return isAny(err, kerr.RebalanceInProgress, kerr.StaleMemberEpoch)
	}))
}

// commit commits the marks, and removes those that are committed. A mark of a log that was cut
// meanwhile stays, since the epoch that was committed with it has to go.
func (s *session) commit(ctx context.Context) error {
	s.mu.Lock()
	marks, cuts := maps.Clone(s.marks), maps.Clone(s.cuts)
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
		case s.marks[p] == next && s.cuts[p] == cuts[p]:
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

// send makes one commit. Partitions of deleted topics count as committed, since no event there can
// be delivered again (K-27).
func (s *session) send(
	ctx context.Context, offsets map[partition]int64,
) (map[partition]error, error) {
	req, err := s.request(offsets)
	if err != nil {
		return nil, err
	}
	answer, err := req.RequestWith(ctx, s.m.r.plain)
	if err != nil {
		return nil, err
	}
	refused := make(map[partition]error)
	for p := range offsets {
		refused[p] = runner.ErrNoAnswer
	}
	for _, t := range answer.Topics {
		for _, p := range t.Partitions {
			at := partition{Topic: t.Topic, Partition: p.Partition}
			err := kerr.ErrorForCode(p.ErrorCode)
			if err == nil ||
				errors.Is(err, kerr.UnknownTopicOrPartition) && s.m.r.life.TopicDeleted(ctx, t.Topic) {
				delete(refused, at)
			} else {
				refused[at] = err
			}
		}
	}
	return refused, nil
}

func (s *session) request(offsets map[partition]int64) (*kmsg.OffsetCommitRequest, error) {
	id, generation := s.m.cl.GroupMetadata()
	if id == "" {
		return nil, kerr.UnknownMemberID
	}
	req := kmsg.NewPtrOffsetCommitRequest()
	req.Group, req.MemberID, req.Generation = s.m.r.cfg.Group, id, generation
	if instance := s.m.r.cfg.InstanceID; instance != "" {
		req.InstanceID = &instance
	}
	topics := make(map[string][]kmsg.OffsetCommitRequestTopicPartition)
	s.mu.Lock()
	defer s.mu.Unlock()
	for at, next := range offsets {
		next, epoch := s.commits(at, next)
		p := kmsg.NewOffsetCommitRequestTopicPartition()
		p.Partition, p.Offset, p.LeaderEpoch = at.Partition, next, epoch
		if epoch != noEpoch {
			p.Metadata = kmsg.StringPtr(stamp(at, next, epoch))
		}
		topics[at.Topic] = append(topics[at.Topic], p)
	}
	for topic, partitions := range topics {
		t := kmsg.NewOffsetCommitRequestTopic()
		t.Topic, t.Partitions = topic, partitions
		req.Topics = append(req.Topics, t)
	}
	return req, nil
}

// commits returns the offset to commit for a mark, with its epoch. The caller holds s.mu.
func (s *session) commits(p partition, next int64) (at int64, epoch int32) {
	if cut, ok := s.cuts[p]; ok {
		return min(next, cut), noEpoch
	}
	if read := s.epochs[p]; read != nil {
		return next, read.below(next)
	}
	return next, noEpoch
}

var _ runner.DirectCommitter = (*session)(nil)
