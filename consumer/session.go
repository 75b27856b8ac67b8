package consumer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/IBM/sarama"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/lane"
)

// session is one session of the group with its claims. It owns the goroutine that commits: handlers never do, as a commit
// can take as long as a request may, or a whole rebalance (K-06).
type session struct {
	h     *GroupHandler
	sess  sarama.ConsumerGroupSession
	flush chan chan struct{} // asks for a commit now; the answer is closing the channel
	stop  chan struct{}
	done  chan struct{}

	recorder *recorder // nil if no store wants to know
	ends     asker     // nil if nothing is known of the logs

	direct chan struct{} // has room for the one claim that commits directly, see assure

	mu        sync.Mutex
	claims    map[*claimed]struct{}
	ending    map[partition]struct{} // of claims that have ended and may not be committed yet
	marks     map[partition]int64    // last mark of each partition that is not given back yet
	safe      map[partition]int64    // what a broker has confirmed
	announced map[partition]bool     // told as assigned in Setup and not begun yet
	ended     map[string][]int32     // when the whole session ends, told together
}

// partition names one.
type partition struct {
	topic string
	id    int32
}

// claimed is one assignment of one partition. It is dropped as a whole when the assignment ends, so nothing that is
// late can mark for its successor (K-39).
type claimed struct {
	partition
	claim  sarama.ConsumerGroupClaim
	lane   *lane.Partition
	times  *timeline
	tail   *tail
	ctx    context.Context // ends with the session, or before it when we give the partition up
	giveUp context.CancelCauseFunc

	marked  int64     // last marked watermark; guarded by session.mu, like what follows
	stalls  bool      // was told
	excused time.Time // when the partition last rested for a reason that is no stall
	stuck   bool      // it is given up for a stall

	telling sync.Mutex // of progress: nothing is told after the last
	last    bool
}

func newSession(h *GroupHandler, sess sarama.ConsumerGroupSession) *session {
	s := &session{
		h: h, sess: sess, flush: make(chan chan struct{}), stop: make(chan struct{}), done: make(chan struct{}),
		claims: make(map[*claimed]struct{}), announced: make(map[partition]bool), ended: make(map[string][]int32),
		direct: make(chan struct{}, 1), ending: make(map[partition]struct{}),
		marks: make(map[partition]int64), safe: make(map[partition]int64),
	}
	s.recorder, s.ends = newRecorder(s), h.ends
	return s
}

// begin registers a claim.
func (s *session) begin(claim sarama.ConsumerGroupClaim, l *lane.Partition) *claimed {
	c := &claimed{partition: partition{claim.Topic(), claim.Partition()}, claim: claim, lane: l, times: newTimeline(), tail: newTail(), marked: -1}
	c.ctx, c.giveUp = context.WithCancelCause(s.sess.Context())
	s.mu.Lock()
	s.claims[c] = struct{}{}
	known := s.announced[c.partition]
	delete(s.announced, c.partition)
	s.mu.Unlock()
	if !known { // came by a cooperative rebalance
		s.h.rebalance(s.sess, idem.Assigned, map[string][]int32{c.topic: {c.id}}, nil)
	}
	return c
}

// end gives a claim back: the lane first, then the last offset, then the claim.
func (s *session) end(c *claimed, lost error) error {
	ctx, cancel := context.WithTimeout(context.Background(), s.h.cfg.endWait())
	defer cancel()
	failed := c.lane.Err() // before Close, which is an end in order
	left := c.lane.Close(ctx, s.closing(c, lost))
	if failed == nil {
		failed = c.lane.Err()
	}

	s.mu.Lock()
	if lost == nil {
		s.mark(c)
	}
	delete(s.claims, c)
	s.ending[c.partition] = struct{}{}
	alone := s.sess.Context().Err() == nil
	if !alone {
		s.ended[c.topic] = append(s.ended[c.topic], c.id)
	}
	stalled, marked := c.stalls, c.marked
	s.mu.Unlock()

	if lost == nil {
		s.commitAtEnd(c, marked)
		s.recorder.part(c, marked)
	}
	s.mu.Lock()
	delete(s.ending, c.partition)
	delete(s.marks, c.partition) // another member may commit from here on
	s.mu.Unlock()
	if stalled {
		s.h.tellStall(c, 0, true)
	}
	s.tellProgress(c, true)
	if alone {
		s.h.rebalance(s.sess, idem.Revoked, map[string][]int32{c.topic: {c.id}}, nil)
	}
	switch {
	case failed != nil:
		s.h.log.Error("partition cannot go on", "topic", c.topic, "partition", c.id, "error", s.h.cfg.errorText(failed))
		s.h.fail(failed)
	case left != nil:
		s.h.log.Error("handler left behind, partition given back", "topic", c.topic, "partition", c.id, "error", s.h.cfg.errorText(left))
		s.h.leftBehind(left)
	}
	return failed
}

// closing is why the handlers of a claim must end. One that is stuck gets no grace, although what was settled before it is
// ours to commit.
func (s *session) closing(c *claimed, lost error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if lost == nil && c.stuck {
		return fmt.Errorf("%w: %w", idem.ErrPartitionLost, ErrStalled)
	}
	return lost
}

// mark gives sarama the watermark of a claim that is ours, and reports whether it moved. s.mu is held. Markers of transactions behind
// the watermark count as consumed: Kafka may delete them, and a committed offset before them would look like a gap then (K-17).
func (s *session) mark(c *claimed) bool {
	next, ok := c.lane.Watermark()
	if !ok {
		next = c.claim.InitialOffset()
	}
	beyond := c.tail.beyond(next)
	if !ok && beyond == next {
		return false
	}
	if next = beyond; next == c.marked {
		return false
	}
	c.marked = next
	s.marks[c.partition] = next
	s.sess.MarkOffset(c.topic, c.id, next, "")
	return true
}

// commitLoop commits on a timer and when asked, until the session is closed.
func (s *session) commitLoop() {
	defer close(s.done)
	tick := time.NewTicker(s.h.cfg.CommitInterval)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			s.commit()
			s.look()
		case answer := <-s.flush:
			// Claims end together as a rule: one commit serves all that ask by now.
			answers := append(s.asking(), answer)
			s.commit()
			for _, a := range answers {
				close(a)
			}
		case <-s.stop:
			s.commit()
			s.h.health.settle(s.h)
			return
		}
	}
}

func (s *session) asking() (answers []chan struct{}) {
	for {
		select {
		case a := <-s.flush:
			answers = append(answers, a)
		default:
			return answers
		}
	}
}

// commit marks every claim that is still ours and commits.
func (s *session) commit() {
	if s.h.endOf(s.sess.Context()) != nil {
		return
	}
	moved := 0
	s.mu.Lock()
	for c := range s.claims {
		if s.mark(c) {
			moved++
		}
	}
	s.mu.Unlock()
	s.h.health.begin(s.h, moved)
	began := time.Now()
	s.sess.Commit() // sends nothing if nothing was marked since the last commit that succeeded
	s.h.health.end(time.Since(began))
}

// commitNow asks for a commit and waits for it. Without it, what was done since the last one is delivered again, and known.
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

// close ends the committer, and tells what became of the partitions.
func (s *session) close(cause error) {
	close(s.stop)
	timer := time.NewTimer(commitWait)
	defer timer.Stop()
	select {
	case <-s.done:
	case <-timer.C: // it hangs in a commit; GroupHandler.Close waits for it
		s.h.log.Warn("last commit takes long, not waiting for it")
	}
	s.mu.Lock()
	ended := s.ended
	for c := range s.announced { // given back before they began
		ended[c.topic] = append(ended[c.topic], c.id)
	}
	s.mu.Unlock()
	kind := idem.Revoked
	if s.h.endOf(s.sess.Context()) != nil {
		kind = idem.Lost
	}
	if len(ended) > 0 {
		s.h.rebalance(s.sess, kind, ended, cause)
	}
}

// announce tells of the partitions that a session begins with.
func (s *session) announce(claims map[string][]int32) {
	s.mu.Lock()
	for topic, ids := range claims {
		for _, id := range ids {
			s.announced[partition{topic, id}] = true
		}
	}
	s.mu.Unlock()
	s.h.rebalance(s.sess, idem.Assigned, claims, nil)
}

func (s *session) list() (all []*claimed) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.claims {
		all = append(all, c)
	}
	return all
}

// look tells of progress.
func (s *session) look() {
	for _, c := range s.list() {
		s.tellProgress(c, false)
	}
}

// tellProgress tells how far a claim is.
func (s *session) tellProgress(c *claimed, last bool) {
	if len(s.h.obs.progress) == 0 {
		return
	}
	c.telling.Lock()
	defer c.telling.Unlock()
	if c.last {
		return
	}
	c.last = last
	next, ok := c.lane.Watermark()
	if !ok {
		next = -1
	}
	begin := c.claim.InitialOffset()
	if begin < 0 {
		begin = c.times.begin(nil)
	}
	for _, o := range s.h.obs.progress {
		o.ObserveProgress(s.sess.Context(), idem.ProgressEvent{
			Group: s.h.cfg.Group, Topic: c.topic, Partition: c.id, Next: next, Fetched: c.times.fetched.Load(), Begin: begin,
			Pending: c.lane.Pending(), HighWater: c.claim.HighWaterMarkOffset(), Last: last,
		})
	}
}

// rebalance tells of partitions that came or went.
func (h *GroupHandler) rebalance(sess sarama.ConsumerGroupSession, kind idem.RebalanceKind, partitions map[string][]int32, cause error) {
	own := make(map[string][]int32, len(partitions))
	for topic, ids := range partitions {
		own[topic] = slices.Sorted(slices.Values(ids))
	}
	attrs := []any{"partitions", own, "generation", sess.GenerationID()}
	if cause != nil && !errors.Is(cause, context.Canceled) {
		attrs = append(attrs, "cause", cause)
	}
	if kind == idem.Lost {
		h.log.Warn("partitions lost", attrs...)
	} else {
		h.log.Info("partitions "+kind.String(), attrs...)
	}
	for _, o := range h.obs.rebalance {
		o.ObserveRebalance(sess.Context(), idem.RebalanceEvent{Group: h.cfg.Group, Kind: kind, Partitions: own, Generation: sess.GenerationID(), Cause: cause})
	}
}

func (h *GroupHandler) tellStall(c *claimed, rested time.Duration, over bool) {
	attrs := []any{"topic", c.topic, "partition", c.id}
	if over {
		h.log.Info("partition moves again, or is given back", attrs...)
	} else {
		h.log.Warn("partition does not move", append(attrs, "for", rested.Round(time.Second), "pending", c.lane.Pending())...)
	}
	for _, o := range h.obs.stall {
		o.ObservePartitionStall(context.Background(), idem.PartitionStallEvent{Group: h.cfg.Group, Topic: c.topic, Partition: c.id, For: rested, Over: over})
	}
}
