package consumer

import (
	"github.com/idem-go/idem"
)

// observers are the hooks of this package, sorted once.
type observers struct {
	rebalance []idem.RebalanceObserver
	commit    []idem.CommitObserver
	gap       []idem.GapObserver
	stall     []idem.PartitionStallObserver
	progress  []idem.ProgressObserver
	topic     []idem.TopicObserver
	silence   []idem.SilenceObserver
}

// sortObservers returns our hooks and the observers that package idem should have: those that implement one of its
// interfaces, and those that implement none at all, for it to complain about.
func sortObservers(list []idem.Observer) (ours observers, others []idem.Observer) {
	for _, o := range list {
		before := ours.count()
		ours.rebalance = pick(ours.rebalance, o)
		ours.commit = pick(ours.commit, o)
		ours.gap = pick(ours.gap, o)
		ours.stall = pick(ours.stall, o)
		ours.progress = pick(ours.progress, o)
		ours.topic = pick(ours.topic, o)
		ours.silence = pick(ours.silence, o)
		if ours.count() == before || isIdemObserver(o) {
			others = append(others, o)
		}
	}
	return ours, others
}

func pick[O any](list []O, o idem.Observer) []O {
	if hook, ok := o.(O); ok {
		return append(list, hook)
	}
	return list
}

func (s *observers) count() int {
	return len(s.rebalance) + len(s.commit) + len(s.gap) + len(s.stall) + len(s.progress) + len(s.topic) + len(s.silence)
}

func isIdemObserver(o idem.Observer) bool {
	switch o.(type) {
	case idem.HandledObserver, idem.DuplicateObserver, idem.DeadLetterObserver, idem.RetryObserver,
		idem.SkippedObserver, idem.ClaimObserver, idem.StoreObserver, idem.StallObserver, idem.ClaimGroupObserver, idem.CallObserver,
		idem.StoreCallObserver, idem.SettledObserver, idem.LostObserver:
		return true
	}
	return false
}
