package replay

import (
	"errors"
	"fmt"
	"slices"
	"time"
)

// Window chooses the records of a replay. Create one with [Between] or [Offsets]; the zero value is
// refused.
type Window struct {
	timed    bool
	from, to time.Time
	ranges   []Range
}

// Range is a part of a partition: the offsets from First, and before End. A negative End is the end
// of the log when the plan is made. If that end lies before First, the plan has no record of the
// partition and a warning, see [PartitionPlan].Beyond.
type Range struct {
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	First     int64  `json:"first"`
	End       int64  `json:"end"`
}

// Between chooses the records from one time, and before another, in all partitions of all topics. A
// zero from is the beginning of the log, a zero to the end of the log when the plan is made.
//
// As with Kafka's own tools, the window of a partition begins at the first record of from or later.
// It ends before the first record of to or later. If the times of a topic are not in order, some
// records of the time lie outside, and some records inside have another time.
func Between(from, to time.Time) Window { return Window{timed: true, from: from, to: to} }

// Offsets chooses ranges of offsets. A partition without a range is not replayed.
func Offsets(ranges ...Range) Window { return Window{ranges: slices.Clone(ranges)} }

// validate returns the mistakes, for a group that consumes topics.
func (w Window) validate(topics []string) (problems []error) {
	if w.timed {
		if !w.from.IsZero() && !w.to.IsZero() && !w.from.Before(w.to) {
			problems = append(problems, fmt.Errorf("Window ends at %s, not after its begin %s",
				w.to, w.from))
		}
		return problems
	}
	if len(w.ranges) == 0 {
		return []error{errors.New("Window is not set: use Between or Offsets")}
	}
	seen := make(map[place]bool)
	for _, r := range w.ranges {
		p := place{r.Topic, r.Partition}
		switch {
		case !slices.Contains(topics, r.Topic):
			problems = append(problems,
				fmt.Errorf("Window has the topic %q, which the group does not consume", r.Topic))
		case r.Partition < 0 || r.First < 0 || r.End >= 0 && r.End <= r.First:
			problems = append(problems, fmt.Errorf("Window has an empty or invalid range: %s/%d, %d to %d",
				r.Topic, r.Partition, r.First, r.End))
		case seen[p]:
			problems = append(problems, fmt.Errorf("Window has %s twice", p))
		}
		seen[p] = true
	}
	return problems
}

// rangeOf returns the range of a partition, and false without one.
func (w Window) rangeOf(p place) (Range, bool) {
	i := slices.IndexFunc(w.ranges, func(r Range) bool { return p == place{r.Topic, r.Partition} })
	if i < 0 {
		return Range{}, false
	}
	return w.ranges[i], true
}

// place is a partition.
type place struct {
	topic string
	id    int32
}

// String returns topic/partition.
func (p place) String() string { return fmt.Sprintf("%s/%d", p.topic, p.id) }

// bounds are the offsets of a partition when a plan is made.
type bounds struct {
	oldest int64 // the first offset in the log
	stable int64 // all transactions before it have ended
	newest int64 // the offset of the next record to be written
	from   int64 // of a window of time: its first record; negative: no record is that young
	to     int64 // of a window of time: the first record behind it; negative: none
}

// planRange plans a window of offsets.
func planRange(r Range, b bounds) PartitionPlan {
	want := r.End
	if want < 0 {
		want = max(b.newest, r.First)
	}
	p := PartitionPlan{Topic: r.Topic, Partition: r.Partition}
	p.Deleted = max(min(b.oldest, want)-r.First, 0)
	p.Beyond = max(want-max(b.newest, r.First), 0)
	if r.End < 0 {
		p.Beyond = max(r.First-b.newest, 0)
	}
	p.Open = max(min(want, b.newest)-max(b.stable, r.First), 0)
	p.First = max(r.First, b.oldest)
	p.End = max(min(want, b.stable), p.First)
	return p
}

// planTime plans a window of time. The times of deleted records are not known. So each log without
// its beginning may have lost records of a window that begins before the first record.
func planTime(w Window, at place, b bounds) PartitionPlan {
	p := PartitionPlan{Topic: at.topic, Partition: at.id}
	first, want := b.oldest, b.newest
	if !w.from.IsZero() {
		if first = b.from; first < 0 {
			first = b.newest
		}
	}
	if !w.to.IsZero() && b.to >= 0 {
		want = b.to
	}
	p.MaybeDeleted = b.oldest > 0 && first <= b.oldest
	p.First = max(first, b.oldest)
	p.Open = max(want-max(b.stable, p.First), 0)
	p.End = max(min(want, b.stable), p.First)
	return p
}

// milli returns a time for a question to Kafka, which knows milliseconds: the first one not before
// the time. Negative numbers have another meaning there.
func milli(t time.Time) int64 {
	ms := t.UnixMilli()
	if time.UnixMilli(ms).Before(t) {
		ms++
	}
	return max(ms, 0)
}
