package idemtest

import (
	"errors"
	"slices"
	"sync"
	"time"
)

const (
	tortureLimit  = 6 * time.Hour // of fake time, for the work of a process
	stuckLimit    = 2 * tortureLimit
	shortestPause = 5 * time.Minute // of a process that stands still
	longestLease  = time.Hour       // two pauses beyond it and the work end within tortureLimit
	copyLimit     = time.Second
)

// job is the work of the processes of a run. Safe for concurrent use.
type job interface {
	// parts returns how many parts of the work different processes may do at the same time.
	parts() int
	// start gives a process its worker.
	start(p *process) worker
	// repeat adds all work once more.
	repeat(round round)
	// end adds to the outcome of a run.
	end(out *outcomeOf)
}

// round is the reason for work.
type round int32

const (
	copied   round = iota + 1 // a copy of the first work, for the fault of this name
	repeated                  // the end of the run
)

// share names the work that a process is to do.
type share uint8

const (
	everything share = iota
	onlyCopies       // of the round copied
	otherParts       // the parts that the numbered process is not at
)

// worker does the work of one process.
type worker interface {
	// work does a share, waiting as needed, for at most limit. After the death of the process it
	// returns errDead, or blocks until the end of the run.
	work(what share, limit time.Duration) error
	close()
}

// outcomeOf is the end of a run.
type outcomeOf struct {
	state   any
	err     error
	points  []point
	parts   int
	trace   []told
	calls   map[effect][]call // that had their effect
	shared  *sharedKey        // nil: no key was used for two calls
	lease   time.Duration     // the longest one
	dead    []deadLetter
	answers []any // of calls
	unknown bool  // an answer was that the outcome is unknown
}

// cast is the processes of a run. Safe for concurrent use.
type cast struct {
	f       *Faults
	job     job
	running sync.WaitGroup

	mu  sync.Mutex
	all []*process
}

// start starts the next process.
func (c *cast) start(numbered bool) *process {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := newProcess(c.f, len(c.all)+1, numbered)
	p.worker = c.job.start(p)
	c.all = append(c.all, p)
	return p
}

// numbered starts the next process with numbered points.
func (c *cast) numbered() *process {
	p := c.start(true)
	c.f.begin(p)
	p.copies = func() {
		c.job.repeat(copied)
		c.second(onlyCopies, copyLimit)
	}
	p.others = func() { c.second(otherParts, copyLimit) }
	p.move = func() { c.second(everything, c.f.beyondLease()) }
	return p
}

// work lets a process do everything, until the end of its work or its death. Otherwise the worker
// is stuck in a handler. A handler cannot be ended from outside, so work panics.
func (c *cast) work(p *process) error {
	ended := make(chan error, 1)
	c.running.Go(func() { ended <- p.worker.work(everything, tortureLimit) })
	stuck := time.NewTimer(stuckLimit)
	defer stuck.Stop()
	select {
	case err := <-ended:
		if errors.Is(err, errDead) {
			return nil
		}
		return err
	case <-p.died:
		return nil
	case <-stuck.C:
		panic("idemtest: a handler or function has not ended after " + stuckLimit.String() +
			" of fake time: it must end when its context ends")
	}
}

// second lets another process do a share, and waits for it.
func (c *cast) second(what share, limit time.Duration) {
	done := make(chan struct{})
	p := c.start(false)
	c.running.Go(func() {
		defer close(done)
		_ = p.worker.work(what, limit) // work that waits is done later
	})
	<-done
}

// end ends all processes.
func (c *cast) end() {
	close(c.f.over)
	c.mu.Lock()
	all := slices.Clone(c.all)
	c.mu.Unlock()
	for _, p := range all {
		p.cancel(errDead)
	}
	c.running.Wait()
	for _, p := range all {
		p.worker.close()
	}
}

// workOn lets a process do everything, and others after its death. Each death is a step of the
// schedule, so the processes have a bound.
func (c *cast) workOn() error {
	p := c.numbered()
	err, died := c.work(p), p.isDead()
	for err == nil && p.isDead() {
		p = c.numbered()
		err = c.work(p)
	}
	if err != nil || died {
		return err
	}
	return c.work(c.start(false)) // a restart without a crash
}

// play runs one schedule in a bubble.
func play(f *Faults, work job, state func() any) (out outcomeOf) {
	c := &cast{f: f, job: work}
	out.err = c.workOn()
	if out.err == nil {
		f.note("-- everything comes once more")
		work.repeat(repeated)
		out.err = c.work(c.start(false))
	}
	f.stop()
	out.state = state()
	f.result(&out)
	out.parts = work.parts()
	work.end(&out)
	c.end()
	return out
}
