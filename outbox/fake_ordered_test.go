package outbox_test

import (
	"context"
	"errors"
	"hash/fnv"
	"sync"
	"time"

	"github.com/idem-go/idem"
)

var errBatch = errors.New("batch is refused")

// orderedProducer appends the messages of a call in batches, one for each of three partitions, and
// each as a whole or not at all.
type orderedProducer struct {
	*producer
	late func() time.Duration // how long after its error a batch is written; nil: never
}

// noteInOrder notes the call, without the rule of one message for each aggregate.
func (p *orderedProducer) noteInOrder(msgs []*idem.Message) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.holding) > 0 {
		p.problems = append(p.problems, "O-15: something is published while the fate of something else is not known")
	}
	ids := []string{"in order"}
	for _, m := range msgs {
		ids = append(ids, idOf(m))
	}
	p.calls = append(p.calls, ids)
}

func (p *orderedProducer) ProduceInOrder(ctx context.Context, msgs []*idem.Message) []error {
	if p.gate != nil {
		p.gate()
		defer p.gate()
	}
	p.noteInOrder(msgs)
	batches := map[uint32][]int{}
	for i, m := range msgs {
		hash := fnv.New32()
		_, _ = hash.Write(append([]byte(m.Topic), m.Key...))
		batches[hash.Sum32()%3] = append(batches[hash.Sum32()%3], i)
	}
	errs := make([]error, len(msgs))
	var all sync.WaitGroup
	for _, batch := range batches {
		all.Go(func() {
			err := p.batch(ctx, msgs, batch)
			for _, i := range batch {
				errs[i] = err
			}
		})
	}
	all.Wait()
	return errs
}

// batch decides about a batch. A refused message refuses all of it.
func (p *orderedProducer) batch(ctx context.Context, msgs []*idem.Message, batch []int) error {
	f := acknowledged
	for _, i := range batch {
		one := acknowledged
		if p.fate != nil {
			one = p.fate(msgs[i])
		}
		f.wait = max(f.wait, one.wait)
		f.written = f.written && one.written
		if errors.Is(one.err, idem.ErrTooLarge) || errors.Is(one.err, idem.ErrRefused) || errors.Is(one.err, idem.ErrNoTopic) {
			f.err = errBatch
		} else if one.err != nil {
			f.err = one.err
		}
	}
	known := make(chan error, 2)
	write := func() {
		for _, i := range batch {
			p.broker.write(msgs[i])
			if f.err == nil {
				p.broker.ack(msgs[i])
			}
		}
	}
	p.producer.late.Go(func() {
		time.Sleep(f.wait)
		if f.err != nil && f.written && p.late != nil {
			known <- f.err // the batch is still under way
			time.Sleep(p.late())
		}
		if f.written {
			write()
		}
		known <- f.err
	})
	select {
	case err := <-known:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
