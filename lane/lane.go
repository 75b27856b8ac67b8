package lane

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/idem-go/idem"
)

// ErrClosed is returned by [Partition.Push] after Close, or after the worker ended by itself: see [Partition.Err].
var ErrClosed = errors.New("lane is closed")

// Config of a [Partition]. The zero value is fit for use.
type Config struct {
	// Queue is how many messages may be held, waiting or being handled, before Push blocks. Defaults to 256.
	Queue int
	// QueueBytes bounds the same in bytes of keys, values and headers. A single message beyond it is taken when nothing
	// else is held. Defaults to 64 MiB.
	QueueBytes int
	// Batch is how many messages are taken from the queue at a time. Each is settled before the next one begins, and the
	// watermark moves with each. Defaults to 256.
	Batch int
}

func (c Config) withDefaults() Config {
	c.Queue = cmp.Or(max(c.Queue, 0), 256)
	c.QueueBytes = cmp.Or(max(c.QueueBytes, 0), 64<<20)
	c.Batch = cmp.Or(max(c.Batch, 0), 256)
	return c
}

// handler is what a lane needs of an [idem.Processor].
type handler interface {
	HandleBatch(ctx context.Context, msgs []*idem.Message) (settled int, err error)
}

// Partition handles the messages of one assignment of one partition in order. Create it with [New] and close it. All
// methods may be called from several goroutines; the order of the partition is the order of Push.
type Partition struct {
	topic     string
	partition int32
	cfg       Config
	handler   handler
	queue     *queue
	tracker   *tracker
	advanced  chan struct{}

	ctx  context.Context // ends when nothing new may begin
	stop context.CancelCauseFunc
	done chan struct{} // closed by the worker
	err  error         // why the worker ended; read after done

	idleSince atomic.Int64 // when something was last settled, or the lane was last empty; Unix nanoseconds
}

// New starts the worker of a partition. p should wait without end for what is not in its power
// ([idem.Config].BusyWait = [idem.Forever]), else the lane does the waiting, which is the same with more calls.
func New(p *idem.Processor, topic string, partition int32, cfg Config) *Partition {
	return start(p, topic, partition, cfg)
}

func start(h handler, topic string, partition int32, cfg Config) *Partition {
	cfg = cfg.withDefaults()
	ctx, stop := context.WithCancelCause(context.Background())
	p := &Partition{
		topic: topic, partition: partition, cfg: cfg, handler: h,
		queue: newQueue(cfg.Queue, cfg.QueueBytes), tracker: newTracker(cfg.Queue),
		advanced: make(chan struct{}, 1), ctx: ctx, stop: stop, done: make(chan struct{}),
	}
	p.idleSince.Store(time.Now().UnixNano())
	go p.work()
	return p
}

// Push hands over the next message. It blocks while the queue is full, which is the back-pressure, until there is room,
// ctx ends, or the lane does. m must not be changed any longer.
func (p *Partition) Push(ctx context.Context, m *idem.Message) error {
	for {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if p.ctx.Err() != nil {
			return ErrClosed
		}
		if p.Offer(m) {
			return nil
		}
		select {
		case <-p.queue.room:
		case <-ctx.Done():
		case <-p.ctx.Done():
		}
	}
}

// Offer is Push without waiting. It reports false if there is no room, or the lane is closed.
func (p *Partition) Offer(m *idem.Message) bool {
	if p.ctx.Err() != nil {
		return false
	}
	return p.queue.put(m, func() (uint64, bool) {
		if p.tracker.Pending() == 0 {
			p.idleSince.Store(time.Now().UnixNano())
		}
		return p.tracker.Begin(m.Offset)
	})
}

// Room receives a value when Offer may succeed again after it did not. There is one reader.
func (p *Partition) Room() <-chan struct{} { return p.queue.room }

// Watermark returns the offset to commit: the one after the last delivery below which all are settled. ok is false as
// long as there is none. It never goes back, and stands still after Close.
func (p *Partition) Watermark() (next int64, ok bool) { return p.tracker.Watermark() }

// Advanced receives a value after the watermark moved. Several moves may be one value. There is one reader.
func (p *Partition) Advanced() <-chan struct{} { return p.advanced }

// Pending counts what was pushed and is not yet covered by the watermark.
func (p *Partition) Pending() int { return p.tracker.Pending() }

// Stalled reports since when nothing was settled although something is there to be. ok is false while the lane is idle.
// How long is too long is the caller's to say; an event that is busy elsewhere, or a ledger that is down, stalls the lane
// as well.
func (p *Partition) Stalled() (since time.Time, ok bool) {
	if p.tracker.Pending() == 0 {
		return time.Time{}, false
	}
	return time.Unix(0, p.idleSince.Load()), true
}

// Done is closed when the worker has ended: after Close, or by itself.
func (p *Partition) Done() <-chan struct{} { return p.done }

// Err returns why the worker ended by itself, such as an [idem.ErrNoProducer] or too many handlers that hang
// ([idem.ErrAbandoned]). It is nil while the worker runs and after an orderly end. What it says is not settled must be
// delivered again.
func (p *Partition) Err() error {
	select {
	case <-p.done:
		if isStop(p.err) {
			return nil
		}
		return p.err
	default:
		return nil
	}
}

// Close ends the assignment. Nothing new begins; what runs is given the processor's grace if cause is nil, and none if it
// matches [idem.ErrPartitionLost]. Then the watermark is final. Close waits for the worker, but not beyond ctx.
//
// It returns nil if all that was begun has ended, and an error that matches [idem.ErrAbandoned] if a handler was left
// behind. What was in the queue is dropped: it is not settled and will be delivered again. Closing twice is the same
// as once.
func (p *Partition) Close(ctx context.Context, cause error) error {
	p.stop(cmp.Or(cause, idem.ErrStopping))
	var err error
	select {
	case <-p.done:
		if errors.Is(p.err, idem.ErrAbandoned) {
			err = p.err
		}
	case <-ctx.Done():
		err = fmt.Errorf("%w: %s/%d: worker goes on: %w", idem.ErrAbandoned, p.topic, p.partition, context.Cause(ctx))
	}
	p.tracker.Seal()
	return err
}

// work settles the queue in order until the lane is stopped or cannot go on.
func (p *Partition) work() {
	defer close(p.done)
	var batch []entry
	for {
		select {
		case <-p.ctx.Done():
			p.err = context.Cause(p.ctx)
			return
		case <-p.queue.some:
		}
		for batch = p.queue.take(batch, p.cfg.Batch); len(batch) > 0; batch = p.queue.take(batch, p.cfg.Batch) {
			if p.err = p.settle(batch); p.err != nil {
				p.stop(p.err) // nobody waits for room that will not come
				return
			}
		}
	}
}

// settle takes a batch through the processor, one message a call: HandleBatch says what is settled at its end only, and
// the watermark should move before. What a call costs beside the work is a few hundred nanoseconds (BenchmarkLane).
func (p *Partition) settle(batch []entry) error {
	var one [1]*idem.Message
	for i, e := range batch {
		one[0] = e.m
		for {
			_, err := p.handler.HandleBatch(p.ctx, one[:])
			if err == nil {
				break
			}
			if err := p.after(err); err != nil {
				return err
			}
		}
		batch[i].m = nil
		p.idleSince.Store(time.Now().UnixNano())
		moved := p.tracker.Finish(e.seq)
		p.queue.release(e) // after Finish: whoever is told of room must find a place in the tracker too
		if moved {
			signal(p.advanced)
		}
	}
	return nil
}

// after waits if that is what err asks for; any other error ends the lane.
func (p *Partition) after(err error) error {
	var wait *idem.WaitError
	if isStop(err) || !errors.As(err, &wait) {
		return err
	}
	timer := time.NewTimer(max(wait.After, time.Millisecond))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-p.ctx.Done():
		return context.Cause(p.ctx)
	}
}

func isStop(err error) bool {
	return errors.Is(err, idem.ErrStopping) || errors.Is(err, idem.ErrPartitionLost)
}
