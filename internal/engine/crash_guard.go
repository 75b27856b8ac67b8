package engine

import (
	"sync"

	"github.com/idem-go/idem/idemtype"
)

// crashGuard knows the newly assigned partitions, and how many of their events are still watched.
type crashGuard struct {
	mu   sync.Mutex
	left map[guardKey]int
}

type guardKey struct {
	topic     string
	partition int32
}

// guardedEvents is the number of successes after which a partition is not watched any longer.
const guardedEvents = 16

func (p *crashGuard) begin(topic string, partition int32) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.left, guardKey{topic, partition})
}

// count subtracts n successes and returns the number of events that are still to be watched.
func (p *crashGuard) count(m *idemtype.Message, n int) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.left == nil {
		p.left = make(map[guardKey]int)
	}
	key := guardKey{m.Topic, m.Partition}
	now, ok := p.left[key]
	if !ok {
		now = guardedEvents
	}
	now = max(now-n, 0)
	p.left[key] = now
	return now
}
