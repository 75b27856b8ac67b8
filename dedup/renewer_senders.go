package dedup

import (
	"sync"
	"time"
)

// A call of the store that takes longer than slowCall is slow. Then another sender takes the queue,
// so that a hanging call holds up its own callers only. There are at most maxSlow such other
// senders of a queue.
const (
	slowCall = 100 * time.Millisecond
	maxSlow  = 3
)

// senders counts the goroutines that send the calls of one queue.
type senders struct {
	mu      sync.Mutex
	atOnce  int // calls that are not slow, at most
	running int
	slow    int // of them in a slow call
}

// free reports whether another sender may run. mu is held.
func (s *senders) free() bool { return s.running-s.slow < s.atOnce && !s.full() }

// full reports whether no other sender may run before one of them ends. mu is held.
func (s *senders) full() bool { return s.running >= s.atOnce+maxSlow }

// watched makes a call. If the call is slow, watched calls more under both locks, which starts
// another sender, unless the renewer is closed: Close waits for no further sender.
func (k *LeaseRenewer) watched(s *senders, call, more func()) {
	slow := false // under s.mu
	over := false
	timer := time.AfterFunc(slowCall, func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		s.mu.Lock()
		defer s.mu.Unlock()
		if over {
			return
		}
		slow = true
		s.slow++
		more()
	})
	defer func() { // also if the store panics
		timer.Stop()
		s.mu.Lock()
		defer s.mu.Unlock()
		if over = true; slow {
			s.slow--
		}
	}()
	call()
}
