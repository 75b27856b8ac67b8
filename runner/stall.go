package runner

import (
	"fmt"
	"time"
)

// stallWatch looks for partitions of a session that do not move.
type stallWatch struct {
	s      *ActiveSession
	leave  func(cause error) // ends the sessions of the group
	policy StallPolicy
	after  time.Duration
}

// run looks until the session is closed. Commits have another goroutine, because a hanging commit
// must not hide a stall.
func (w *stallWatch) run() {
	tick := time.NewTicker(min(time.Second, max(w.after/5, 10*time.Millisecond)))
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			for _, a := range w.s.Assignments() {
				w.check(a)
			}
		case <-w.s.stop:
			return
		}
	}
}

// check reports a partition that rests too long, and acts on it if the policy says so.
func (w *stallWatch) check(a *Assignment) {
	now := time.Now()
	since, waiting := a.lane.Stalled()
	rested := now.Sub(since)
	stalls := waiting && rested > w.after
	excused := w.s.g.excused(a.TopicPartition)
	w.s.mu.Lock()
	changed := stalls != a.stalls
	a.stalls = stalls
	if excused {
		a.excused = now
	}
	stuck := stalls && now.Sub(a.excused) > w.after && !a.stuck && w.policy != ReportStall
	a.stuck = a.stuck || stuck
	w.s.mu.Unlock()
	if changed {
		w.s.g.reportStall(a, rested, !stalls)
	}
	if stuck {
		w.end(a, rested)
	}
}

// end gives up a partition. The whole session ends, because not all clients can give back one
// partition.
func (w *stallWatch) end(a *Assignment, rested time.Duration) {
	err := fmt.Errorf("%w: %s/%d has not moved for %s", ErrStalled, a.Topic, a.Partition,
		rested.Round(time.Second))
	w.s.g.log.Error("giving up a partition that does not move", "topic", a.Topic, "partition", a.Partition,
		"policy", w.policy.String())
	if w.policy == ExitOnStall {
		w.s.g.Fail(err)
	}
	w.leave(err)
}
