package idemtest

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/idem-go/idem"
)

// process is one process of a group under torture. After its death nothing that it does reaches the
// world: no call of the store, no record, no effect.
type process struct {
	f        *Faults
	name     string
	numbered bool // its points count, and faults happen there
	copies   func()
	others   func()
	move     func()                        // lets another process handle everything
	still    atomic.Pointer[chan struct{}] // closed when the process goes on; nil: it does not stand still

	dead   atomic.Bool
	died   chan struct{}
	ctx    context.Context //nolint:containedctx // of the process, ended by its death
	cancel context.CancelCauseFunc
	p      *idem.Processor
	kafka  *topics
	once   sync.Once
	now    atomic.Pointer[place] // the partition that is being settled
}

// at returns the partition that is being settled.
func (p *process) at() place {
	if now := p.now.Load(); now != nil {
		return *now
	}
	return place{}
}

func (p *process) isDead() bool { return p.dead.Load() }

// reach is called at each point. The error is what the caller must return.
func (p *process) reach(what string, outside bool) error {
	if p.isDead() {
		<-p.f.over
		return errDead
	}
	switch p.f.next(p, what, outside) {
	case die:
		p.die()
		<-p.f.over
		return errDead
	case fail:
		if outside {
			return ErrFault
		}
	case freeze:
		over := make(chan struct{})
		p.still.Store(&over)
		p.move()
		p.still.Store(nil)
		close(over)
		p.f.note("%s goes on", p.name)
	case copies:
		p.copies()
	case others:
		p.others()
	}
	return nil
}

// die ends the process. Its blocked calls wait until the state of the world was read.
func (p *process) die() {
	p.once.Do(func() {
		p.dead.Store(true)
		p.cancel(errDead)
		close(p.died)
	})
}

// drain settles the records of partitions until no partition makes progress, waiting as the answers
// ask for, for at most limit.
func (p *process) drain(chosen func(place) bool, limit time.Duration) error {
	deadline := time.Now().Add(limit)
	for {
		progress, wait, failed := false, time.Duration(0), error(nil)
		for _, at := range p.kafka.read(func(string) bool { return true }) {
			if !chosen(at) {
				continue
			}
			n, err := p.settle(at)
			progress = progress || n > 0
			var later *idem.WaitError
			switch {
			case err == nil:
			case errors.As(err, &later):
				wait, failed = max(wait, later.After, time.Millisecond), err
			default:
				return err
			}
		}
		switch {
		case p.isDead():
			return errDead
		case progress:
		case wait == 0:
			return nil
		case time.Now().Add(wait).After(deadline):
			return failed
		default:
			pause(p.ctx, wait)
		}
	}
}

// settle passes the open records of a partition to the processor, and commits.
func (p *process) settle(at place) (int, error) {
	p.now.Store(&at)
	msgs := p.kafka.open(at)
	for i, m := range msgs {
		if due := p.p.Due(m); due > 0 {
			if i == 0 {
				return 0, &idem.WaitError{After: due, Err: idem.ErrNotDue}
			}
			msgs = msgs[:i]
			break
		}
	}
	if len(msgs) == 0 {
		return 0, nil
	}
	n, err := p.p.HandleBatch(p.ctx, msgs)
	if n > 0 {
		if gone := p.reach("commits the offsets", false); gone != nil {
			return 0, gone
		}
		p.kafka.settle(msgs[n-1])
	}
	return n, err
}

// Produce implements [idem.Producer].
func (p *process) Produce(ctx context.Context, msgs ...*idem.Message) error {
	if err := p.reach("publishes a record"+before, false); err != nil {
		return err
	}
	if err := p.kafka.Produce(ctx, msgs...); err != nil {
		return err
	}
	return p.reach("publishes a record", false)
}

func silent() *slog.Logger { return slog.New(slog.NewTextHandler(io.Discard, nil)) }

// pause waits until d has passed or ctx has ended.
func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
