package replay

import (
	"context"
	"time"
)

// Progress is the state of a run.
type Progress struct {
	// Done and Total count offsets. Offsets without a record count as done with the next record.
	Done, Total int64
	// Partitions is the number of partitions with records, and PartitionsDone those at their end.
	Partitions, PartitionsDone int
	Counts                     Counts
	// Elapsed is the time since the begin of the run.
	Elapsed time.Duration
	// Rate is the number of offsets per second, of the last 10 s or so.
	Rate float64
	// Left is the remaining time at that rate. Negative: unknown.
	Left time.Duration
	// Over is set in the last call.
	Over bool
}

// speed computes a rate from the last samples.
type speed struct{ samples []speedSample }

type speedSample struct {
	at   time.Duration
	done int64
}

// speedWindow is the time over which a rate is computed.
const speedWindow = 10 * time.Second

// add takes a sample and returns the rate.
func (s *speed) add(at time.Duration, done int64) (rate float64) {
	for len(s.samples) > 1 && at-s.samples[1].at >= speedWindow {
		s.samples = append(s.samples[:0], s.samples[1:]...)
	}
	s.samples = append(s.samples, speedSample{at, done})
	first := s.samples[0]
	if at <= first.at {
		return 0
	}
	return float64(done-first.done) / (at - first.at).Seconds()
}

// maxLeft bounds an estimate, because a duration is limited.
const maxLeft = 1000 * 24 * time.Hour

// remaining returns the time for the records that are left, or -1 if it is unknown.
func remaining(done, total int64, rate float64) time.Duration {
	switch left := float64(max(total-done, 0)); {
	case left == 0:
		return 0
	case rate <= 0:
		return -1
	case left/rate >= maxLeft.Seconds():
		return maxLeft
	default:
		return time.Duration(left / rate * float64(time.Second))
	}
}

// reportEvery is the pause between two calls of a progress function.
const reportEvery = 250 * time.Millisecond

// report calls progress until ctx ends, and once more then.
func report(ctx context.Context, snapshot func() Progress, progress func(Progress)) {
	var s speed
	one := func(over bool) {
		p := snapshot()
		p.Over, p.Rate = over, s.add(p.Elapsed, p.Done)
		p.Left = remaining(p.Done, p.Total, p.Rate)
		progress(p)
	}
	tick := time.NewTicker(reportEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			one(false)
		case <-ctx.Done():
			one(true)
			return
		}
	}
}
