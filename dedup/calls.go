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
	maxGhosts    = 4096 // claims that wait to be released
	ghostBatch   = 256  // of them in one call

	// ghostTime is how long a ghost is tried to be released. A store that stood still may grant the
	// claim when it goes on, and its lease begins then.
	ghostTime = 10 * time.Minute
)

// errNoAnswer means that a call was given up.
var errNoAnswer = fmt.Errorf("%w: no answer in time", ErrUnavailable)

// storeCalls makes the calls of a guard to the store and gives up calls after a time-out. Some
// clients of databases do not return at the end of the context, so a call that was given up goes on
// in a goroutine until the client returns. The claim may have been granted. After the call has
// returned, a release follows in the background. The release is repeated until the store has
// answered, for ten minutes or a lease at most (rule 32).
type storeCalls struct {
	release func(context.Context, []Release) error
	limit   time.Duration
	lease   time.Duration
	breaker breaker
	tx      atomic.Bool  // the guard is used for transactions
	inside  atomic.Int64 // functions that run in a transaction

	mu        sync.Mutex
	idle      sync.Cond // left or releasing has changed
	left      int       // calls that were given up and have not returned
	ghosts    []*ghost
	releasing bool // the goroutine of releaseGhosts runs
	closed    bool
	quit      chan struct{}
}

// ghost is a claim that may have been granted without an answer to the caller.
type ghost struct {
	release Release
	until   time.Time
}

func newStoreCalls(release func(context.Context, []Release) error, limit, lease time.Duration,
) *storeCalls {
	c := &storeCalls{release: release, limit: limit, lease: lease, quit: make(chan struct{})}
	c.idle.L = &c.mu
	return c
}

// close waits for calls that were given up, and tries a last time to release ghosts.
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

// begin asks for the right to make a call. If err is nil, end must be called once.
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

// endOf classifies the error of a call for the breaker. ctx is the caller's.
func endOf(ctx context.Context, err error) callEnd {
	switch {
	case err == nil, errors.Is(err, ErrClaimLost):
		return callAnswered
	case errors.Is(err, ErrUnavailable) && ctx.Err() == nil:
		return callFailed
	}
	return callUnknown
}

// tooLong makes the error of a call match errNoAnswer if the call ended with its time limit bounded,
// and not with ctx, which is the caller's. The call may have waited in a queue, unsent.
func tooLong(ctx, bounded context.Context, err error) error {
	if ctx.Err() != nil || bounded.Err() == nil || !errors.Is(err, bounded.Err()) ||
		errors.Is(err, ErrUnavailable) {
		return err
	}
	return fmt.Errorf("%w: %w", errNoAnswer, err)
}

// callResult is the result of a call.
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

// invoke runs fn and returns when fn does, or when ctx ends. In that case late is called after fn
// has returned. A panic of fn continues in the caller.
func (s *storeCalls) invoke(ctx context.Context, fn func(context.Context) error,
	late func()) error {
	s.mu.Lock()
	closed := s.closed
	s.mu.Unlock()
	if closed { // Close would not wait for a goroutine
		return fn(ctx)
	}
	done := make(chan callResult, 1)
	var returned, left bool // guarded by s.mu
	go func() {
		o := callResult{err: errNoAnswer} // if fn ends its goroutine
		defer func() {
			o.panicked = recover()
			s.mu.Lock()
			returned = true
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
	if !returned {
		left = true
		s.left++
		s.mu.Unlock()
		return fmt.Errorf("%w: %w", errNoAnswer, context.Cause(ctx))
	}
	s.mu.Unlock()
	return (<-done).get()
}

// giveBack releases a claim after a lost answer (rule 32). One try lasts until ctx ends; more
// follow in the background.
func (s *storeCalls) giveBack(ctx context.Context, r Release) {
	later := func() { s.addGhost(r) }
	err := s.invoke(ctx, func(ctx context.Context) error {
		return s.release(ctx, []Release{r})
	}, later)
	if err != nil && !errors.Is(err, ErrClaimLost) && !errors.Is(err, errNoAnswer) {
		later()
	}
}

// addGhost queues a claim to be released. If there are too many, the lease must end the claim.
// After Close only those of calls that Close waits for are taken.
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

// releaseGhosts runs while there are ghosts.
func (s *storeCalls) releaseGhosts() {
	for try := 1; ; {
		batch, releases := s.nextGhosts()
		if batch == nil {
			return
		}
		ctx, cancel := context.WithTimeout(context.Background(), s.limit)
		err := s.release(ctx, releases)
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

// nextGhosts takes the ghosts of one call from the front of the queue, each key once. Nil: the
// queue is empty, and the goroutine ends.
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

// settleGhosts notes how a call went. Ghosts that remain go to the end of the queue, so that no
// ghost holds up others.
func (s *storeCalls) settleGhosts(batch []*ghost, gone bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !gone && !s.closed {
		s.ghosts = append(s.ghosts, batch...)
	}
	return gone
}
