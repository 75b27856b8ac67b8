package engine

import "github.com/idem-go/idem/dedup"

// This file keeps the order of a Kafka key in a transaction of many events (rule 4).

// behindDeferred reports whether an event waits for a later attempt in the table. The events behind
// such an event must not run before their queue is known (rule 4).
func (tg *txGroup) behindDeferred() bool {
	for i, t := range tg.group.sorted {
		if tg.answers[i].Verdict == dedup.Rescheduled && t.route.Mode == KeyOrdered {
			return true
		}
	}
	return false
}

// behindException reports whether a fresh event is behind one of its Kafka key that is neither fresh
// nor a duplicate. That event may stop the consumer, and no event may overtake it (rule 4).
func (tg *txGroup) behindException() bool {
	var exceptions map[string]bool
	for _, t := range tg.group.tasks {
		switch {
		case t.message.Key == nil:
		case t.answer.Verdict == dedup.Fresh:
			if exceptions[string(t.message.Key)] {
				return true
			}
		case !t.isDuplicate():
			if exceptions == nil {
				exceptions = make(map[string]bool)
			}
			exceptions[string(t.message.Key)] = true
		}
	}
	return false
}
