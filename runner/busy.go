package runner

import (
	"context"
	"sync"
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/observe"
)

// busyNotes observes the processor, and keeps the partitions with an event that another worker
// handled a moment ago. A worker that waits for such an event asks the store again at least every
// second.
type busyNotes struct {
	mu   sync.Mutex
	last map[TopicPartition]time.Time // by the partition of the record, also for a copy in a retry topic
}

// busyMoment is how long a note counts.
const busyMoment = 5 * time.Second

// ObserveClaim notes events that another worker handles.
func (b *busyNotes) ObserveClaim(_ context.Context, e observe.ClaimEvent) {
	if e.Verdict != dedup.Busy {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.last == nil {
		b.last = make(map[TopicPartition]time.Time)
	}
	b.last[TopicPartition{e.Message.Topic, e.Message.Partition}] = time.Now()
}

// recently reports whether an event of the partition was busy. The record of a copy may lie in any
// partition of its source topic.
func (b *busyNotes) recently(topic string, id int32, group string) bool {
	source, isCopy := SourceOf(topic, group)
	b.mu.Lock()
	defer b.mu.Unlock()
	for p, at := range b.last {
		same := p.Topic == topic && p.Partition == id || isCopy && p.Topic == source
		if same && time.Since(at) < busyMoment {
			return true
		}
	}
	return false
}
