package memstore

import (
	"bytes"
	"time"

	"github.com/idem-go/idem/dedup"
)

// topic is a topic in a scope. Queues of all partitions share it.
type topic struct{ scope, name string }

func topicOf(l dedup.DeferredPartition) topic { return topic{l.Scope, l.Topic} }

// queues are those of one topic. Every event is in one queue and in keys.
type queues struct {
	byName map[string]*queue // no queue is empty
	keys   map[dedup.Key]*deferred
}

// unknown returns how many of events are not deferred, each once.
func (l *queues) unknown(events []dedup.Deferred) int {
	unknown := make(map[dedup.Key]struct{})
	for i := range events {
		if l.keys[events[i].Key] == nil {
			unknown[events[i].Key] = struct{}{}
		}
	}
	return len(unknown)
}

type queue struct {
	partition int32 // of the last Defer
	events    []*deferred
	delayed   time.Time // not before this, even if the head is due; zero: not delayed
}

// due returns when the head may run.
func (q *queue) due() time.Time {
	if head := q.events[0].due; head.After(q.delayed) {
		return head
	}
	return q.delayed
}

// deferred is an event that waits until due. Its Wait is not used.
type deferred struct {
	dedup.Deferred
	due  time.Time
	turn uint64 // order among those that are due at the same time
}

// view returns a copy of the event for the caller.
func (p *deferred) view(now time.Time) dedup.Deferred {
	v := p.Deferred
	v.Wait, v.Data = p.due.Sub(now), bytes.Clone(p.Data)
	return v
}
