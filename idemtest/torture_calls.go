package idemtest

import (
	"sync"
	"time"
)

const (
	callPause = 10 * time.Second // before a caller calls again
	// callPauses bounds all calls until an answer, in times of Faults.beyondLease. A schedule may
	// freeze the process twice.
	callPauses = 6
)

// reply is the result of a call.
type reply struct {
	answer  any    // that the caller keeps
	unknown bool   // the answer is that the outcome is unknown
	again   error  // why there is no answer yet, and the caller calls again
	text    string // of the story
}

// client makes calls in one process. Each call is that of another caller or another try.
type client struct {
	call func() reply
	stop func()
}

// callsJob is the work of callers: one call until it is answered.
type callsJob struct {
	connect func(*process) client

	mu      sync.Mutex
	open    bool // the caller of the round has no answer
	answers []any
	unknown bool
}

func newCallsJob(connect func(*process) client) *callsJob {
	return &callsJob{connect: connect, open: true}
}

// parts implements job: one call cannot be divided.
func (j *callsJob) parts() int { return 1 }

// repeat opens the call again. A copy is the call of the second process, and does not open the
// call.
func (j *callsJob) repeat(r round) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.open = j.open || r == repeated
}

func (j *callsJob) start(p *process) worker { return &callsWorker{job: j, p: p, client: j.connect(p)} }

func (j *callsJob) end(out *outcomeOf) {
	j.mu.Lock()
	defer j.mu.Unlock()
	out.answers, out.unknown = append(out.answers, j.answers...), j.unknown
}

func (j *callsJob) isOpen() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.open
}

// answered takes an answer.
func (j *callsJob) answered(r reply, what share) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.answers, j.unknown = append(j.answers, r.answer), j.unknown || r.unknown
	j.open = j.open && what == onlyCopies
}

// callsWorker is a process that callers call.
type callsWorker struct {
	job    *callsJob
	p      *process
	client client
}

func (w *callsWorker) work(what share, limit time.Duration) error {
	began := time.Now()
	for what == onlyCopies || w.job.isOpen() {
		r := w.client.call()
		w.p.wait() // a process that stands still gives no answer
		switch {
		case w.p.isDead():
			return errDead // the caller gets no answer
		case r.again == nil:
			w.p.f.note("%s answers: %s", w.p.name, r.text)
			w.job.answered(r, what)
			return nil
		}
		w.p.f.note("%s gives no answer: %v", w.p.name, r.again)
		if time.Since(began)+callPause > min(limit, callPauses*w.p.f.beyondLease()) {
			return r.again
		}
		pause(w.p.ctx, callPause)
		if w.p.ctx.Err() != nil {
			return errDead
		}
	}
	return nil
}

func (w *callsWorker) close() { w.client.stop() }
