package lane

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/idem-go/idem"
)

// worker is one lane. Only the lane's goroutine uses it.
type worker struct {
	p    *Partition
	mine []*entry // in flight in this lane
	msgs []*idem.Message
	done int // how many of mine are settled

	moved bool // the watermark moved in this call
}

// serve settles deliveries until the partition is stopped or cannot continue, and returns why.
func (w *worker) serve() error {
	for {
		if w.mine = w.p.queue.nextWork(w.mine); len(w.mine) == 0 {
			return context.Cause(w.p.ctx)
		}
		w.p.noted.Do(func() { w.p.note(true) }) // before the first delivery is handled
		for {
			err := w.settle()
			if err == nil {
				break
			}
			wait, ok := asksToWait(err)
			if !ok {
				return err
			}
			if w.mine = w.p.queue.keep(w.mine, w.done); len(w.mine) == 0 {
				break
			}
			if err := w.p.pause(wait); err != nil {
				return err
			}
		}
	}
}

// settle passes mine to the processor.
func (w *worker) settle() error {
	w.msgs = w.msgs[:0]
	for _, e := range w.mine {
		w.msgs = append(w.msgs, e.m)
	}
	w.done = 0
	began := time.Now()
	err := w.p.handler.Settle(w.p.ctx, w.msgs, w.progress)
	if w.done > 0 {
		w.p.queue.took(time.Since(began), w.done)
	}
	clear(w.msgs) // do not keep settled messages in memory
	if w.moved {
		w.moved = false
		w.p.note(false)
	}
	if err == nil && w.done < len(w.mine) {
		return fmt.Errorf("%s/%d: processor settled %d of %d messages and returned no error",
			w.p.topic,
			w.p.partition, w.done, len(w.mine))
	}
	return err
}

// progress records that the first n of mine are settled.
func (w *worker) progress(n int) {
	n = min(n, len(w.mine))
	if n <= w.done {
		return
	}
	moved := w.p.queue.settled(w.mine[w.done:n])
	w.done = n
	if moved {
		signal(w.p.advanced)
		w.moved = true
	}
}

// note reports how far the partition is settled, or where it begins. If another lane is reporting
// at the moment, that lane reports this progress as well.
func (p *Partition) note(begin bool) {
	if p.noter == nil {
		return
	}
	p.toNote.Store(true)
	for p.toNote.Load() && p.noting.TryLock() {
		p.toNote.Store(false)
		if progress, ok := p.progress(begin); ok {
			p.noter.NoteProgress(p.ctx, progress)
		}
		p.noting.Unlock()
	}
}

// asksToWait reports whether err asks for another attempt, and after how long. Any other error ends
// the partition.
func asksToWait(err error) (after time.Duration, ok bool) {
	var wait *idem.WaitError
	if isStop(err) || !errors.As(err, &wait) {
		return 0, false
	}
	return max(wait.After, time.Millisecond), true
}

// pause waits for d, and fails if the partition is stopped meanwhile.
func (p *Partition) pause(d time.Duration) error {
	timer := time.NewTimer(d)
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
