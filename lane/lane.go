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

// ErrClosed is returned by [Partition.Push] after Close, or after the worker ended by itself: see [Partition.Err].
var ErrClosed = errors.New("lane is closed")

// Config of a [Partition]. The zero value is fit for use.
type Config struct {
	// Lanes is how many events may be handled at a time. With one, the default, all messages are settled in the order of
	// Push, but that a handler which takes batches is called once for several events, at the place of the first: events without a
	// key may be overtaken by that. With more, only those with equal order keys are (see [idem.Processor.OrderKey]), and each lane is a goroutine.
	Lanes int
	// Queue is how many messages from the watermark on may be held, before Push blocks: those that wait, those that are
	// being handled, and those that are settled while an older one is not. It is how far the lanes may go on while one event
	// holds the watermark, and lanes that share few events form small batches. Defaults to 256 for each lane, at least 1,024
	// and at most 16,384; 24 bytes are kept for each, and about 100 more for those that were ever held at a time.
	Queue int
	// QueueBytes bounds what is not settled in bytes of keys, values and headers. A single message beyond it is taken when
	// nothing else is held. Defaults to 64 MiB.
	QueueBytes int
	// Batch is how many messages are given to the processor at a time, at most; nobody waits until there are so many. With
	// several lanes it is also no more than a lane's share of what may be begun, and than what takes about 50 ms. The
	// watermark moves within a batch. Defaults to 512.
	Batch int
	// BatchBytes bounds the same in bytes. A single message beyond it is a batch of its own. Defaults to 4 MiB.
	BatchBytes int
	// OwnProgress says that the caller records progress himself, with [idem.Processor.RecordProgress], as package consumer does. By
	// default the lane tells the processor how far it is ([idem.Processor.NoteProgress]), so that a store in Postgres can delete
	// what has expired. It goes by the watermark: commit that well within the retention. A partition without new messages holds up
	// the deletion for its whole scope: say with RecordProgress that it is caught up.
	OwnProgress bool
}

func (c Config) withDefaults() Config {
	c.Lanes = max(c.Lanes, 1)
	c.Queue = cmp.Or(max(c.Queue, 0), min(max(1024, 256*c.Lanes), 16384))
	c.QueueBytes = cmp.Or(max(c.QueueBytes, 0), 64<<20)
	c.Batch = cmp.Or(max(c.Batch, 0), 512)
	c.BatchBytes = cmp.Or(max(c.BatchBytes, 0), 4<<20)
	return c
}

// handler is what a lane needs of an [idem.Processor].
type handler interface {
	Settle(ctx context.Context, msgs []*idem.Message, progress func(settled int)) error
	OrderKey(m *idem.Message) string
}

// noter is told how far a partition is settled.
type noter interface {
	NoteProgress(ctx context.Context, progress dedup.Progress)
}

// taker is what is to be done beside the lanes: events of the partition that wait in the store.
type taker interface {
	TakesUp() bool
	TakeUp(ctx context.Context, topic string, partition int32) error
}

// Partition handles the messages of one assignment of one partition. Create it with [New] and close it. All methods may be
// called from several goroutines; the order of the partition is the order of Push.
type Partition struct {
	topic     string
	partition int32
	handler   handler
	noter     noter // nil: nobody is told
	noted     sync.Once
	noting    sync.Mutex // held by the lane that tells it
	toNote    atomic.Bool
	queue     *queue
	advanced  chan struct{}

	ctx  context.Context // ends when nothing new may begin
	stop context.CancelCauseFunc
	done chan struct{} // closed by the last lane that ends

	mu    sync.Mutex
	lanes int   // that have not ended
	err   error // why the partition ended: the first error that is no stop, else the stop
	left  error // a handler was left behind
}

// New starts the lanes of a partition, and takes up what waits in the store for it ([idem.KeyOrdered]): call
// [idem.Processor.Assigned] before. What p waits for without end ([idem.Config].BusyWait = [idem.Forever]) holds up the
// events that a lane has taken together with it. If p gives up instead, the lane waits, comes again for that one event, and
// has given the others back for other lanes to take.
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
		advanced: make(chan struct{}, 1), ctx: ctx, stop: stop, done: make(chan struct{}), lanes: cfg.Lanes,
	}
	if n, ok := h.(noter); ok && !cfg.OwnProgress {
		p.noter = n
	}
	if t, ok := h.(taker); ok && t.TakesUp() {
		p.lanes++
		go p.takeUp(t)
	}
	for range cfg.Lanes {
		go func() {
			w := &worker{p: p}
			p.ended(w.work())
		}()
	}
	return p
}

// takeUp ends like a lane, when the partition does.
func (p *Partition) takeUp(t taker) {
	err := t.TakeUp(p.ctx, p.topic, p.partition)
	<-p.ctx.Done()
	p.ended(errors.Join(context.Cause(p.ctx), err))
}

// Push hands over the next message. It blocks while the queue is full, which is the back-pressure, until there is room,
// ctx ends, or the partition does. m must not be changed any longer.
func (p *Partition) Push(ctx context.Context, m *idem.Message) error {
	for {
		if ctx.Err() != nil {
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
		case <-ctx.Done():
		case <-p.ctx.Done():
		}
	}
}

// Offer is Push without waiting. It reports false if there is no room, or the partition is closed.
func (p *Partition) Offer(m *idem.Message) bool { return p.queue.put(m) }

// Room receives a value when Offer may succeed again after it did not. There is one reader.
func (p *Partition) Room() <-chan struct{} { return p.queue.room }

// Watermark returns the offset to commit: the one after the last delivery below which all are settled. ok is false as
// long as there is none. It never goes back, and stands still after Close.
func (p *Partition) Watermark() (next int64, ok bool) { return p.queue.watermark() }

// Advanced receives a value after the watermark moved. Several moves may be one value. There is one reader.
func (p *Partition) Advanced() <-chan struct{} { return p.advanced }

// Pending counts what was pushed and is not yet covered by the watermark. With several lanes some of it may be settled.
func (p *Partition) Pending() int {
	n, _ := p.queue.pending()
	return n
}

// Stalled reports since when the watermark stands although there is something to do: how long the oldest unsettled
// delivery has been the oldest. That other lanes go on beside it is no progress: they stop at [Config].Queue, and nothing
// of theirs is committed. ok is false while all is settled. How long is too long is the caller's to say; an event that is
// busy elsewhere, or a store that is down, stalls the partition as well (K-13).
func (p *Partition) Stalled() (since time.Time, ok bool) {
	n, since := p.queue.pending()
	if n == 0 {
		return time.Time{}, false
	}
	return since, true
}

// Done is closed when all lanes have ended: after Close, or by themselves.
func (p *Partition) Done() <-chan struct{} { return p.done }

// Err returns why the partition ended by itself, such as an [idem.ErrNoProducer] or too many handlers that hang
// ([idem.ErrAbandoned]): what the first lane said that could not go on. The other lanes are then stopped, with that cause.
// It is nil while a lane runs and after an orderly end. What is not below the watermark must be delivered again.
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

// Close ends the assignment. Nothing new begins; what runs is given the processor's grace if cause is nil, and none if it
// matches [idem.ErrPartitionLost]. Then the watermark is final. Close waits for the lanes, but not beyond ctx.
//
// It returns nil if all that was begun has ended, and an error that matches [idem.ErrAbandoned] if a handler was left
// behind. What was in the queue is dropped: it is not settled and will be delivered again. Closing twice is the same
// as once.
func (p *Partition) Close(ctx context.Context, cause error) error {
	p.halt(cmp.Or(cause, idem.ErrStopping))
	var err error
	select {
	case <-p.done:
		p.mu.Lock()
		err = p.left
		p.mu.Unlock()
	case <-ctx.Done():
		err = fmt.Errorf("%w: %s/%d: worker goes on: %w", idem.ErrAbandoned, p.topic, p.partition, context.Cause(ctx))
	}
	p.queue.seal()
	return err
}

// halt lets nothing new begin.
func (p *Partition) halt(cause error) {
	p.stop(cause)
	p.queue.close()
}

// ended notes why a lane has ended, and ends the others: nobody waits for room that will not come.
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
