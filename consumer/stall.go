package consumer

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/IBM/sarama"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/dedup"
)

// StallPolicy says what happens when a partition has rested for StallTimeout, as its handler hangs (K-13). It is logged and
// told to observers in any case, and [Consumer.Ready] turns red.
//
// The other two policies let the context of the partition's handlers end at once, with a cause that matches
// [idem.ErrPartitionLost]; a handler that goes on is left behind two seconds later, and its event will be met as one whose
// effect may have happened. At most 64 are left behind, then Run ends with [idem.ErrAbandoned] (rule 48). The other
// partitions of the member are given back in order, within the grace.
//
// They leave alone a partition that rests for a reason which no other member and no restart would change: its next event is
// being handled elsewhere (rule 9), a store or the producer is down, a copy is not yet due. What it rested for that counts as
// no rest: it has another StallTimeout from then on. StallTimeout must then be longer than the slowest handler may take.
type StallPolicy uint8

const (
	// ReportStall does nothing more: a person or a probe of readiness has to act.
	ReportStall StallPolicy = iota
	// LeaveGroup leaves the group and joins it again some seconds later, so that the partition moves to another member, or
	// comes back if there is none. With an InstanceID the member is removed, else its partitions would rest until the session
	// times out. With [NewGroupHandler] only the session ends, as the group is not ours to leave.
	LeaveGroup
	// ExitOnStall ends Run with an error that matches [ErrStalled], for the process to be started again.
	ExitOnStall
)

// String names the policy.
func (p StallPolicy) String() string { return enumName(int(p), "report", "leave", "exit") }

// watchEvery is how often the claims of a session are looked at.
func (c Config) watchEvery() time.Duration {
	return min(time.Second, max(c.StallTimeout/5, 10*time.Millisecond))
}

// watch looks for stalls until the session is closed. It has a goroutine of its own: a commit that hangs must not hide one.
func (s *session) watch() {
	tick := time.NewTicker(s.h.cfg.watchEvery())
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			for _, c := range s.list() {
				s.watchClaim(c)
			}
		case <-s.stop:
			return
		}
	}
}

// watchClaim tells of a partition that rests too long, and acts on it if that is the policy.
func (s *session) watchClaim(c *claimed) {
	timeout, now := s.h.cfg.StallTimeout, time.Now()
	since, waiting := c.lane.Stalled()
	rested := now.Sub(since)
	stalls := waiting && rested > timeout
	excused := s.h.excused(c)
	s.mu.Lock()
	changed := stalls != c.stalls
	c.stalls = stalls
	if excused {
		c.excused = now
	}
	stuck := stalls && now.Sub(c.excused) > timeout && !c.stuck && s.h.cfg.WhenStalled != ReportStall
	c.stuck = c.stuck || stuck
	s.mu.Unlock()
	if changed {
		s.h.tellStall(c, rested, !stalls)
	}
	if stuck {
		s.h.actOnStall(c, rested)
	}
}

// actOnStall gives up a partition. With it the session ends, for sarama has no other way.
func (h *GroupHandler) actOnStall(c *claimed, rested time.Duration) {
	err := fmt.Errorf("%w: %s/%d has not moved for %s", ErrStalled, c.topic, c.id, rested.Round(time.Second))
	h.log.Error("giving up a partition that does not move", "topic", c.topic, "partition", c.id, "policy", h.cfg.WhenStalled.String())
	if h.cfg.WhenStalled == ExitOnStall {
		h.fail(err)
	}
	h.endSession(err)
}

// excused reports whether a partition may rest for a reason that is no stall.
func (h *GroupHandler) excused(c *claimed) bool {
	if h.cfg.WhenStalled == ReportStall {
		return false
	}
	return len(h.proc.Status().Down) > 0 || h.busy.recently(c.topic, c.id, h.cfg.Group)
}

// busyNotes knows of which partitions an event was busy elsewhere a moment ago. Who waits for one asks again every second at
// least. It is an observer of the processor.
type busyNotes struct {
	mu   sync.Mutex
	last map[partition]time.Time // by the partition of the record, also for one that came as a copy
}

// busyMoment is how long a note counts.
const busyMoment = 5 * time.Second

// ObserveClaim notes events that are busy.
func (b *busyNotes) ObserveClaim(_ context.Context, e idem.ClaimEvent) {
	if e.Verdict != dedup.Busy {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.last == nil {
		b.last = make(map[partition]time.Time)
	}
	b.last[partition{e.Message.Topic, e.Message.Partition}] = time.Now()
}

// recently reports whether an event of the partition is busy. A copy may be of a record in any partition of its source.
func (b *busyNotes) recently(topic string, id int32, group string) bool {
	source, isCopy := sourceOf(topic, group)
	b.mu.Lock()
	defer b.mu.Unlock()
	for p, at := range b.last {
		same := p.topic == topic && p.id == id || isCopy && p.topic == source
		if same && time.Since(at) < busyMoment {
			return true
		}
	}
	return false
}

// awayFor is how long a member that left for a stall stays away: the others must have seen it at their next heartbeat, and
// have joined, or it would be dealt the same partition again.
func (c *Consumer) awayFor() time.Duration {
	return 3*c.sarama.Consumer.Group.Heartbeat.Interval + time.Second
}

// removeStatic removes a static member, which sarama does not let leave.
func (c *Consumer) removeStatic(client sarama.Client) error {
	admin, err := sarama.NewClusterAdminFromClient(client) // closing it would close the client
	if err != nil {
		return err
	}
	_, err = admin.RemoveMemberFromConsumerGroup(c.cfg.Group, []string{c.cfg.InstanceID})
	return err
}

// comeBack says that a membership ends for a reason of our own and another one follows.
type comeBack struct{ why error }

func (e *comeBack) Error() string { return "leaving the group to come back: " + e.why.Error() }
func (e *comeBack) Unwrap() error { return e.why }

// between is what is done between two memberships. It returns an error if there is to be no other.
func (c *Consumer) between(ctx context.Context, err error) error {
	var again *comeBack
	if !errors.As(err, &again) {
		return err
	}
	if errors.Is(again.why, ErrStalled) {
		return pause(ctx, c.awayFor())
	}
	return nil
}
