package runner

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/lane"
	"github.com/idem-go/idem/observe"
)

// ActiveSession is one session of the group with all assignments, from [Group.Begin] to
// [Group.End]. A goroutine of the session commits. Handlers never do, because a commit can last as
// long as a request, or as a whole rebalance (K-06). Safe for concurrent use.
type ActiveSession struct {
	g     *Group
	sess  Session
	flush chan chan struct{} // asks for a commit now; the answer is closing the channel
	stop  chan struct{}
	done  chan struct{}

	recorder *recorder // nil if no store records progress
	ends     EndAsker  // nil if the ends of logs are not known
	marks    *marks

	mu        sync.Mutex
	assigned  map[*Assignment]struct{}
	ending    map[TopicPartition]struct{} // of assignments that have ended and may not be committed yet
	announced map[TopicPartition]bool     // reported as assigned in Setup and not begun yet
	ended     map[string][]int32          // when the whole session ends, reported together
	together  map[TopicPartition]*leaving // see EndTogether
}

// leaving are assignments that end together, and are reported once.
type leaving struct {
	left  int // that have not ended
	ended map[string][]int32
}

// CommitWait bounds how long the end of an assignment waits for the commit.
const CommitWait = 5 * time.Second

func newSession(g *Group, sess Session) *ActiveSession {
	s := &ActiveSession{
		g: g, sess: sess,
		flush: make(chan chan struct{}), stop: make(chan struct{}), done: make(chan struct{}),
		assigned: make(map[*Assignment]struct{}), ending: make(map[TopicPartition]struct{}),
		announced: make(map[TopicPartition]bool), ended: make(map[string][]int32),
		together: make(map[TopicPartition]*leaving),
		ends:     g.Hooks.Ends, marks: newMarks(g, sess),
	}
	s.recorder = newRecorder(g.proc, g.log, g.cfg.Text, s.progress)
	return s
}

// begin registers an assignment, one of so many of this member.
func (s *ActiveSession) begin(claim Claim, l *lane.Partition, assigned int) *Assignment {
	a := newAssignment(s.sess.Context(), claim, l)
	if claim.InitialOffset() < 0 && s.g.Hooks.Committed != nil {
		a.unsafe.Store(true)
	}
	s.mu.Lock()
	s.assigned[a] = struct{}{}
	s.share(assigned)
	known := s.announced[a.TopicPartition]
	delete(s.announced, a.TopicPartition)
	s.mu.Unlock()
	if !known { // a cooperative rebalance added it
		s.g.reportRebalance(s.sess, observe.Assigned, map[string][]int32{a.Topic: {a.Partition}}, nil)
	}
	return a
}

// share divides [Config].QueueBytes anew among the assignments, which a cooperative rebalance changes.
// least is the number of assignments with those that begin soon. The caller holds s.mu.
func (s *ActiveSession) share(least int) {
	bytes := queueShare(s.g.cfg.QueueBytes, max(least, len(s.assigned)))
	for a := range s.assigned {
		a.lane.SetQueueBytes(bytes)
	}
}

// commitBeginning commits where an assignment begins if a policy has chosen that, before a record is
// handled. Otherwise a crash in the first [Config].CommitInterval could let the partition begin
// behind a record in flight. While no commit succeeds, the mark stays for the next one. The end of
// the assignment at a stop then confirms the mark.
func (s *ActiveSession) commitBeginning(a *Assignment) {
	place, ok := a.chosen()
	if !ok {
		return
	}
	s.marks.set(a.TopicPartition, place.Offset)
	if s.marks.direct == nil {
		s.commitNow(a.ctx, CommitWait)
		return
	}
	ctx, cancel := context.WithTimeout(a.ctx, CommitWait)
	defer cancel()
	_ = s.confirm(ctx, a, place.Offset) // observers get the error
}

// confirm commits the offset of an assignment directly, until a broker has confirmed it.
func (s *ActiveSession) confirm(ctx context.Context, a *Assignment, next int64) error {
	err := s.marks.assure(ctx, a.TopicPartition, next)
	if err == nil {
		a.unsafe.Store(false)
	}
	return err
}

// end gives a partition back: the lane first, then the last offset, then the assignment.
func (s *ActiveSession) end(a *Assignment, lost error) error {
	ctx, cancel := context.WithTimeout(context.Background(), s.g.cfg.EndWait())
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
	s.share(0)
	s.ending[a.TopicPartition] = struct{}{}
	alone := s.sess.Context().Err() == nil
	if !alone {
		s.ended[a.Topic] = append(s.ended[a.Topic], a.Partition)
	}
	others := s.together[a.TopicPartition]
	delete(s.together, a.TopicPartition)
	stalled, marked := a.stalls, a.marked
	s.mu.Unlock()

	if lost == nil {
		s.commitAtEnd(a, marked)
		s.recorder.part(a, marked)
	}
	s.marks.forget(a.TopicPartition)
	s.mu.Lock()
	delete(s.ending, a.TopicPartition)
	s.mu.Unlock()
	if stalled {
		s.g.reportStall(a, 0, true)
	}
	s.g.reportProgress(s.sess.Context(), a, true)
	if ended := s.reported(a, others, alone); len(ended) > 0 {
		kind := observe.Revoked
		if lost != nil {
			kind = observe.Lost
		}
		s.g.reportRebalance(s.sess, kind, ended, lost)
	}
	switch {
	case failed != nil:
		s.g.log.Error("partition cannot continue", "topic", a.Topic, "partition", a.Partition,
			"error", s.g.cfg.Text(failed))
		s.g.Fail(failed)
	case left != nil:
		s.g.log.Error("handler left behind, partition given back", "topic", a.Topic,
			"partition", a.Partition,
			"error", s.g.cfg.Text(left))
		if s.g.stops() { // earlier ones may end until then, and Close finds those that hang
			s.g.noteAbandoned(left)
		}
	}
	return failed
}

// reported returns the partitions to report at the end of an assignment. Of those that end
// together, the last one reports all. The end of a session reports those that end with it.
func (s *ActiveSession) reported(a *Assignment, others *leaving, alone bool) map[string][]int32 {
	if others == nil && alone {
		return map[string][]int32{a.Topic: {a.Partition}}
	}
	if others == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if others.left--; alone {
		others.ended[a.Topic] = append(others.ended[a.Topic], a.Partition)
	}
	if others.left > 0 {
		return nil
	}
	return others.ended
}

// EndTogether notes that the client ends these claims now, for one cause. They are reported as one
// rebalance, after the last of them has ended.
func (s *ActiveSession) EndTogether(claims map[string][]int32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := &leaving{ended: make(map[string][]int32)}
	for a := range s.assigned {
		if s.together[a.TopicPartition] == nil && slices.Contains(claims[a.Topic], a.Partition) {
			s.together[a.TopicPartition] = l
			l.left++
		}
	}
}

// closing returns why the handlers of an assignment must end at once, or nil. A stuck one has no
// grace, although the settled offsets are committed.
func (s *ActiveSession) closing(a *Assignment, lost error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if lost == nil && a.stuck {
		return fmt.Errorf("%w: %w", idem.ErrPartitionLost, ErrStalled)
	}
	return lost
}

// mark gives the client the watermark of an assignment, and reports whether it moved. The caller
// holds s.mu and has checked that the partition is not lost.
func (s *ActiveSession) mark(a *Assignment) bool {
	next, ok := a.watermark()
	if !ok || next == a.marked {
		return false
	}
	a.marked = next
	s.marks.set(a.TopicPartition, next)
	return true
}

// commitAtEnd commits the offset of an assignment before the partition is given back. That is also
// the place where the assignment began, if a policy has chosen that (K-29). At the stop
// of a runner a broker must confirm it: a session may return no result of a commit, or not commit
// in a rebalance.
func (s *ActiveSession) commitAtEnd(a *Assignment, marked int64) {
	if s.marks.direct == nil || !s.g.stops() {
		s.commitNow(context.Background(), CommitWait)
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), CommitWait)
	defer cancel()
	s.commitNow(ctx, directWait)
	word := "before"
	if marked <= max(a.claim.InitialOffset(), 0) { // nothing was handled
		place, ok := a.chosen()
		if !ok {
			return
		}
		word, marked = "begin at", place.Offset
	}
	if err := s.confirm(ctx, a, marked); err != nil {
		s.g.noteUnsafe(fmt.Errorf("%w: %s/%d %s %d: %w", ErrNotCommitted, a.Topic, a.Partition, word,
			marked, err))
	}
}

// commitLoop commits on a timer and on request, until the session is closed.
func (s *ActiveSession) commitLoop() {
	defer close(s.done)
	tick := time.NewTicker(s.g.cfg.CommitInterval)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			s.Commit()
			for _, a := range s.Assignments() {
				s.g.reportProgress(s.sess.Context(), a, false)
			}
		case answer := <-s.flush:
			// Assignments usually end together: one commit serves all requests so far.
			answers := append(s.requests(), answer)
			s.Commit()
			for _, a := range answers {
				close(a)
			}
		case <-s.stop:
			s.Commit()
			s.g.health.settle()
			return
		}
	}
}

func (s *ActiveSession) requests() (answers []chan struct{}) {
	for {
		select {
		case a := <-s.flush:
			answers = append(answers, a)
		default:
			return answers
		}
	}
}

// Commit marks every assignment that is not lost, and commits, as the session does by itself.
// Commit may block for as long as [Session].Commit.
func (s *ActiveSession) Commit() {
	if s.g.endOf(s.sess.Context()) != nil {
		return
	}
	moved := 0
	s.mu.Lock()
	for a := range s.assigned {
		if a.lost() == nil && s.mark(a) {
			moved++
		}
	}
	s.mu.Unlock()
	s.g.health.begin(moved)
	began := time.Now()
	s.sess.Commit() // sends nothing without a new mark since the last successful commit
	s.g.health.end(time.Since(began))
}

// commitNow asks for a commit and waits, until ctx ends. Without the commit, events handled since
// the last one are delivered again, and the store recognises the duplicates.
func (s *ActiveSession) commitNow(ctx context.Context, wait time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	answer := make(chan struct{})
	select {
	case s.flush <- answer:
	case <-s.done:
		return
	case <-ctx.Done():
		return
	}
	select {
	case <-answer:
	case <-s.done:
	case <-ctx.Done():
	}
}

// close ends the committer, and reports the partitions that ended with the session.
func (s *ActiveSession) close(cause error) {
	close(s.stop)
	timer := time.NewTimer(CommitWait)
	defer timer.Stop()
	select {
	case <-s.done:
	case <-timer.C: // a commit hangs; Group.Wait waits for it
		s.g.log.Warn("last commit takes long, not waiting for it")
	}
	s.mu.Lock()
	ended := s.ended
	for p := range s.announced { // given back before they began
		ended[p.Topic] = append(ended[p.Topic], p.Partition)
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

// Announce reports partitions that are assigned and begin soon. [Group.Begin] reports those that
// the session begins with.
func (s *ActiveSession) Announce(claims map[string][]int32) {
	s.mu.Lock()
	for topic, ids := range claims {
		for _, id := range ids {
			s.announced[TopicPartition{topic, id}] = true
		}
	}
	s.mu.Unlock()
	s.g.reportRebalance(s.sess, observe.Assigned, claims, nil)
}

// Assignments returns the current assignments of the session.
func (s *ActiveSession) Assignments() (all []*Assignment) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for a := range s.assigned {
		all = append(all, a)
	}
	return all
}

// unfinished reports whether an assignment of the session has not ended, or has not committed.
func (s *ActiveSession) unfinished() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.assigned) > 0 || len(s.ending) > 0
}
