package ops

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/idem-go/idem/internal/words"
	"github.com/idem-go/idem/observe"
)

// maxNotices limits the kept notices to the last ones.
const maxNotices = 64

// notice is information for a person. Repetitions are one notice with a count.
type notice struct {
	At, First time.Time
	Times     int
	Level     string // info, ok, warn or bad
	Title     string
	Text      string

	kind, subject string
}

// noticeBoard has the last notices, oldest first.
type noticeBoard struct {
	mu  sync.Mutex
	all []notice
}

func (b *noticeBoard) add(n notice) {
	n.At = time.Now()
	n.Title = clip(n.Title, maxErrorText)
	n.First, n.Times = n.At, 1
	n.Text, n.subject = clip(n.Text, maxErrorText), clip(n.subject, maxErrorText)
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := range b.all {
		if same := &b.all[i]; same.kind == n.kind && same.subject == n.subject &&
			same.Title == n.Title {
			n.First, n.Times = same.First, same.Times+1
			b.all = slices.Delete(b.all, i, i+1)
			break
		}
	}
	if len(b.all) == maxNotices {
		b.all = slices.Delete(b.all, 0, 1)
	}
	b.all = append(b.all, n)
}

// list returns the last n notices, newest first.
func (b *noticeBoard) list(n int) []notice {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := slices.Clone(b.all[max(len(b.all)-n, 0):])
	slices.Reverse(all)
	return all
}

var (
	_ observe.CommitObserver  = (*Monitor)(nil)
	_ observe.GapObserver     = (*Monitor)(nil)
	_ observe.TopicObserver   = (*Monitor)(nil)
	_ observe.SilenceObserver = (*Monitor)(nil)

	_ observe.ConflictObserver = (*Monitor)(nil)
)

func (m *Monitor) noteRebalance(e observe.RebalanceEvent, n int) {
	one := notice{
		kind: "rebalance", subject: e.Kind.String(), Level: "info",
		Text: fmt.Sprintf("generation %d", e.Generation),
	}
	if e.Cause != nil {
		one.Text += ": " + errorText(e.Cause)
	}
	switch e.Kind {
	case observe.Assigned:
		one.Title = words.Count(n, "partition") + " assigned"
	case observe.Revoked:
		one.Title = words.Count(n, "partition") + " given back in order"
	case observe.Lost:
		one.Title, one.Level = words.Count(n, "partition")+" lost", "warn"
		one.Text += "; without a commit: events under way are delivered again"
	}
	m.notices.add(one)
}

func (m *Monitor) noteStall(e observe.PartitionStallEvent) {
	where := fmt.Sprintf("%s/%d", e.Topic, e.Partition)
	if e.Over {
		m.notices.add(
			notice{
				kind: "stall", subject: where, Level: "ok",
				Title: "Partition " + where + " moves again",
			},
		)
		return
	}
	m.notices.add(notice{
		kind: "stall", subject: where, Level: "bad", Title: "Partition " + where + " rests",
		Text: "it has had something to do for " + e.For.Round(time.Second).
			String() +
			" and does not move",
	})
}

// ObserveCommit remembers commits that failed.
func (m *Monitor) ObserveCommit(_ context.Context, e observe.CommitEvent) {
	if e.Err != nil {
		m.notices.add(
			notice{
				kind: "commit", Level: "warn", Title: "Commit of offsets failed",
				Text: errorText(e.Err),
			},
		)
	}
}

// ObserveGap remembers records that are gone, and cuts of a log.
func (m *Monitor) ObserveGap(_ context.Context, e observe.GapEvent) {
	where := fmt.Sprintf("%s/%d", e.Topic, e.Partition)
	one := notice{
		kind: "gap", subject: where, Level: "bad", Title: "Records are gone that were not consumed",
		Text: fmt.Sprintf(
			"%s: to go on with %d, and the log has %d to %d; policy: %s", where, e.Committed,
			e.Oldest, e.Newest, e.Policy,
		),
	}
	if e.Cut {
		one.Title = "A log was cut"
		one.Text = fmt.Sprintf(
			"%s: cut at %d, below the next record %d, and other records may have taken the offsets; "+
				"policy: %s", where, e.Newest, e.Committed, e.Policy,
		)
	}
	m.notices.add(one)
}

// ObserveTopic remembers topics that were deleted or must not be read.
func (m *Monitor) ObserveTopic(_ context.Context, e observe.TopicEvent) {
	if e.Missing {
		m.notices.add(
			notice{
				kind: "topic", subject: e.Topic, Level: "bad",
				Title: "Topic " + clip(e.Topic, 249) + " is missing",
				Text:  "it must not be read, or was deleted",
			},
		)
		return
	}
	m.notices.add(
		notice{
			kind: "topic", subject: e.Topic, Level: "ok",
			Title: "Topic " + clip(e.Topic, 249) + " is no longer missing",
			Text:  "it can be read again, or its consumer has ended",
		},
	)
}

// ObserveSilence remembers partitions that went silent.
func (m *Monitor) ObserveSilence(_ context.Context, e observe.SilenceEvent) {
	m.notices.add(notice{
		kind: "silence", subject: fmt.Sprintf("%s/%d", e.Topic, e.Partition), Level: "warn",
		Title: "The group was joined anew",
		Text: fmt.Sprintf(
			"no records of %s/%d arrived for %s although there were some", e.Topic, e.Partition,
			e.For.Round(time.Second),
		),
	})
}

// ObserveStore remembers outages.
func (m *Monitor) ObserveStore(_ context.Context, e observe.StoreEvent) {
	name := strings.ToUpper(e.Name[:min(1, len(e.Name))]) + e.Name[min(1, len(e.Name)):]
	if e.Down {
		m.notices.add(
			notice{
				kind: "store", subject: e.Name, Level: "bad", Title: name + " is away",
				Text: errorText(e.Err),
			},
		)
		return
	}
	if e.Ended {
		m.notices.add(
			notice{
				kind: "store", subject: e.Name, Level: "ok", Title: name + " is asked no longer",
				Text: "its processor was closed while it was away",
			},
		)
		return
	}
	m.notices.add(notice{
		kind: "store", subject: e.Name, Level: "ok", Title: name + " is back",
		Text: "after " + e.For.Round(time.Millisecond).String(),
	})
}

// ObserveStall remembers handlers that hang, and events that are busy elsewhere for long.
func (m *Monitor) ObserveStall(_ context.Context, e observe.StallEvent) {
	n := notice{
		kind: "hung", subject: e.Key.String(), Level: "bad",
		Title: "A handler goes on although its time is over",
	}
	if e.Busy {
		n.kind, n.Level, n.Title = "busy", "warn", "An event is held elsewhere for long"
	}
	n.Text = fmt.Sprintf(
		"%s %s, for %s", clip(e.Key.Type, 255), clip(e.Key.ID, 255), e.For.Round(time.Second),
	)
	m.notices.add(n)
}

// ObserveLost remembers claims that were lost while their handler ran.
func (m *Monitor) ObserveLost(_ context.Context, e observe.LostEvent) {
	m.notices.add(notice{
		kind: "lost", Level: "warn", Title: "A claim was lost while its handler ran",
		Text: fmt.Sprintf(
			"%s %s: another worker has taken over the claim, the event is claimed again",
			clip(e.Key.Type, 255), clip(e.Key.ID, 255),
		),
	})
}

// ObserveConflict keeps copies with another content, by event type. They are counted among
// duplicates and dead letters already.
func (m *Monitor) ObserveConflict(_ context.Context, e observe.ConflictEvent) {
	o, fate := originOf(e.Message), "it was skipped"
	switch {
	case e.Shadow:
		fate = "it was handled, since nothing is skipped in shadow mode"
	case e.DeadLetter:
		fate = "it was dead-lettered"
	}
	m.notices.add(notice{
		kind: "conflict", subject: e.Key.Type, Level: "warn",
		Title: "A copy differs from the event that has its ID",
		Text: fmt.Sprintf(
			"%s %s at %s/%d offset %d: %s", clip(e.Key.Type, 255), clip(e.Key.ID, 255), o.Topic,
			o.Partition, o.Offset, fate,
		),
	})
}
