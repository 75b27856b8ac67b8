package consumer

import (
	"github.com/idem-go/idem"
)

// observers are the observers of partitions and topics, by interface.
type observers struct {
	rebalance []idem.RebalanceObserver
	commit    []idem.CommitObserver
	gap       []idem.GapObserver
	stall     []idem.PartitionStallObserver
	progress  []idem.ProgressObserver
	topic     []idem.TopicObserver
	silence   []idem.SilenceObserver
}

// sortObservers returns the observers of the consumer, and those of the processor. The processor
// also gets observers that implement no interface at all, and refuses such observers.
func sortObservers(list []idem.Observer) (own observers, others []idem.Observer) {
	for _, o := range list {
		before := own.count()
		own.rebalance = pick(own.rebalance, o)
		own.commit = pick(own.commit, o)
		own.gap = pick(own.gap, o)
		own.stall = pick(own.stall, o)
		own.progress = pick(own.progress, o)
		own.topic = pick(own.topic, o)
		own.silence = pick(own.silence, o)
		if own.count() == before || observesProcessor(o) {
			others = append(others, o)
		}
	}
	return own, others
}

func pick[O any](list []O, o idem.Observer) []O {
	if hook, ok := o.(O); ok {
		return append(list, hook)
	}
	return list
}

func (s *observers) count() int {
	return len(s.rebalance) + len(s.commit) + len(s.gap) + len(s.stall) + len(s.progress) +
		len(s.topic) + len(s.silence)
}

func observesProcessor(o idem.Observer) bool {
	switch o.(type) {
	case idem.HandledObserver, idem.DuplicateObserver, idem.DeadLetterObserver, idem.RetryObserver,
		idem.SkippedObserver, idem.ClaimObserver, idem.StoreObserver, idem.StallObserver,
		idem.ClaimGroupObserver,
		idem.CallObserver, idem.StoreCallObserver, idem.SettledObserver, idem.LostObserver:
		return true
	}
	return false
}
