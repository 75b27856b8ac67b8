package throttle

import (
	"context"
	"slices"
	"sync"
	"time"
)

// lateTimer is how late the timer of a waiting caller may fire without a delay of later turns.
const lateTimer = 10 * time.Millisecond

// turns gives callers their turns at even distances, in the order of the calls. A turn that comes
// back goes to the first caller at once. The zero value has no bound.
type turns struct {
	every time.Duration // between two turns; zero: no bound
	late  time.Duration // how late a turn may be without a delay of later ones

	mu     sync.Mutex
	free   time.Time // when the next turn may begin
	newest uint64    // number of the newest turn
	queue  []chan struct{}
}

// pace returns the distance of turns for a number of turns in a time, rounded up.
func pace(rate int, per time.Duration) time.Duration {
	every := per / time.Duration(rate)
	if per%time.Duration(rate) > 0 {
		every++
	}
	return every
}

// after returns when the turn may begin that follows a turn at now. The turn at now could begin at
// free. A caller that waited for it may be late, and that does not delay the next turn.
func after(free, now time.Time, every, late time.Duration) time.Time {
	if earliest := now.Add(-late); free.Before(earliest) {
		free = earliest
	}
	return free.Add(every)
}

// try takes a turn if one is free and no caller waits.
func (t *turns) try() (turn uint64, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	if len(t.queue) > 0 || now.Before(t.free) {
		return 0, false
	}
	t.free = after(now, now, t.every, 0)
	t.newest++
	return t.newest, true
}

// await waits for a turn. An error of w hands the place on.
func (t *turns) await(ctx context.Context, w Waiter, reason string) (turn uint64, err error) {
	if turn, ok := t.try(); ok {
		return turn, nil
	}
	wake := t.join()
	defer t.leave(wake)
	for {
		turn, wait, ok := t.ask(wake)
		if ok {
			return turn, nil
		}
		if err := w.Pause(ctx, wait, wake, reason); err != nil {
			return 0, err
		}
	}
}

// join adds a caller at the end of the queue. A value in wake tells the caller to ask again.
func (t *turns) join() (wake chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	wake = make(chan struct{}, 1)
	t.queue = append(t.queue, wake)
	return wake
}

// leave removes a caller from the queue.
func (t *turns) leave(wake chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	place := slices.Index(t.queue, wake)
	t.queue = slices.Delete(t.queue, place, place+1)
	if place == 0 {
		t.wakeFirst()
	}
}

// ask takes a turn for the first caller if one is free. For any other caller, wait is the time
// until its turn if no turn comes back and no caller leaves.
func (t *turns) ask(wake chan struct{}) (turn uint64, wait time.Duration, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now, place := time.Now(), slices.Index(t.queue, wake)
	if place > 0 || now.Before(t.free) {
		return 0, max(0, t.free.Sub(now)) + time.Duration(place)*t.every, false
	}
	t.free = after(t.free, now, t.every, t.late)
	t.newest++
	return t.newest, 0, true
}

// giveBack returns a turn without a run. The interval of an older turn is over already, because a
// later turn has begun.
func (t *turns) giveBack(turn uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if now := time.Now(); turn == t.newest && now.Before(t.free) {
		t.free = now
		t.wakeFirst()
	}
}

// wakeFirst tells the first caller that its turn may come earlier. t.mu is held.
func (t *turns) wakeFirst() {
	if len(t.queue) == 0 {
		return
	}
	select {
	case t.queue[0] <- struct{}{}:
	default: // it has not yet read an earlier value
	}
}
