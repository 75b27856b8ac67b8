package engine

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/idem-go/idem/dedup"
)

// deferredPartitions has the queues of deferred events, by partition.
type deferredPartitions struct {
	version atomic.Uint64 // grows when a queue begins, or is found
	mu      sync.Mutex
	byID    map[deferredKey]*deferredPartition
}

// deferredKey identifies a deferred partition. Handlers of one scope may have stores of their own.
type deferredKey struct {
	dedup.DeferredPartition
	access *storeAccess
}

// deferredPartition has the queues of one partition.
type deferredPartition struct {
	all      *deferredPartitions
	id       dedup.DeferredPartition
	deferrer dedup.Deferrer

	// held during a change of the table, so that no event joins a queue that ends
	tableMu sync.Mutex

	mu     sync.Mutex
	loaded bool
	// by Kafka key; may have a queue that is not in the table, never the reverse
	queues map[string]struct{}
	wake   chan struct{}
}

// begin forgets the queues of a partition, because another worker may have changed them.
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
		part = &deferredPartition{
			all: d, id: at.DeferredPartition, deferrer: at.access.store.(dedup.Deferrer),
			wake: make(chan struct{}, 1),
		}
		if d.byID == nil {
			d.byID = make(map[deferredKey]*deferredPartition)
		}
		d.byID[at] = part
	}
	return part
}

// load reads the queues of the partition, once.
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

// signal wakes the runner of the partition.
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

// knows reports whether a queue exists, or whether the queues are not loaded.
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
