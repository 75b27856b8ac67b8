package engine

import (
	"sync"

	"github.com/idem-go/idem/idemtype"
)

// crashGuard remembers which partitions came lately.
type crashGuard struct {
	mu   sync.Mutex
	left map[guardKey]int
}

type guardKey struct {
	topic     string
	partition int32
}

// guardedEvents is how many events of a partition must succeed before it is trusted again.
const guardedEvents = 16

func (p *crashGuard) begin(topic string, partition int32) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.left, guardKey{topic, partition})
}

// count returns how many events are to be watched still, after taking off n.
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
