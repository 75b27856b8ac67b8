package runner

import "github.com/idem-go/idem/observe"

// observers are the observers of partitions and topics, by interface.
type observers struct {
	Rebalance []observe.RebalanceObserver
	Commit    []observe.CommitObserver
	Gap       []observe.GapObserver
	Stall     []observe.PartitionStallObserver
	Progress  []observe.ProgressObserver
	Topic     []observe.TopicObserver
	Silence   []observe.SilenceObserver
}

// sortObservers returns the observers of the consumer, and those of the processor. The processor
// also gets observers that implement no interface at all, and refuses such observers.
func sortObservers(list []observe.Observer) (own observers, others []observe.Observer) {
	for _, o := range list {
		before := own.count()
		own.Rebalance = pick(own.Rebalance, o)
		own.Commit = pick(own.Commit, o)
		own.Gap = pick(own.Gap, o)
		own.Stall = pick(own.Stall, o)
		own.Progress = pick(own.Progress, o)
		own.Topic = pick(own.Topic, o)
		own.Silence = pick(own.Silence, o)
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
	return len(s.Rebalance) + len(s.Commit) + len(s.Gap) + len(s.Stall) + len(s.Progress) +
		len(s.Topic) + len(s.Silence)
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
