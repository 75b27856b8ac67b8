package runner

import (
	"context"
	"sync"
	"time"

	"github.com/idem-go/idem/dedup"
)

// RecordProgress records the progress of all assignments now, as the session does every 10 s.
func (s *ActiveSession) RecordProgress() {
	if s.recorder != nil {
		s.recorder.record(s.progress())
	}
}

// progress returns the position of each assignment, as of the last commit.
func (s *ActiveSession) progress() (all []dedup.Progress) {
	type position struct {
		*Assignment
		next  int64
		known bool
	}
	var positions []position
	var questions []EndQuestion
	for _, a := range s.Assignments() {
		s.mu.Lock()
		next := a.marked
		s.mu.Unlock()
		known := next >= 0
		if !known {
			next = a.times.begin(func() int64 { return a.beginning(s.g.Hooks.Oldest) })
		}
		positions = append(positions, position{a, next, known})
		if next >= 0 && a.lane.Pending() == 0 {
			questions = append(questions, a.question(next))
		}
	}
	s.askCommitted()
	if s.ends != nil {
		s.ends.Ask(questions, s.stop)
	}
	for _, p := range positions {
		all = append(all, p.Assignment.progress(p.next, p.known))
	}
	return all
}

// askCommitted asks for the committed offsets of assignments that began without one. After an error
// the next round asks again.
func (s *ActiveSession) askCommitted() {
	if s.g.Hooks.Committed == nil {
		return
	}
	partitions := make(map[string][]int32)
	var asked []*Assignment
	for _, a := range s.Assignments() {
		if a.unsafe.Load() {
			partitions[a.Topic] = append(partitions[a.Topic], a.Partition)
			asked = append(asked, a)
		}
	}
	if len(asked) == 0 {
		return
	}
	ctx, end := untilClosed(EndsWait, s.stop)
	defer end()
	committed, err := s.g.Hooks.Committed(ctx, partitions)
	if err != nil {
		return
	}
	for _, a := range asked {
		if _, ok := committed[a.TopicPartition]; ok {
			a.unsafe.Store(false)
		}
	}
}

// untilClosed returns a context that ends after a time, when stop is closed, or with end. end waits
// for the goroutine of the context.
func untilClosed(wait time.Duration, stop <-chan struct{}) (ctx context.Context, end func()) {
	ctx, cancel := context.WithTimeout(context.Background(), wait)
	var stopping sync.WaitGroup
	stopping.Go(func() {
		select {
		case <-stop:
			cancel()
		case <-ctx.Done():
		}
	})
	return ctx, func() {
		cancel()
		stopping.Wait()
	}
}
