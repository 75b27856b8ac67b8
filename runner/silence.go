package runner

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/idem-go/idem/observe"
)

// ErrSilent ends a session because records of a partition do not arrive. Join the group again with
// new connections.
var ErrSilent = errors.New("a partition went silent")

// SilenceWatch finds partitions with records that do not arrive (K-15). The fetching has ended
// inside the client, while heartbeats and all other partitions continue.
//
// It compares the end of the log, according to the leader, with the end that the fetching has seen.
// That end advances with every answer that has records, visible or not. So aborted records and
// markers are no silence. Records of open transactions are not either: the leader returns the end
// of the visible log.
//
// A client may have seen the end with the last answer, and fetched only a part. So the leader is
// also asked for a visible record at the next offset of a partition that waits for records.
type SilenceWatch struct {
	group     string
	after     time.Duration // SilenceTimeout
	offsets   Offsets
	log       *slog.Logger
	observers []observe.SilenceObserver
	assigned  func() []*Assignment    // the current assignments
	hooks     *Hooks                  // of the group
	leave     func(cause error)       // ends the sessions
	behind    map[*Assignment]lagging // as of the last look
}

// lagging is an assignment that lags behind the log and does not move.
type lagging struct {
	since time.Time
	seen  int64 // the end of the log as the fetching knows it, or the next offset
}

// NewSilenceWatch returns the watch over the assignments of a group. Claims that are no [Flow] are
// not watched.
func NewSilenceWatch(g *Group, offsets Offsets) *SilenceWatch {
	return &SilenceWatch{
		group: g.cfg.Group, after: g.cfg.SilenceTimeout, offsets: offsets, log: g.log,
		observers: g.obs.Silence, assigned: g.Assignments, hooks: &g.Hooks, leave: g.EndSessions,
	}
}

// Run looks for silent partitions until ctx ends, and ends the session when there is one, with
// [ErrSilent].
func (s *SilenceWatch) Run(ctx context.Context) {
	if s.after < 0 {
		return
	}
	for Pause(ctx, max(s.after/4, 50*time.Millisecond)) == nil {
		for a, q := range s.check(ctx) {
			e := observe.SilenceEvent{
				Group: s.group, Topic: a.Topic, Partition: a.Partition,
				Seen: q.seen, For: time.Since(q.since),
			}
			s.log.Error("no records of a partition arrive although the log has some, "+
				"joining the group anew",
				"topic", e.Topic, "partition", e.Partition, "seen", e.Seen,
				"for", e.For.Round(time.Second))
			for _, o := range s.observers {
				o.ObserveSilence(ctx, e)
			}
			s.leave(fmt.Errorf("%w: %s/%d", ErrSilent, a.Topic, a.Partition))
			s.behind = nil
		}
	}
}

// check returns the assignments that have been silent for too long.
func (s *SilenceWatch) check(ctx context.Context) map[*Assignment]lagging {
	ends := s.logEnds(ctx)
	waiting := s.waiting(ctx, ends)
	still, silent := make(map[*Assignment]lagging), make(map[*Assignment]lagging)
	for a, end := range ends {
		seen := a.claim.HighWaterMarkOffset()
		if end <= seen {
			next, waits := waiting[a]
			if !waits {
				continue
			}
			seen = next
		}
		q, ok := s.behind[a]
		if !ok || q.seen != seen {
			q = lagging{since: time.Now(), seen: seen}
		}
		still[a] = q
		if time.Since(q.since) >= s.after {
			silent[a] = q
		}
	}
	s.behind = still
	return silent
}

// waiting returns the next offsets of assignments that have no pending record although the leader
// has shown a visible one there. The leader is asked unless the assignment is at the end of its
// log.
func (s *SilenceWatch) waiting(ctx context.Context, ends map[*Assignment]int64) map[*Assignment]int64 {
	next := make(map[*Assignment]int64)
	var questions []EndQuestion
	for a, end := range ends {
		if at := a.next(s.hooks.Oldest); a.Pending() == 0 && at >= 0 && at < end {
			next[a] = at
			questions = append(questions, a.question(at))
		}
	}
	if s.hooks.Ends == nil || len(questions) == 0 {
		return nil
	}
	s.hooks.Ends.Ask(questions, ctx.Done())
	for a, at := range next {
		if !a.tail.shows(at) {
			delete(next, a)
		}
	}
	return next
}

// logEnds asks each leader once for the ends of the partitions that are fetched from it and not
// paused. A leader that does not answer is left out: the client reports that and retries
// fetching.
func (s *SilenceWatch) logEnds(ctx context.Context) map[*Assignment]int64 {
	watched := make(map[TopicPartition]*Assignment)
	partitions := make(map[string][]int32)
	for _, a := range s.assigned() {
		f, ok := a.claim.(Flow)
		if !ok || f.IsPaused() || a.ctx.Err() != nil {
			continue
		}
		watched[a.TopicPartition] = a
		partitions[a.Topic] = append(partitions[a.Topic], a.Partition)
	}
	known, err := s.offsets.Ends(ctx, partitions)
	if err != nil {
		return nil
	}
	ends := make(map[*Assignment]int64)
	for p, end := range known {
		ends[watched[p]] = end
	}
	return ends
}
