package engine

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/idem-go/idem/dedup"
	"github.com/idem-go/idem/idemtype"
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
	table chan struct{}

	mu     sync.Mutex
	loaded bool
	load   *queueLoad // not nil: some pages of the queues are read
	// by Kafka key; may have a queue that is not in the table, never the reverse
	queues map[string]struct{}
	wake   chan struct{}
}

// queueLoad has the queues of the pages that are read.
type queueLoad struct {
	queues map[string]struct{}
	after  string // the last name; changed while the table is held
}

// begin forgets the queues of a partition, because another worker may have changed them.
func (d *deferredPartitions) begin(topic string, partition int32) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for id, part := range d.byID {
		if id.Topic == topic && id.Partition == partition {
			part.mu.Lock()
			part.loaded, part.load = false, nil
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
			table: make(chan struct{}, 1), wake: make(chan struct{}, 1),
		}
		if d.byID == nil {
			d.byID = make(map[deferredKey]*deferredPartition)
		}
		d.byID[at] = part
	}
	return part
}

// errTableHeld is the reason for the wait of a lane while other lanes have the table.
var errTableHeld = fmt.Errorf(
	"%w: other lanes read or change the deferred events of the partition", idemtype.ErrBusy,
)

// holdTable waits for the table, until the end of ctx or of the budget. It returns the function that
// lets the next one on.
func (d *deferredPartition) holdTable(
	ctx context.Context, budget *waitBudget,
) (free func(), err error) {
	if err := budget.acquireSlot(ctx, d.table, errTableHeld); err != nil {
		return nil, err
	}
	return func() { <-d.table }, nil
}

// queuePage is the number of queues that one call of the store reads.
const queuePage = 1000

// loadPage waits for the table, and reads the next page of the partition's queues. After the last
// page the queues are loaded. A partition may have more queues than can be read in the time of one
// call, so a failed call loses its own page only. All lanes may wait here, so the time of the call
// begins after the wait. began is that moment. It is zero if the store was not asked.
func (d *deferredPartition) loadPage(
	ctx context.Context, budget *waitBudget,
) (began time.Time, err error) {
	free, err := d.holdTable(ctx, budget)
	if err != nil {
		return began, err
	}
	defer free()
	load := d.loading()
	if load == nil {
		return began, nil
	}
	began = time.Now()
	return began, within(context.WithoutCancel(ctx), txSlack, func(ctx context.Context) error {
		return d.readPage(ctx, load)
	})
}

// readPage asks for the next page of a load. The caller holds the table.
func (d *deferredPartition) readPage(ctx context.Context, load *queueLoad) error {
	found, err := d.deferrer.Queues(ctx, d.id, load.after, queuePage)
	if err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.load != load {
		return nil // the partition was assigned anew
	}
	for _, q := range found {
		load.queues[q.Name] = struct{}{}
		load.after = q.Name
	}
	if len(found) < queuePage {
		d.queues, d.loaded, d.load = load.queues, true, nil
		d.all.version.Add(1)
	}
	return nil
}

// loading returns the load under way, or nil if the queues are loaded.
func (d *deferredPartition) loading() *queueLoad {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.loaded && d.load == nil {
		d.load = &queueLoad{queues: make(map[string]struct{})}
	}
	return d.load
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
		if d.load != nil { // the page of the queue may have been read before
			d.load.queues[queue] = struct{}{}
		}
		d.all.version.Add(1)
		return
	}
	delete(d.queues, queue)
	if d.load != nil {
		delete(d.load.queues, queue)
	}
}

// refresh looks for a queue that another owner of the partition may have begun. outage means that
// the store did not answer, and stop that the wait for the table has ended.
func (d *deferredPartition) refresh(
	ctx context.Context, budget *waitBudget, queue string,
) (outage, stop error) {
	free, err := d.holdTable(ctx, budget)
	if err != nil {
		return nil, err
	}
	defer free()
	err = within(ctx, txSlack, func(ctx context.Context) error {
		first, err := d.deferrer.First(ctx, d.id, queue, 1)
		if len(first) > 0 {
			d.set(queue, true)
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("%w: look for deferred events: %w", dedup.ErrUnavailable, err), nil
	}
	return nil, nil
}
