package consumer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/IBM/sarama"
	"github.com/idem-go/idem/observe"
	"github.com/idem-go/idem/runner"
)

// errSilent is why a membership ended.
var errSilent = errors.New("a partition went silent")

// silenceWatch finds partitions with records that do not arrive (K-15). The fetching has died
// inside the client, while heartbeats and all other partitions continue.
//
// It compares the end of the log, according to the leader, with the end that the fetching has seen.
// That end advances with every answer that has records, visible or not. So aborted records and
// markers are no silence. Records of open transactions are not either: the leader returns the end
// of the visible log.
type silenceWatch struct {
	group     string
	after     time.Duration // SilenceTimeout
	client    sarama.Client
	log       *slog.Logger
	observers []observe.SilenceObserver
	assigned  func() []*assignment    // the current assignments
	leave     func(cause error)       // ends the sessions
	behind    map[*assignment]lagging // as of the last look
}

// lagging is an assignment that lags behind the log and does not move.
type lagging struct {
	since time.Time
	seen  int64 // the end of the log as the fetching knows it
}

// run looks for silent partitions until ctx ends, and ends the session when there is one.
func (s *silenceWatch) run(ctx context.Context) {
	if s.after < 0 {
		return
	}
	for runner.Pause(ctx, max(s.after/4, 50*time.Millisecond)) == nil {
		for a, q := range s.check() {
			e := observe.SilenceEvent{
				Group: s.group, Topic: a.topic, Partition: a.id,
				Seen: q.seen, For: time.Since(q.since),
			}
			s.log.Error("no records of a partition arrive although the log has some, "+
				"joining the group anew",
				"topic", e.Topic, "partition", e.Partition, "seen", e.Seen,
				"for", e.For.Round(time.Second))
			for _, o := range s.observers {
				o.ObserveSilence(ctx, e)
			}
			s.leave(fmt.Errorf("%w: %s/%d", errSilent, a.topic, a.id))
			s.behind = nil
		}
	}
}

// check returns the assignments that have been silent for too long.
func (s *silenceWatch) check() map[*assignment]lagging {
	ends := s.logEnds()
	still, silent := make(map[*assignment]lagging), make(map[*assignment]lagging)
	for a, end := range ends {
		seen := a.claim.HighWaterMarkOffset()
		if end <= seen {
			continue
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

// logEnds asks each leader once for the ends of the partitions that are fetched from it and not
// paused. A broker that does not answer is left out: sarama reports that and retries fetching.
func (s *silenceWatch) logEnds() map[*assignment]int64 {
	watched := make(map[runner.TopicPartition]*assignment)
	partitions := make(map[string][]int32)
	for _, a := range s.assigned() {
		f, ok := a.claim.(flow)
		if !ok || f.IsPaused() || a.ctx.Err() != nil {
			continue
		}
		watched[runner.TopicPartition{Topic: a.topic, Partition: a.id}] = a
		partitions[a.topic] = append(partitions[a.topic], a.id)
	}
	known, _ := logOffsets{s.client}.Ends(context.Background(), partitions)
	ends := make(map[*assignment]int64)
	for p, end := range known {
		ends[watched[p]] = end
	}
	return ends
}
