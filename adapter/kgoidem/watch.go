package kgoidem

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/observe"
	"github.com/idem-go/idem/runner"
)

// watchStalls looks for partitions that do not move. Commits have another goroutine, because a
// hanging commit must not hide a stall.
func (m *member) watchStalls(stop <-chan struct{}) {
	after := m.r.cfg.StallTimeout
	tick := time.NewTicker(min(time.Second, max(after/5, 10*time.Millisecond)))
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			for _, a := range m.list() {
				m.checkStall(a, after)
			}
		case <-stop:
			return
		}
	}
}

// checkStall reports a partition that rests too long, and acts on it if the policy says so.
func (m *member) checkStall(a *assignment, after time.Duration) {
	now := time.Now()
	since, waiting := a.lane.Stalled()
	rested := now.Sub(since)
	stalls := waiting && rested > after
	excused := m.r.excused(a.partition)
	policy := m.r.cfg.WhenStalled
	m.mu.Lock()
	changed := stalls != a.stalls
	a.stalls = stalls
	if excused {
		a.excused = now
	}
	stuck := stalls && now.Sub(a.excused) > after && !a.stuck && policy != runner.ReportStall
	a.stuck = a.stuck || stuck
	m.mu.Unlock()
	if changed {
		m.reportStall(a, rested, !stalls)
	}
	if !stuck {
		return
	}
	err := fmt.Errorf("%w: %s/%d has not moved for %s", runner.ErrStalled, a.Topic, a.Partition,
		rested.Round(time.Second))
	m.r.log.Error("giving up a partition that does not move", "topic", a.Topic, "partition", a.Partition,
		"policy", policy.String())
	if policy == runner.ExitOnStall {
		m.r.fail(err)
		m.leave(err)
		return
	}
	m.leave(&comeBack{err})
}

// excused reports whether a partition may rest for a reason that is no stall.
func (r *Runner) excused(p partition) bool {
	if r.cfg.WhenStalled == runner.ReportStall {
		return false
	}
	status := r.proc.Status()
	return len(status.Down)+len(status.OpenBreakers) > 0 || r.busy.recently(p, r.cfg.Group)
}

// busyNotes knows the partitions whose event another worker handled a moment ago. It observes the
// processor.
type busyNotes struct {
	mu   sync.Mutex
	last map[partition]time.Time // by the partition of the record, also for a copy in a retry topic
}

// busyMoment is how long a note counts. A worker that waits for such an event asks the store again
// at least every second.
const busyMoment = 5 * time.Second

// ObserveClaim notes events that another worker handles.
func (b *busyNotes) ObserveClaim(_ context.Context, e observe.ClaimEvent) {
	if e.Verdict != dedup.Busy {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.last == nil {
		b.last = make(map[partition]time.Time)
	}
	b.last[partition{Topic: e.Message.Topic, Partition: e.Message.Partition}] = time.Now()
}

// recently reports whether an event of the partition was busy. The record of a copy may lie in any
// partition of its source topic.
func (b *busyNotes) recently(of partition, group string) bool {
	source, isCopy := runner.SourceOf(of.Topic, group)
	b.mu.Lock()
	defer b.mu.Unlock()
	for p, at := range b.last {
		if (p == of || isCopy && p.Topic == source) && time.Since(at) < busyMoment {
			return true
		}
	}
	return false
}

// errSilent is why a membership ended.
var errSilent = errors.New("a partition went silent")

// silence is what is known about a partition that lags behind the log and does not move.
type silence struct {
	since time.Time // zero: it does not lag
	seen  int64     // the next offset to fetch
	end   int64     // the end of the log at the last look
}

// watchSilence finds partitions with records that do not arrive (K-15): the fetching has died inside
// the client, while heartbeats and all other partitions continue. A partition that stays silent at
// the same offset in the next membership is only logged: another membership would not help.
func (m *member) watchSilence(stop <-chan struct{}) {
	after := m.r.cfg.SilenceTimeout
	if after < 0 {
		return
	}
	tick := time.NewTicker(max(after/4, 50*time.Millisecond))
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			m.lookForSilence(after)
		case <-stop:
			return
		}
	}
}

func (m *member) lookForSilence(after time.Duration) {
	var active []*assignment
	for _, a := range m.list() {
		if _, paused := a.fetched(); !paused && a.ctx.Err() == nil {
			active = append(active, a)
		}
	}
	ends := m.ends(active, m.r.offsets.Ends)
	for _, a := range active {
		end, ok := ends[a.partition]
		if !ok {
			continue
		}
		seen, _ := a.fetched()
		m.mu.Lock()
		a.silent = a.silent.look(time.Now(), max(seen, a.begin.offset), end)
		s := a.silent
		m.mu.Unlock()
		if !s.since.IsZero() && time.Since(s.since) >= after {
			m.endSilence(a, s)
		}
	}
}

// look returns the silence after another look.
func (s silence) look(now time.Time, seen, end int64) silence {
	switch {
	case end <= seen:
		return silence{end: end, seen: seen}
	case s.since.IsZero() || s.seen != seen:
		return silence{since: now, seen: seen, end: end}
	}
	s.end = end
	return s
}

func (m *member) endSilence(a *assignment, s silence) {
	if m.r.silentBefore(a.partition, s.seen) {
		return
	}
	e := observe.SilenceEvent{Group: m.r.cfg.Group, Topic: a.Topic, Partition: a.Partition, Seen: s.seen,
		For: time.Since(s.since)}
	m.r.log.Error("no records of a partition arrive although the log has some, "+
		"joining the group anew", "topic", e.Topic, "partition", e.Partition, "seen", e.Seen,
		"for", e.For.Round(time.Second))
	for _, o := range m.r.obs.Silence {
		o.ObserveSilence(context.Background(), e)
	}
	m.leave(&comeBack{fmt.Errorf("%w: %s/%d", errSilent, a.Topic, a.Partition)})
}

// silentBefore notes where a partition was silent, and reports whether it was there before.
func (r *Runner) silentBefore(p partition, seen int64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.silent == nil {
		r.silent = make(map[partition]int64)
	}
	was, ok := r.silent[p]
	r.silent[p] = seen
	return ok && was == seen
}

// reportRebalance reports assigned, revoked or lost partitions.
func (m *member) reportRebalance(kind observe.RebalanceKind, partitions map[string][]int32, cause error) {
	_, generation := m.cl.GroupMetadata()
	attrs := []any{"partitions", partitions, "generation", generation}
	if cause != nil {
		attrs = append(attrs, "cause", cause)
	}
	if kind == observe.Lost {
		m.r.log.Warn("partitions lost", attrs...)
	} else {
		m.r.log.Info("partitions "+kind.String(), attrs...)
	}
	for _, o := range m.r.obs.Rebalance {
		o.ObserveRebalance(context.WithoutCancel(m.ctx), observe.RebalanceEvent{
			Group: m.r.cfg.Group, Kind: kind, Partitions: partitions,
			Generation: generation, Cause: cause,
		})
	}
}

// reportStall reports the begin or the end of a stall.
func (m *member) reportStall(a *assignment, rested time.Duration, over bool) {
	attrs := []any{"topic", a.Topic, "partition", a.Partition}
	if over {
		m.r.log.Info("partition moves again, or is given back", attrs...)
	} else {
		m.r.log.Warn("partition does not move",
			append(attrs, "for", rested.Round(time.Second), "pending", a.pending())...)
	}
	for _, o := range m.r.obs.Stall {
		o.ObservePartitionStall(context.Background(), observe.PartitionStallEvent{
			Group: m.r.cfg.Group, Topic: a.Topic, Partition: a.Partition, For: rested, Over: over,
		})
	}
}

// failing logs each change between success and failure of recording progress.
type failing struct {
	mu  sync.Mutex
	now bool
}

func (f *failing) note(log *slog.Logger, text func(error) string, err error) {
	f.mu.Lock()
	changed := f.now != (err != nil)
	f.now = err != nil
	f.mu.Unlock()
	switch {
	case changed && err != nil:
		log.Warn("progress cannot be recorded, the store keeps all records meanwhile",
			"error", text(err))
	case changed:
		log.Info("progress is recorded again")
	}
}
