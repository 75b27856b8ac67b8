package replay

import (
	"context"
	"sync"
	"time"

	"github.com/idem-go/idem/lane"
)

// pace lets records through at an even rate. A nil pace has no limit. Safe for concurrent use.
type pace struct {
	every time.Duration

	mu   sync.Mutex
	free time.Time // when the next record may go
}

func newPace(rate int) *pace {
	if rate <= 0 {
		return nil
	}
	return &pace{every: max(time.Second/time.Duration(rate), 1)}
}

// burst is how far a pace may catch up after a late wake-up. Timers are about a millisecond late,
// so a high rate would not be reached without it.
const burst = 100 * time.Millisecond

// book returns the turn of the next record, and when the one after it may go.
func book(free, now time.Time, every time.Duration) (turn, next time.Time) {
	if earliest := now.Add(-burst); free.Before(earliest) {
		free = earliest
	}
	return free, free.Add(every)
}

// wait waits for a turn. It returns the cause of ctx, or [lane.ErrClosed] after the end of done.
func (p *pace) wait(ctx context.Context, done <-chan struct{}) error {
	if p == nil {
		return nil
	}
	p.mu.Lock()
	now := time.Now()
	if p.free.IsZero() {
		p.free = now // no burst at the beginning
	}
	turn, next := book(p.free, now, p.every)
	p.free = next
	p.mu.Unlock()
	if !turn.After(now) {
		return nil
	}
	timer := time.NewTimer(turn.Sub(now))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-done:
		return lane.ErrClosed
	}
}
