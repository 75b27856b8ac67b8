package watermillidem

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/idem-go/idem"
)

// CollectorConfig bounds the batches of a [Collector]. The zero value of a field is its default.
type CollectorConfig struct {
	// Max is how many messages a batch has at most. Defaults to 256.
	Max int
	// Wait is how long the first message of a batch waits for others. Zero: a message that comes
	// alone is handled at once, and the messages that come during a batch are the next one.
	Wait time.Duration
}

// Collector settles the messages that come at the same time in one call of
// [idem.Processor.HandleBatch], so that they share round trips and transactions. A subscriber of
// Kafka delivers one message of each partition at a time. A batch therefore has at most as many
// messages as the process has partitions. Close a Collector after the router, and before the
// processor.
type Collector struct {
	s    *settler
	cfg  CollectorConfig
	o    options
	in   chan *entry
	ctx  context.Context //nolint:containedctx // of the goroutine, ended by Close
	stop context.CancelCauseFunc
	run  sync.WaitGroup
}

// entry is a message that waits in Handle for its batch.
type entry struct {
	ctx   context.Context //nolint:containedctx // of the message
	msg   *idem.Message
	known bool
	done  chan error // has room for the one result
}

// NewCollector starts a Collector. The error names a mistake in cfg.
func NewCollector(p *idem.Processor, cfg CollectorConfig, opts ...Option) (*Collector, error) {
	cfg.Max = cmp.Or(cfg.Max, 256)
	if p == nil {
		return nil, errors.New("watermillidem: the processor is nil")
	}
	if cfg.Max < 0 || cfg.Wait < 0 {
		return nil, fmt.Errorf("watermillidem: Max is %d and Wait is %s: neither may be negative", cfg.Max, cfg.Wait)
	}
	c := &Collector{s: newSettler(p), cfg: cfg, o: build(opts), in: make(chan *entry)}
	c.ctx, c.stop = context.WithCancelCause(context.Background())
	c.run.Go(c.loop)
	return c, nil
}

// Handle is a function for Router.AddConsumerHandler: it waits until the message is settled in a
// batch. The errors are those of [Handler]. If the context of the message ends first, a batch under
// way goes on, and the message may be a duplicate when it comes again. A message that waits for its
// batch, for another worker or for a store is then given up.
func (c *Collector) Handle(m *message.Message) error {
	msg, known := c.o.convert(m)
	ctx := m.Context()
	e := &entry{ctx: ctx, msg: msg, known: known, done: make(chan error, 1)}
	select {
	case c.in <- e:
	case <-ctx.Done():
		return errors.Join(idem.ErrStopping, context.Cause(ctx))
	case <-c.ctx.Done():
		return idem.ErrStopping
	}
	select {
	case err := <-e.done:
		return err
	case <-ctx.Done():
		return errors.Join(idem.ErrStopping, context.Cause(ctx))
	}
}

// Close ends the batch under way, and waits for it. Messages that are not settled get
// [idem.ErrStopping].
func (c *Collector) Close() error {
	c.stop(idem.ErrStopping)
	c.run.Wait()
	return nil
}

// loop forms and settles one batch after the other until Close.
func (c *Collector) loop() {
	for {
		select {
		case first := <-c.in:
			c.settle(c.collect(first))
		case <-c.ctx.Done():
			return
		}
	}
}

// collect returns a batch: the first message, the messages that wait in Handle, and those that come
// within Wait.
func (c *Collector) collect(first *entry) []*entry {
	batch := []*entry{first}
	var end <-chan time.Time
	if c.cfg.Wait > 0 {
		timer := time.NewTimer(c.cfg.Wait)
		defer timer.Stop()
		end = timer.C
	}
	for len(batch) < c.cfg.Max {
		e := c.next(end)
		if e == nil {
			break
		}
		batch = append(batch, e)
	}
	return batch
}

// next returns the next message of a batch that is open until end, or nil at the end of the batch.
func (c *Collector) next(end <-chan time.Time) *entry {
	if end == nil {
		select {
		case e := <-c.in:
			return e
		default:
			return nil
		}
	}
	select {
	case e := <-c.in:
		return e
	case <-end:
	case <-c.ctx.Done():
	}
	return nil
}

// settle answers every entry of a batch. An entry that waits, or has an error, leaves the batch, so
// that it does not hold up the others.
func (c *Collector) settle(batch []*entry) {
	for {
		if batch = dropEnded(batch); len(batch) == 0 {
			return
		}
		n, err := c.call(batch)
		for _, e := range batch[:n] {
			e.done <- nil
		}
		if batch = batch[n:]; len(batch) == 0 {
			return
		}
		if err == nil { // the contract of HandleBatch excludes it
			err = errors.New("watermillidem: the processor settled a part without an error")
		}
		var wait *idem.WaitError
		waits := errors.As(err, &wait)
		if c.ctx.Err() != nil {
			if waits {
				err = idem.ErrStopping
			}
			for _, e := range batch {
				e.done <- err
			}
			return
		}
		first := batch[0]
		batch = batch[1:]
		if waits {
			c.run.Go(func() { first.done <- c.wait(first, wait.After) })
		} else {
			first.done <- err
		}
	}
}

// dropEnded answers the entries whose context has ended, and returns the others.
func dropEnded(batch []*entry) []*entry {
	return slices.DeleteFunc(batch, func(e *entry) bool {
		if e.ctx.Err() == nil {
			return false
		}
		e.done <- errors.Join(idem.ErrStopping, context.Cause(e.ctx))
		return true
	})
}

// wait settles one entry that waits for another worker or for a store. Each such entry is a message
// that its subscriber waits for, so there are at most as many as partitions. The wait ends with the
// context of the message, and with Close.
func (c *Collector) wait(e *entry, after time.Duration) error {
	ctx, stop := context.WithCancelCause(e.ctx)
	defer stop(nil)
	defer context.AfterFunc(c.ctx, func() { stop(idem.ErrStopping) })()
	for {
		if err := pause(ctx, after); err != nil {
			return err
		}
		err := c.s.settle(ctx, e.ctx, e.msg, e.known)
		var wait *idem.WaitError
		if !errors.As(err, &wait) {
			return err
		}
		after = wait.After
	}
}

// call settles a batch once, and returns how many from the front are settled. The positions are
// reported if all are known.
func (c *Collector) call(batch []*entry) (settled int, err error) {
	msgs, known := make([]*idem.Message, len(batch)), true
	for i, e := range batch {
		msgs[i], known = e.msg, known && e.known
	}
	if !known {
		err = c.s.p.Settle(c.ctx, msgs, func(n int) { settled = n })
		return settled, err
	}
	for _, m := range msgs {
		c.s.begin(m)
	}
	settled, err = c.s.p.HandleBatch(c.ctx, msgs)
	for i, e := range batch {
		c.s.end(e.ctx, e.msg, i < settled)
	}
	return settled, err
}
