package kgoidem

import (
	"context"
	"slices"
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/observe"
)

// A store forgets in consumed time (rule 8), so the runner records its progress there. A membership
// has a goroutine for that beside the one that commits, because a slow store must not delay a
// commit.

const (
	// progressInterval is how often progress is recorded.
	progressInterval = 10 * time.Second
	// progressWait bounds one record, and so the delay of the end of an assignment.
	progressWait = 3 * time.Second
	// endsWait bounds how long progress waits for the leaders.
	endsWait = 2 * time.Second
)

// records reports whether a store records progress.
func (r *Runner) records() bool {
	return slices.ContainsFunc(r.proc.Stores(), func(store dedup.Store) bool {
		_, ok := store.(dedup.ProgressRecorder)
		return ok
	})
}

// recordLoop records the progress of all assignments.
func (m *member) recordLoop(stop <-chan struct{}) {
	if !m.r.records() {
		return
	}
	tick := time.NewTicker(progressInterval)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			m.recordNow(m.list(), true)
		case <-stop:
			return
		}
	}
}

// recordLast records the progress of assignments that end. Their partitions have a new owner soon,
// which will record more.
func (m *member) recordLast(list []*assignment) {
	if len(list) > 0 && m.r.records() {
		m.recordNow(list, false)
	}
}

// recordNow records the position of each assignment, as of the last commit. With ask, the leaders
// are asked for the ends of the logs: a partition is caught up if no record, visible or not, lies
// behind its committed offset.
func (m *member) recordNow(list []*assignment, ask bool) {
	var ends map[partition]int64
	if ask {
		ends = m.ends(list, m.r.offsets.Newest)
	}
	var progress []dedup.Progress
	for _, a := range list {
		m.mu.Lock()
		confirmed := a.confirmed
		m.mu.Unlock()
		end := int64(-1)
		if at, ok := ends[a.partition]; ok {
			end = at
		}
		progress = append(progress, a.progress(confirmed, end))
	}
	if len(progress) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), progressWait)
	defer cancel()
	m.r.progress.note(m.r.log, m.r.cfg.Text, m.r.proc.RecordProgress(ctx, progress))
}

// ends returns the ends of the logs of the assignments that have nothing to do. Without an answer
// the result lacks them.
func (m *member) ends(
	list []*assignment, ask func(context.Context, map[string][]int32) (map[partition]int64, error),
) map[partition]int64 {
	idle := make(map[string][]int32)
	for _, a := range list {
		if a.pending() == 0 {
			idle[a.Topic] = append(idle[a.Topic], a.Partition)
		}
	}
	if len(idle) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(m.ctx, endsWait)
	defer cancel()
	ends, err := ask(ctx, idle)
	if err != nil {
		return nil
	}
	return ends
}

// reportProgress reports the position of an assignment to the observers, and nothing after the last
// report.
func (m *member) reportProgress(a *assignment, last bool) {
	if len(m.r.obs.Progress) == 0 {
		return
	}
	m.mu.Lock()
	over := a.reported
	a.reported = a.reported || last
	end := a.silent.end
	m.mu.Unlock()
	if over {
		return
	}
	next, ok := a.watermark()
	if !ok {
		next = -1
	}
	position, _ := a.fetched()
	for _, o := range m.r.obs.Progress {
		o.ObserveProgress(context.Background(), observe.ProgressEvent{
			Group: m.r.cfg.Group, Topic: a.Topic, Partition: a.Partition, Last: last,
			Next: next, Fetched: position, Begin: a.begin.offset,
			Pending: a.pending(), HighWater: max(end, position, a.begin.offset),
		})
	}
}
