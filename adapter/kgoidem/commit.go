package kgoidem

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/observe"
	"github.com/idem-go/idem/runner"
)

const (
	// commitWait bounds one commit, and all tries at the end of assignments together.
	commitWait = 5 * time.Second
	// commitPause is the pause between two tries.
	commitPause = 250 * time.Millisecond
)

// commitLoop commits on a timer. Handlers never commit, because a commit can last (K-06).
func (m *member) commitLoop(stop <-chan struct{}) {
	tick := time.NewTicker(m.r.cfg.CommitInterval)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			list := m.list()
			ctx, cancel := context.WithTimeout(m.ctx, commitWait)
			_ = m.commit(ctx, list) // reported, and repeated at the next tick
			cancel()
			for _, a := range list {
				m.reportProgress(a, false)
			}
		case <-stop:
			return
		}
	}
}

// commitAtEnd commits the offsets of assignments before they are given back, until a broker has
// confirmed them. Without that, handled events are delivered again, and the store recognises them.
func (m *member) commitAtEnd(list []*assignment) {
	if len(list) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), commitWait)
	defer cancel()
	for {
		err := m.commit(ctx, list)
		if err == nil {
			return
		}
		timer := time.NewTimer(commitPause)
		select {
		case <-timer.C:
			if !isFinalCommit(err) {
				continue
			}
		case <-ctx.Done():
			timer.Stop()
		}
		if errors.Is(context.Cause(m.ctx), idem.ErrStopping) {
			m.r.noteUnsafe(fmt.Errorf("%w: %w", runner.ErrNotCommitted, err))
		}
		return
	}
}

// commit commits the watermarks that moved, of assignments that are not lost, and returns the first
// error.
//
// The commit has a connection of its own. franz-go holds its own commits back while the member joins
// the next generation, which lasts as long as the handlers of other members. The brokers accept
// commits meanwhile: the generation of a member is valid until all members have joined the next one.
func (m *member) commit(ctx context.Context, list []*assignment) error {
	select {
	case m.turn <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	defer func() { <-m.turn }()
	marks := m.marks(list)
	if len(marks) == 0 {
		return nil
	}
	began := time.Now()
	errs, err := m.send(ctx, marks)
	m.mu.Lock()
	for a, next := range marks {
		if err == nil && errs[a.partition] == nil {
			a.confirmed = next
		}
	}
	m.mu.Unlock()
	for _, e := range errs {
		if e != nil && err == nil {
			err = e
		}
	}
	if isAny(err, kerr.RebalanceInProgress, kerr.StaleMemberEpoch) {
		return err // the group is about to have another generation
	}
	m.r.commits.note(observe.CommitEvent{
		Group: m.r.cfg.Group, Partitions: len(marks), Took: time.Since(began), Err: err,
	})
	return err
}

// marks returns the watermarks that no broker has confirmed yet.
func (m *member) marks(list []*assignment) map[*assignment]int64 {
	marks := make(map[*assignment]int64)
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, a := range list {
		next, ok := a.watermark()
		if a.isLost() || !ok || next == a.confirmed || a.confirmed < 0 && a.begin.committed &&
			!a.begin.moved && next == a.begin.offset {
			continue
		}
		a.marked = next
		marks[a] = next
	}
	return marks
}

// send commits and returns the answer for each partition. An error means that there was no answer.
// Partitions of deleted topics count as committed, since no event there can be delivered again
// (K-27).
func (m *member) send(ctx context.Context, marks map[*assignment]int64) (map[partition]error, error) {
	id, generation := m.cl.GroupMetadata()
	if id == "" {
		return nil, kerr.UnknownMemberID
	}
	req := kmsg.NewPtrOffsetCommitRequest()
	req.Group, req.MemberID, req.Generation = m.r.cfg.Group, id, generation
	if instance := m.r.cfg.InstanceID; instance != "" {
		req.InstanceID = &instance
	}
	topics := make(map[string][]kmsg.OffsetCommitRequestTopicPartition)
	for a, next := range marks {
		p := kmsg.NewOffsetCommitRequestTopicPartition()
		p.Partition, p.Offset, p.LeaderEpoch = a.Partition, next, -1
		topics[a.Topic] = append(topics[a.Topic], p)
	}
	for topic, partitions := range topics {
		t := kmsg.NewOffsetCommitRequestTopic()
		t.Topic, t.Partitions = topic, partitions
		req.Topics = append(req.Topics, t)
	}
	answer, err := req.RequestWith(ctx, m.r.plain)
	if err != nil {
		return nil, err
	}
	errs := make(map[partition]error, len(marks))
	for a := range marks {
		errs[a.partition] = errNoCommit
	}
	for _, t := range answer.Topics {
		for _, p := range t.Partitions {
			err := kerr.ErrorForCode(p.ErrorCode)
			if errors.Is(err, kerr.UnknownTopicOrPartition) && m.r.deleted(ctx, t.Topic) {
				err = nil
			}
			errs[partition{Topic: t.Topic, Partition: p.Partition}] = err
		}
	}
	return errs, nil
}

var errNoCommit = errors.New("the answer to a commit lacks the partition")
