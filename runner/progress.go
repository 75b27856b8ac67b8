package runner

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/dedup"
)

// A store forgets in consumed time (rule 8), so the consumer records its progress there. Each
// session has a goroutine for that beside the one that commits, because a slow store must not delay
// a commit.
//
// The group's retry topics count like all others, by the times of the copies. A copy has the time
// at which it was published. The store changed the record of the event just after that, and the
// record expires a retention later. While the copy waits, the progress of the retry topic stands
// before the copy, so the record stays. An event on record is never too old. With the time of the
// source record, an old event in a retry topic of hours would make the store keep, or lose, the
// records of the whole scope.
//
// A retry topic of a delay that no handler declares any longer is read as long as the topic exists.
// After a deletion the store keeps all records of the scope until a person removes the progress of
// that topic.

const (
	// progressInterval is how often progress is recorded.
	progressInterval = 10 * time.Second
	// progressWait bounds one record, and so the delay of the end of a consumer.
	progressWait = 3 * time.Second

	progressFails = "progress cannot be recorded, the store keeps all records meanwhile"
	progressAgain = "progress is recorded again"
)

// recorder records the progress of one session.
type recorder struct {
	proc      *idem.Processor
	log       *slog.Logger
	text      func(error) string
	positions func() []dedup.Progress // of the assignments
	poke      chan struct{}           // an assignment has ended

	mu     sync.Mutex
	parted []dedup.Progress // of assignments that have ended, not recorded yet
	failed bool             // a failure was logged
}

// newRecorder returns nil if no store records progress.
func newRecorder(
	proc *idem.Processor, log *slog.Logger, text func(error) string,
	positions func() []dedup.Progress,
) *recorder {
	if !recordsProgress(proc.Stores()) {
		return nil
	}
	return &recorder{
		proc: proc, log: log, text: text, positions: positions, poke: make(chan struct{}, 1),
	}
}

func recordsProgress(stores []dedup.Store) bool {
	return slices.ContainsFunc(stores, func(store dedup.Store) bool {
		_, ok := store.(dedup.ProgressRecorder)
		return ok
	})
}

// loop records until stop is closed, and once more then.
func (r *recorder) loop(stop <-chan struct{}) {
	tick := time.NewTicker(progressInterval)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			r.record(r.positions())
		case <-r.poke:
			r.record(nil)
		case <-stop:
			r.record(nil) // all assignments have ended
			return
		}
	}
}

// part takes the last progress of an assignment, which is recorded soon. The partition may have a
// new owner by then, which will record more.
func (r *recorder) part(a *Assignment, marked int64) {
	if r == nil {
		return
	}
	known := marked >= 0
	if !known { // no question to the broker here: it could delay the end
		if marked = a.times.begin(nil); marked < 0 {
			return
		}
	}
	p := a.progress(marked, known)
	r.mu.Lock()
	r.parted = append(r.parted, p)
	r.mu.Unlock()
	select {
	case r.poke <- struct{}{}:
	default:
	}
}

func (r *recorder) record(progress []dedup.Progress) {
	r.mu.Lock()
	progress = append(r.parted, progress...)
	r.parted = nil
	r.mu.Unlock()
	if len(progress) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), progressWait)
	defer cancel()
	err := r.proc.RecordProgress(ctx, progress)
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case err != nil && !r.failed:
		r.log.Warn(progressFails, "error", r.text(err))
	case err == nil && r.failed:
		r.log.Info(progressAgain)
	}
	r.failed = err != nil
}
