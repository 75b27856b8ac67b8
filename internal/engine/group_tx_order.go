package engine

import "github.com/idem-go/idem/dedup"

// This file keeps the order of a Kafka key in a transaction of many events (rule 4).

// behindException reports whether a fresh event is behind one of its Kafka key that is neither fresh
// nor a duplicate. That event may stop the consumer, or wait in a queue that must be known first. No
// event may overtake it (rule 4).
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
