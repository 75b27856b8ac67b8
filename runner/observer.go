package runner

import (
	"github.com/idem-go/idem/internal/observers"
	"github.com/idem-go/idem/observe"
)

// ownObservers are the observers of partitions and topics, by interface.
type ownObservers struct {
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
func sortObservers(list []observe.Observer) (own ownObservers, others []observe.Observer) {
	for _, o := range list {
		before := own.count()
		own.Rebalance = observers.Pick(own.Rebalance, o)
		own.Commit = observers.Pick(own.Commit, o)
		own.Gap = observers.Pick(own.Gap, o)
		own.Stall = observers.Pick(own.Stall, o)
		own.Progress = observers.Pick(own.Progress, o)
		own.Topic = observers.Pick(own.Topic, o)
		own.Silence = observers.Pick(own.Silence, o)
		if own.count() == before || new(observers.Processor).Add(o) {
			others = append(others, o)
		}
	}
	return own, others
}

func (s *ownObservers) count() int {
	return len(s.Rebalance) + len(s.Commit) + len(s.Gap) + len(s.Stall) + len(s.Progress) +
		len(s.Topic) + len(s.Silence)
}
