package consumer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/IBM/sarama"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/observe"
	"github.com/idem-go/idem/runner"
)

// groupState is shared by the sessions of a GroupHandler: settings, processor, reports, and the
// reasons why sessions end.
type groupState struct {
	cfg    Config
	proc   *idem.Processor
	log    *slog.Logger
	obs    runner.Observers
	health commitHealth
	busy   *busyNotes
	reasons

	// ownsContext is set if the context of Consume ends only with the cause idem.ErrStopping. A
	// session that was merely cancelled has then lost all partitions in a cooperative rebalance:
	// sarama gives no other sign.
	ownsContext bool
	// stopping, if not nil, reports whether that context has ended. sarama watches the context too,
	// and may cancel the session before the cause arrives there.
	stopping func() bool
	// oldest, if not nil, returns the first offset in the log.
	oldest func(topic string, partition int32) (int64, error)
	// ends, if not nil, finds the ends of logs. A session does not change the asker.
	ends asker
	// direct, if not nil, commits beside sarama.
	direct *directCommits
}

// reasons are the reasons why sessions end. Safe for concurrent use.
type reasons struct {
	mu        sync.Mutex
	lastCause error // why the last session ended
	failure   error // why nothing more can be consumed
	abandoned error // handlers that were left behind at the last ends of assignments
	ending    error // why this member ends the session itself
	unsafe    error // offsets that could not be committed at the stop
}

// Err returns why consuming cannot continue, or nil.
func (r *reasons) Err() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.failure
}

// fail notes why consuming cannot continue.
func (r *reasons) fail(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.failure == nil {
		r.failure = err
	}
}

// noteSession notes the begin of a session, with a nil cause, or the end.
func (r *reasons) noteSession(cause error, begins bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lastCause = cause
	if begins {
		r.abandoned = nil
	}
}

// noteAbandoned notes handlers that still run after the end of an assignment.
func (r *reasons) noteAbandoned(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.abandoned = errors.Join(r.abandoned, err)
}

// noteUnsafe notes offsets that could not be committed.
func (r *reasons) noteUnsafe(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.unsafe = errors.Join(r.unsafe, err)
}

// noteEnding notes why this member ends the session itself.
func (r *reasons) noteEnding(cause error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ending == nil {
		r.ending = cause
	}
}

// takeEnding returns, once, why this member ended the last session itself.
func (r *reasons) takeEnding() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	err := r.ending
	r.ending = nil
	return err
}

// cause returns why the last session ended.
func (r *reasons) cause() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.lastCause
}

// atStop returns the handlers left behind, and the offsets that could not be committed.
func (r *reasons) atStop() (abandoned, unsafe error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.abandoned, r.unsafe
}

func (g *groupState) stops() bool { return g.stopping != nil && g.stopping() }

// endOf returns how the assignments of a session with this context end: nil in order, an error that
// matches idem.ErrPartitionLost if another member may have them already.
func (g *groupState) endOf(ctx context.Context) error {
	cause := context.Cause(ctx)
	switch {
	case cause == nil: // only this assignment ends: by a cooperative revoke, or a failing fetch
		return nil
	case classOf(cause).Lost(),
		g.ownsContext && errors.Is(cause, context.Canceled) &&
			!errors.Is(cause, idem.ErrStopping) && !g.stops():
		return fmt.Errorf("%w: %w", idem.ErrPartitionLost, cause)
	}
	return nil
}

// excused reports whether a partition may rest for a reason that is no stall.
func (g *groupState) excused(p partition) bool {
	if g.cfg.WhenStalled == ReportStall {
		return false
	}
	status := g.proc.Status()
	return len(status.Down)+len(status.OpenBreakers) > 0 || g.busy.recently(p.topic, p.id, g.cfg.Group)
}

// reportRebalance reports assigned, revoked or lost partitions.
func (g *groupState) reportRebalance(
	sess sarama.ConsumerGroupSession, kind observe.RebalanceKind, partitions map[string][]int32,
	cause error,
) {
	own := make(map[string][]int32, len(partitions))
	for topic, ids := range partitions {
		own[topic] = slices.Sorted(slices.Values(ids))
	}
	attrs := []any{"partitions", own, "generation", sess.GenerationID()}
	if cause != nil && !errors.Is(cause, context.Canceled) {
		attrs = append(attrs, "cause", cause)
	}
	if kind == observe.Lost {
		g.log.Warn("partitions lost", attrs...)
	} else {
		g.log.Info("partitions "+kind.String(), attrs...)
	}
	for _, o := range g.obs.Rebalance {
		o.ObserveRebalance(sess.Context(), observe.RebalanceEvent{
			Group: g.cfg.Group, Kind: kind, Partitions: own,
			Generation: sess.GenerationID(), Cause: cause,
		})
	}
}

// reportStall reports the begin or the end of a stall.
func (g *groupState) reportStall(a *assignment, rested time.Duration, over bool) {
	attrs := []any{"topic", a.topic, "partition", a.id}
	if over {
		g.log.Info("partition moves again, or is given back", attrs...)
	} else {
		g.log.Warn("partition does not move",
			append(attrs, "for", rested.Round(time.Second), "pending", a.lane.Pending())...)
	}
	for _, o := range g.obs.Stall {
		o.ObservePartitionStall(context.Background(), observe.PartitionStallEvent{
			Group: g.cfg.Group, Topic: a.topic, Partition: a.id, For: rested, Over: over,
		})
	}
}

// reportProgress reports the position of an assignment.
func (g *groupState) reportProgress(ctx context.Context, a *assignment, last bool) {
	if len(g.obs.Progress) == 0 {
		return
	}
	a.telling.Lock()
	defer a.telling.Unlock()
	if a.last {
		return
	}
	a.last = last
	next, ok := a.lane.Watermark()
	if !ok {
		next = -1
	}
	begin := a.claim.InitialOffset()
	if begin < 0 {
		begin = a.times.begin(nil)
	}
	for _, o := range g.obs.Progress {
		o.ObserveProgress(ctx, observe.ProgressEvent{
			Group: g.cfg.Group, Topic: a.topic, Partition: a.id, Last: last,
			Next: next, Fetched: a.times.fetched.Load(), Begin: begin,
			Pending: a.lane.Pending(), HighWater: a.claim.HighWaterMarkOffset(),
		})
	}
}
