package consumer

import "github.com/idem-go/idem/observe"

// observers are the observers of partitions and topics, by interface.
type observers struct {
	rebalance []observe.RebalanceObserver
	commit    []observe.CommitObserver
	gap       []observe.GapObserver
	stall     []observe.PartitionStallObserver
	progress  []observe.ProgressObserver
	topic     []observe.TopicObserver
	silence   []observe.SilenceObserver
}

// sortObservers returns the observers of the consumer, and those of the processor. The processor
// also gets observers that implement no interface at all, and refuses such observers.
func sortObservers(list []observe.Observer) (own observers, others []observe.Observer) {
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

func pick[O any](list []O, o observe.Observer) []O {
	if hook, ok := o.(O); ok {
		return append(list, hook)
	}
	return list
}

func (s *observers) count() int {
	return len(s.rebalance) + len(s.commit) + len(s.gap) + len(s.stall) + len(s.progress) +
		len(s.topic) + len(s.silence)
}

func observesProcessor(o observe.Observer) bool {
	switch o.(type) {
	case observe.HandledObserver, observe.DuplicateObserver, observe.DeadLetterObserver, observe.RetryObserver,
		observe.SkippedObserver, observe.ClaimObserver, observe.StoreObserver, observe.StallObserver,
		observe.ClaimGroupObserver,
		observe.CallObserver, observe.StoreCallObserver, observe.SettledObserver, observe.LostObserver:
		return true
	}
	return false
}
