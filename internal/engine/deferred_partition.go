package engine

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/idem-go/idem/dedup"
)

// deferredPartitions are what waits, by partition.
type deferredPartitions struct {
	version atomic.Uint64 // grows when a queue begins, or is found
	mu      sync.Mutex
	byID    map[deferredKey]*deferredPartition
}

// deferredKey identifies a deferred partition: handlers of one scope may have stores of their own.
type deferredKey struct {
	dedup.DeferredPartition
	access *storeAccess
}

// deferredPartition is what waits of one partition.
type deferredPartition struct {
	all      *deferredPartitions
	id       dedup.DeferredPartition
	deferrer dedup.Deferrer

	tableMu sync.Mutex // held over a change of the table, so that a queue does not end while somebody joins it

	mu     sync.Mutex
	loaded bool
	queues map[string]struct{} // what waits by Kafka key; what is not in the table may still be here, not the reverse
	wake   chan struct{}
}

// begin forgets what was known of a partition.
func (d *deferredPartitions) begin(topic string, partition int32) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for id, part := range d.byID {
		if id.Topic == topic && id.Partition == partition {
			part.mu.Lock()
			part.loaded = false
			part.mu.Unlock()
		}
	}
}

func (d *deferredPartitions) of(at deferredKey) *deferredPartition {
	d.mu.Lock()
	defer d.mu.Unlock()
	part := d.byID[at]
	if part == nil {
		part = &deferredPartition{all: d, id: at.DeferredPartition, deferrer: at.access.store.(dedup.Deferrer), wake: make(chan struct{}, 1)}
		if d.byID == nil {
			d.byID = make(map[deferredKey]*deferredPartition)
		}
		d.byID[at] = part
	}
	return part
}

// load asks once what waits.
func (d *deferredPartition) load(ctx context.Context) error {
	d.tableMu.Lock()
	defer d.tableMu.Unlock()
	if d.isLoaded() {
		return nil
	}
	const page = 1000
	queues := make(map[string]struct{})
	for after := ""; ; {
		found, err := d.deferrer.Queues(ctx, d.id, after, page)
		if err != nil {
			return err
		}
		for _, q := range found {
			queues[q.Name] = struct{}{}
			after = q.Name
		}
		if len(found) < page {
			break
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.queues, d.loaded = queues, true
	d.all.version.Add(1)
	return nil
}

func (d *deferredPartition) isLoaded() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.loaded
}

// signal lets the table be looked at.
func (d *deferredPartition) signal() {
	select {
	case d.wake <- struct{}{}:
	default:
	}
}

func (d *deferredPartition) has(queue string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	_, ok := d.queues[queue]
	return ok
}

// knows reports whether a queue waits, or that it is not known what does.
func (d *deferredPartition) knows(queue string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	_, ok := d.queues[queue]
	return ok || !d.loaded
}

func (d *deferredPartition) set(queue string, waits bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if waits {
		if d.queues == nil {
			d.queues = make(map[string]struct{})
		}
		d.queues[queue] = struct{}{}
		d.all.version.Add(1)
	} else {
		delete(d.queues, queue)
	}
}

// refresh looks for a queue that another owner of the partition may have begun.
func (d *deferredPartition) refresh(ctx context.Context, queue string) error {
	d.tableMu.Lock()
	defer d.tableMu.Unlock()
	err := within(ctx, txSlack, func(ctx context.Context) error {
		first, err := d.deferrer.First(ctx, d.id, queue, 1)
		if len(first) > 0 {
			d.set(queue, true)
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("%w: look for deferred events: %w", dedup.ErrUnavailable, err)
	}
	return nil
}
