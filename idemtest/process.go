package idemtest

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
)

// process is one process under torture. After its death its calls of the store, records and effects
// do not reach the world.
type process struct {
	f        *Faults
	name     string
	numbered bool // its points count, behind those of earlier ones, and faults happen there
	copies   func()
	others   func()
	move     func()                        // lets another process handle everything
	busy     sync.Map                      // the answers of the latest claim, if busy, by its IDs
	still    atomic.Pointer[chan struct{}] // closed when the process goes on; nil: it does not stand still

	stood  atomic.Bool // it stood still
	dead   atomic.Bool
	died   chan struct{}
	ctx    context.Context //nolint:containedctx // of the process, ended by its death
	cancel context.CancelCauseFunc
	once   sync.Once
	worker worker
}

// newProcess returns a process without a worker.
func newProcess(f *Faults, number int, numbered bool) *process {
	p := &process{
		f: f, name: fmt.Sprintf("worker %d", number), numbered: numbered, died: make(chan struct{}),
	}
	p.ctx, p.cancel = context.WithCancelCause(context.WithValue(context.Background(), processKey{}, p))
	return p
}

func (p *process) isDead() bool { return p.dead.Load() }

// reach is called at each point. The caller must return the error.
func (p *process) reach(what string, outside bool) error { return p.at(what, outside, p.numbered) }

// wait returns when no other goroutine of the process stands still at a point.
func (p *process) wait() {
	if over := p.still.Load(); over != nil {
		<-*over
	}
}

func (p *process) at(what string, outside, isPoint bool) error {
	p.wait()
	if p.isDead() {
		<-p.f.over
		return errDead
	}
	switch p.f.next(p, what, outside, isPoint) {
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
		p.stood.Store(true)
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
