package dedup

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

const (
	maxLeftCalls = 1024 // calls that were given up and have not returned
	maxGhosts    = 4096 // claims that wait to be given back
	ghostBatch   = 256  // of them in one call

	// ghostTime is for how long it is tried to give a claim back. A store that stood still may grant it when it goes on, and its lease
	// begins then.
	ghostTime = 10 * time.Minute
)

// errNoAnswer says that a call was given up.
var errNoAnswer = fmt.Errorf("%w: no answer in time", ErrUnavailable)

// storeCalls are the calls of a guard that it gives up after a time-out. Clients of databases do not all heed the end of a context, so
// such a call goes on in its own goroutine until the client gives it up too. Whatever it may have claimed is released after it has
// returned, in the background, until the store has answered, for ten minutes or a lease at most (rule 32).
type storeCalls struct {
	store   Store
	limit   time.Duration
	lease   time.Duration
	breaker breaker
	tx      atomic.Bool  // the guard is used for transactions
	inside  atomic.Int64 // functions that run in one

	mu        sync.Mutex
	idle      sync.Cond // left or releasing has changed
	left      int       // calls that were given up and have not returned
	ghosts    []*ghost
	releasing bool // the goroutine that gives ghosts back runs
	closed    bool
	quit      chan struct{}
}

// ghost is a claim that may have been granted unheard.
type ghost struct {
	release Release
	until   time.Time
}

func newStoreCalls(s Store, limit, lease time.Duration) *storeCalls {
	c := &storeCalls{store: s, limit: limit, lease: lease, quit: make(chan struct{})}
	c.idle.L = &c.mu
	return c
}

// close waits for calls that were given up, and makes a last attempt to give ghosts back.
func (s *storeCalls) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.closed = true
		close(s.quit)
	}
	for s.left > 0 || s.releasing {
		s.idle.Wait()
	}
}

// begin asks for the right to make a call. end must be called if err is nil, once.
func (s *storeCalls) begin() (end func(callEnd), err error) {
	s.mu.Lock()
	full := s.left >= maxLeftCalls
	s.mu.Unlock()
	pass, ok := callPass{}, false
	if !full {
		pass, ok = s.breaker.begin(time.Now())
	}
	if !ok {
		return nil, errOpen
	}
	return func(e callEnd) { s.breaker.end(pass, time.Now(), e) }, nil
}

// endOf is what the error of a call says of the store. ctx is the caller's.
func endOf(ctx context.Context, err error) callEnd {
	switch {
	case err == nil, errors.Is(err, ErrClaimLost):
		return callAnswered
	case errors.Is(err, ErrUnavailable) && ctx.Err() == nil:
		return callFailed
	}
	return callUnknown
}

// callResult is what a call came to.
type callResult struct {
	err      error
	panicked any
}

func (r callResult) get() error {
	if r.panicked != nil {
		panic(r.panicked)
	}
	return r.err
}

// do runs fn and returns when it does, or when ctx ends. In that case late is called after fn has returned. A panic of fn goes on in the
// caller.
func (s *storeCalls) do(ctx context.Context, fn func(context.Context) error, late func()) error {
	s.mu.Lock()
	closed := s.closed
	s.mu.Unlock()
	if closed { // nobody would wait for a goroutine
		return fn(ctx)
	}
	done := make(chan callResult, 1)
	var over, left bool // guarded by s.mu
	go func() {
		o := callResult{err: errNoAnswer} // if fn ends its goroutine
		defer func() {
			o.panicked = recover()
			s.mu.Lock()
			over = true
			gone := left
			s.mu.Unlock()
			if !gone {
				done <- o
				return
			}
			late()
			s.mu.Lock()
			defer s.mu.Unlock()
			s.left--
			s.idle.Broadcast()
		}()
		o.err = fn(ctx)
	}()
	select {
	case o := <-done:
		return o.get()
	case <-ctx.Done():
	}
	s.mu.Lock()
	if !over {
		left = true
		s.left++
		s.mu.Unlock()
		return fmt.Errorf("%w: %w", errNoAnswer, context.Cause(ctx))
	}
	s.mu.Unlock()
	return (<-done).get()
}

// giveBack releases what a claim may have got whose answer did not come (rule 32). It tries once until ctx ends; further attempts are made
// in the background.
func (s *storeCalls) giveBack(ctx context.Context, r Release) {
	later := func() { s.addGhost(r) }
	err := s.do(ctx, func(ctx context.Context) error { return s.store.Release(ctx, []Release{r}) }, later)
	if err != nil && !errors.Is(err, ErrClaimLost) && !errors.Is(err, errNoAnswer) {
		later()
	}
}

// addGhost queues a claim to be given back. If there are too many, its lease must end it. A guard that was closed takes none but those that
// its Close waits for.
func (s *storeCalls) addGhost(r Release) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.ghosts) >= maxGhosts || s.closed && s.left == 0 {
		return
	}
	s.ghosts = append(s.ghosts, &ghost{release: r, until: time.Now().Add(max(s.lease, ghostTime))})
	if !s.releasing {
		s.releasing = true
		go s.releaseGhosts()
	}
}

// releaseGhosts runs while there are any.
func (s *storeCalls) releaseGhosts() {
	for try := 1; ; {
		batch, releases := s.nextGhosts()
		if batch == nil {
			return
		}
		ctx, cancel := context.WithTimeout(context.Background(), s.limit)
		err := s.store.Release(ctx, releases)
		cancel()
		if s.settleGhosts(batch, err == nil || errors.Is(err, ErrClaimLost)) {
			try = 1
			continue
		}
		timer := time.NewTimer(min(2*time.Second, 50*time.Millisecond<<min(try, 6)))
		try++
		select {
		case <-timer.C:
		case <-s.quit:
		}
		timer.Stop()
	}
}

// nextGhosts takes the ghosts of one call from the front of the queue, each key once. Nil: there are none, and the goroutine ends.
func (s *storeCalls) nextGhosts() (batch []*ghost, releases []Release) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now, keys := time.Now(), make(map[Key]bool)
	rest := s.ghosts[:0]
	for _, g := range s.ghosts {
		switch {
		case !now.Before(g.until):
		case len(batch) == ghostBatch, keys[g.release.Key]:
			rest = append(rest, g)
		default:
			keys[g.release.Key] = true
			batch, releases = append(batch, g), append(releases, g.release)
		}
	}
	clear(s.ghosts[len(rest):])
	s.ghosts = rest
	if batch == nil {
		s.ghosts, s.releasing = nil, false
		s.idle.Broadcast()
	}
	return batch, releases
}

// settleGhosts notes how a call went. Ghosts that are still there go to the end of the queue, so that none is in the way of others.
func (s *storeCalls) settleGhosts(batch []*ghost, gone bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !gone && !s.closed {
		s.ghosts = append(s.ghosts, batch...)
	}
	return gone
}
