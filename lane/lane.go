package lane

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/dedup"
)

// ErrClosed is returned by [Partition.Push] after Close, and after the partition has ended by
// itself: see [Partition.Err]. The message was not accepted.
var ErrClosed = errors.New("lane is closed")

// handler is the part of [idem.Processor] that a lane calls.
type handler interface {
	Settle(ctx context.Context, msgs []*idem.Message, progress func(settled int)) error
	OrderKey(m *idem.Message) string
}

// noter receives the progress of a partition.
type noter interface {
	NoteProgress(ctx context.Context, progress dedup.Progress)
}

// deferredRunner runs the events of the partition that wait in the store, beside the lanes.
type deferredRunner interface {
	RunsDeferred() bool
	RunDeferred(ctx context.Context, topic string, partition int32) error
}

// Partition handles the messages of one assignment of one partition. Create one with [New], and
// call Close at the end. All methods are safe for concurrent use. The order of the partition is the
// order of the Push calls.
type Partition struct {
	topic     string
	partition int32
	handler   handler
	noter     noter // nil: progress is not reported
	noted     sync.Once
	noting    sync.Mutex // held by the lane that reports progress
	toNote    atomic.Bool
	queue     *queue
	advanced  chan struct{}

	ctx  context.Context // ends when no new work may begin
	stop context.CancelCauseFunc
	done chan struct{} // closed by the last lane

	mu    sync.Mutex
	lanes int   // lanes that have not ended
	err   error // why the partition ended: the first error other than a stop, else the stop
	left  error // set if a handler was abandoned
}

// New starts the lanes of a partition, and runs the deferred events of the partition when they are
// due ([idem.KeyOrdered]). Call [idem.Processor.Assigned] before New.
//
// With [idem.Config].BusyWait = [idem.Forever], a lane that waits for a busy event also holds the
// other events of the same batch. With a finite BusyWait, the lane keeps that one event for another
// attempt and returns the others to the queue.
func New(p *idem.Processor, topic string, partition int32, cfg Config) *Partition {
	return start(p, topic, partition, cfg)
}

func start(h handler, topic string, partition int32, cfg Config) *Partition {
	cfg = cfg.withDefaults()
	return startWith(h, topic, partition, cfg, newTracker(cfg.Queue))
}

func startWith(h handler, topic string, partition int32, cfg Config, marks watermark) *Partition {
	ctx, stop := context.WithCancelCause(context.Background())
	p := &Partition{
		topic: topic, partition: partition, handler: h, queue: newQueue(cfg, marks, h.OrderKey),
		advanced: make(chan struct{}, 1), ctx: ctx, stop: stop, done: make(chan struct{}),
		lanes: cfg.Lanes,
	}
	if n, ok := h.(noter); ok && !cfg.OwnProgress {
		p.noter = n
	}
	if t, ok := h.(deferredRunner); ok && t.RunsDeferred() {
		p.lanes++
		go p.runDeferred(t)
	}
	for range cfg.Lanes {
		go func() {
			w := &worker{p: p}
			p.ended(w.serve())
		}()
	}
	return p
}

// runDeferred counts as a lane: it ends when the partition ends.
func (p *Partition) runDeferred(t deferredRunner) {
	err := t.RunDeferred(p.ctx, p.topic, p.partition)
	<-p.ctx.Done()
	p.ended(errors.Join(context.Cause(p.ctx), err))
}

// Push adds the next message, and blocks while the queue is full, until there is room, ctx ends or
// the partition ends. The error is the cause of ctx, or [ErrClosed]; the message was then not
// accepted. The caller must not change m after Push.
func (p *Partition) Push(ctx context.Context, m *idem.Message) error {
	for woken := false; ; {
		if ctx.Err() != nil {
			if woken {
				signal(p.queue.room) // for another Push that waits
			}
			return context.Cause(ctx)
		}
		if p.ctx.Err() != nil {
			return ErrClosed
		}
		if p.queue.put(m) {
			return nil
		}
		select {
		case <-p.queue.room:
			woken = true
		case <-ctx.Done():
		case <-p.ctx.Done():
		}
	}
}

// Offer is Push without waiting. The result is false if the queue is full or the partition is
// closed.
func (p *Partition) Offer(m *idem.Message) bool { return p.queue.put(m) }

// Room receives a value when Offer may succeed again after a refusal. Use one reader only.
func (p *Partition) Room() <-chan struct{} { return p.queue.room }

// SetQueueBytes changes [Config].QueueBytes, for a program that divides a bound among partitions
// that come and go. Messages that the queue holds already stay. A bound below 1 byte leaves room
// for one message. Safe for concurrent use.
func (p *Partition) SetQueueBytes(n int) { p.queue.setBytes(n) }

// Watermark returns the offset to commit: the one after the last delivery of the settled prefix. ok
// is false until the first delivery is settled. The watermark never moves back, and stands still
// after Close.
func (p *Partition) Watermark() (next int64, ok bool) { return p.queue.watermark() }

// Progress returns the watermark together with the timestamp of the last record below it, for
// [idem.Processor.RecordProgress]. CaughtUp is false: set it if the partition has been read to its
// end and Pending is zero. ok is that of Watermark.
func (p *Partition) Progress() (progress dedup.Progress, ok bool) { return p.progress(false) }

func (p *Partition) progress(begin bool) (progress dedup.Progress, ok bool) {
	next, at, ok := p.queue.progress(begin)
	return dedup.Progress{Topic: p.topic, Partition: p.partition, Next: next, Time: at}, ok
}

// Advanced receives a value after the watermark moved. One value may stand for several moves. Use
// one reader only.
func (p *Partition) Advanced() <-chan struct{} { return p.advanced }

// Pending counts the accepted messages that the watermark does not cover. With several lanes some
// of them may be settled.
func (p *Partition) Pending() int {
	n, _ := p.queue.pending()
	return n
}

// Stalled returns the time since when the oldest unsettled delivery has been the oldest. ok is
// false while all deliveries are settled. Progress of other lanes does not reset the time, because
// those lanes stop at [Config].Queue without a commit. The caller decides how long is too long: an
// event that is busy elsewhere, or a store that is down, stalls the partition as well.
func (p *Partition) Stalled() (since time.Time, ok bool) {
	n, since := p.queue.pending()
	if n == 0 {
		return time.Time{}, false
	}
	return since, true
}

// Done is closed when all lanes have ended, after Close or by themselves.
func (p *Partition) Done() <-chan struct{} { return p.done }

// Err returns why the partition ended by itself, such as [idem.ErrNoProducer] or
// [idem.ErrAbandoned] for too many handlers that hang. The error is that of the first lane that
// could not continue, and the cause that stops the other lanes. Err returns nil while a lane runs
// and after an orderly end. Messages that the watermark does not cover must be delivered again.
func (p *Partition) Err() error {
	select {
	case <-p.done:
	default:
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if isStop(p.err) {
		return nil
	}
	return p.err
}

// Close ends the assignment. No new work begins. Running handlers get the processor's grace period
// if cause is nil, and no grace if cause matches [idem.ErrPartitionLost]. Close waits for the lanes
// until ctx ends; then the watermark is final.
//
// Close returns nil if all running work has ended, and an error that matches [idem.ErrAbandoned] if
// a handler was left running. Queued messages are dropped without being settled, and Kafka delivers
// them again. A second Close has no effect.
func (p *Partition) Close(ctx context.Context, cause error) error {
	p.halt(cmp.Or(cause, idem.ErrStopping))
	var err error
	select {
	case <-p.done:
		p.mu.Lock()
		err = p.left
		p.mu.Unlock()
	case <-ctx.Done():
		err = fmt.Errorf("%w: %s/%d: worker is still running: %w", idem.ErrAbandoned, p.topic,
			p.partition,
			context.Cause(ctx))
	}
	p.queue.seal()
	return err
}

// halt stops new work.
func (p *Partition) halt(cause error) {
	p.stop(cause)
	p.queue.close()
}

// ended records why a lane has ended, and ends the other lanes, so that no Push waits for room for
// ever.
func (p *Partition) ended(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err == nil || isStop(p.err) && !isStop(err) {
		p.err = err
	}
	if p.left == nil && errors.Is(err, idem.ErrAbandoned) {
		p.left = err
	}
	p.halt(err)
	if p.lanes--; p.lanes == 0 {
		close(p.done)
	}
}
