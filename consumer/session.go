package consumer

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/IBM/sarama"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/lane"
	"github.com/idem-go/idem/observe"
)

// session is one session of the group with all assignments. A goroutine of the session commits.
// Handlers never do, because a commit can last as long as a request, or as a whole rebalance
// (K-06).
type session struct {
	g     *groupState
	sess  sarama.ConsumerGroupSession
	flush chan chan struct{} // asks for a commit now; the answer is closing the channel
	stop  chan struct{}
	done  chan struct{}

	recorder *recorder // nil if no store records progress
	ends     asker     // nil if the ends of logs are not known
	marks    *marks

	mu        sync.Mutex
	assigned  map[*assignment]struct{}
	ending    map[partition]struct{} // of assignments that have ended and may not be committed yet
	announced map[partition]bool     // reported as assigned in Setup and not begun yet
	ended     map[string][]int32     // when the whole session ends, reported together
}

func newSession(g *groupState, sess sarama.ConsumerGroupSession) *session {
	s := &session{
		g: g, sess: sess,
		flush: make(chan chan struct{}), stop: make(chan struct{}), done: make(chan struct{}),
		assigned: make(map[*assignment]struct{}), ending: make(map[partition]struct{}),
		announced: make(map[partition]bool), ended: make(map[string][]int32),
		ends: g.ends, marks: newMarks(sess, g.direct, g.health.observe),
	}
	s.recorder = newRecorder(g.proc, g.log, g.cfg.errorText, s.progress)
	return s
}

// begin registers an assignment.
func (s *session) begin(claim sarama.ConsumerGroupClaim, l *lane.Partition) *assignment {
	a := newAssignment(s.sess.Context(), claim, l)
	s.mu.Lock()
	s.assigned[a] = struct{}{}
	known := s.announced[a.partition]
	delete(s.announced, a.partition)
	s.mu.Unlock()
	if !known { // a cooperative rebalance added it
		s.g.reportRebalance(s.sess, observe.Assigned, map[string][]int32{a.topic: {a.id}}, nil)
	}
	return a
}

// end gives a partition back: the lane first, then the last offset, then the assignment.
func (s *session) end(a *assignment, lost error) error {
	ctx, cancel := context.WithTimeout(context.Background(), s.g.cfg.neutral().EndWait())
	defer cancel()
	failed := a.lane.Err() // before Close, which ends in order
	left := a.lane.Close(ctx, s.closing(a, lost))
	if failed == nil {
		failed = a.lane.Err()
	}

	s.mu.Lock()
	if lost == nil {
		s.mark(a)
	}
	delete(s.assigned, a)
	s.ending[a.partition] = struct{}{}
	alone := s.sess.Context().Err() == nil
	if !alone {
		s.ended[a.topic] = append(s.ended[a.topic], a.id)
	}
	stalled, marked := a.stalls, a.marked
	s.mu.Unlock()

	if lost == nil {
		s.commitAtEnd(a, marked)
		s.recorder.part(a, marked)
	}
	s.marks.forget(a.partition)
	s.mu.Lock()
	delete(s.ending, a.partition)
	s.mu.Unlock()
	if stalled {
		s.g.reportStall(a, 0, true)
	}
	s.g.reportProgress(s.sess.Context(), a, true)
	if alone {
		s.g.reportRebalance(s.sess, observe.Revoked, map[string][]int32{a.topic: {a.id}}, nil)
	}
	switch {
	case failed != nil:
		s.g.log.Error("partition cannot continue", "topic", a.topic, "partition", a.id,
			"error", s.g.cfg.errorText(failed))
		s.g.fail(failed)
	case left != nil:
		s.g.log.Error("handler left behind, partition given back", "topic", a.topic,
			"partition", a.id,
			"error", s.g.cfg.errorText(left))
		s.g.noteAbandoned(left)
	}
	return failed
}

// closing returns why the handlers of an assignment must end at once, or nil. A stuck one has no
// grace, although the settled offsets are committed.
func (s *session) closing(a *assignment, lost error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if lost == nil && a.stuck {
		return fmt.Errorf("%w: %w", idem.ErrPartitionLost, ErrStalled)
	}
	return lost
}

// mark gives sarama the watermark of an assignment, and reports whether it moved. The caller holds
// s.mu and has checked that the partition is not lost.
func (s *session) mark(a *assignment) bool {
	next, ok := a.watermark()
	if !ok || next == a.marked {
		return false
	}
	a.marked = next
	s.marks.set(a.partition, next)
	return true
}

// commitAtEnd commits the offset of an assignment before the partition is given back. At the stop
// of a Consumer a broker must confirm it: sarama returns no result of a commit, and does not commit
// in a rebalance.
func (s *session) commitAtEnd(a *assignment, marked int64) {
	if s.marks.direct == nil || !s.g.stops() {
		s.commitNow(commitWait)
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), commitWait)
	defer cancel()
	s.commitNow(directWait)
	if marked <= max(a.claim.InitialOffset(), 0) {
		return // nothing was handled
	}
	if err := s.marks.assure(ctx, a.partition, marked); err != nil {
		s.g.noteUnsafe(fmt.Errorf("%w: %s/%d before %d: %w", ErrNotCommitted, a.topic, a.id, marked,
			err))
	}
}

// commitLoop commits on a timer and on request, until the session is closed.
func (s *session) commitLoop() {
	defer close(s.done)
	tick := time.NewTicker(s.g.cfg.CommitInterval)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			s.commitMarks()
			for _, a := range s.list() {
				s.g.reportProgress(s.sess.Context(), a, false)
			}
		case answer := <-s.flush:
			// Assignments usually end together: one commit serves all requests so far.
			answers := append(s.requests(), answer)
			s.commitMarks()
			for _, a := range answers {
				close(a)
			}
		case <-s.stop:
			s.commitMarks()
			s.g.health.settle()
			return
		}
	}
}

func (s *session) requests() (answers []chan struct{}) {
	for {
		select {
		case a := <-s.flush:
			answers = append(answers, a)
		default:
			return answers
		}
	}
}

// commitMarks marks every assignment that is not lost, and commits.
func (s *session) commitMarks() {
	if s.g.endOf(s.sess.Context()) != nil {
		return
	}
	moved := 0
	s.mu.Lock()
	for a := range s.assigned {
		if s.mark(a) {
			moved++
		}
	}
	s.mu.Unlock()
	s.g.health.begin(moved)
	began := time.Now()
	s.sess.Commit() // sends nothing without a new mark since the last successful commit
	s.g.health.end(time.Since(began))
}

// commitNow asks for a commit and waits. Without the commit, events handled since the last one are
// delivered again, and the store recognises the duplicates.
func (s *session) commitNow(wait time.Duration) {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	answer := make(chan struct{})
	select {
	case s.flush <- answer:
	case <-s.done:
		return
	case <-timer.C:
		return
	}
	select {
	case <-answer:
	case <-s.done:
	case <-timer.C:
	}
}

// close ends the committer, and reports the partitions that ended with the session.
func (s *session) close(cause error) {
	close(s.stop)
	timer := time.NewTimer(commitWait)
	defer timer.Stop()
	select {
	case <-s.done:
	case <-timer.C: // a commit hangs; GroupHandler.Close waits for it
		s.g.log.Warn("last commit takes long, not waiting for it")
	}
	s.mu.Lock()
	ended := s.ended
	for p := range s.announced { // given back before they began
		ended[p.topic] = append(ended[p.topic], p.id)
	}
	s.mu.Unlock()
	kind := observe.Revoked
	if s.g.endOf(s.sess.Context()) != nil {
		kind = observe.Lost
	}
	if len(ended) > 0 {
		s.g.reportRebalance(s.sess, kind, ended, cause)
	}
}

// announce reports the partitions that a session begins with.
func (s *session) announce(claims map[string][]int32) {
	s.mu.Lock()
	for topic, ids := range claims {
		for _, id := range ids {
			s.announced[partition{topic, id}] = true
		}
	}
	s.mu.Unlock()
	s.g.reportRebalance(s.sess, observe.Assigned, claims, nil)
}

func (s *session) list() (all []*assignment) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for a := range s.assigned {
		all = append(all, a)
	}
	return all
}

// unfinished reports whether an assignment of the session has not ended, or has not committed.
func (s *session) unfinished() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.assigned) > 0 || len(s.ending) > 0
}

// progress returns the position of each assignment, as of the last commit.
func (s *session) progress() (all []dedup.Progress) {
	type position struct {
		*assignment
		next  int64
		known bool
	}
	var positions []position
	var questions []question
	for _, a := range s.list() {
		s.mu.Lock()
		next := a.marked
		s.mu.Unlock()
		known := next >= 0
		if !known {
			next = a.times.begin(func() int64 { return a.beginning(s.g.oldest) })
		}
		positions = append(positions, position{a, next, known})
		if next >= 0 && a.lane.Pending() == 0 {
			questions = append(questions, a.question(next))
		}
	}
	if s.ends != nil {
		s.ends.ask(questions, s.stop)
	}
	for _, p := range positions {
		all = append(all, p.assignment.progress(p.next, p.known))
	}
	return all
}
