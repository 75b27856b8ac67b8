package kafkaauth

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

const (
	// fetchTimeout bounds one call of a cached source.
	fetchTimeout = 10 * time.Second
	// earlyTimeout bounds one call while the old token is still good.
	earlyTimeout = 5 * time.Second
	// retryPause is how long a failure is the answer to all callers.
	retryPause = time.Second
	// earlyPause is the same while the old token is still good.
	earlyPause = 10 * time.Second
	// unknownLife is how long a token without a known end is kept.
	unknownLife = 5 * time.Minute
	// margin is how long before its end a token is no longer used, at most a tenth of its life.
	margin = 5 * time.Second
)

// Cached returns a source that keeps the token of another one. After four fifths of the life of a
// token it fetches the next one. If that fails, the old token is used until shortly before its end.
// A token without a known end is kept for five minutes. The clock that is further on decides, the
// monotonic or the wall clock, so the time of a suspended machine counts.
//
// One fetch runs at a time, for at most 10 s, or 5 s while the old token is still good. Other
// callers wait for it: a broker ends a session with its token, and refuses to authenticate a
// connection twice within a second (KIP-368). After a failure the next fetch waits for one second,
// or for ten if the old token is still good.
//
// A fetch does not end with the context of a caller, and has the values of the context of the first
// caller. If the context of a caller ends, the caller gets the old token as long as that is good.
func Cached(source TokenSource) TokenSource {
	c := &cache{source: source}
	return c.get
}

// cache keeps one token.
type cache struct {
	source TokenSource

	mu      sync.Mutex
	token   Token
	refresh time.Time // when to fetch the next token
	end     time.Time // when the token must no longer be used
	err     error     // of the last fetch
	retry   time.Time // when to fetch after an error
	running *fetch    // nil: no fetch
}

// fetch is one call of the source, in a goroutine of its own, which ends within the limit of the
// call. The cache begins no other fetch before.
type fetch struct {
	done  chan struct{} // closed at the end
	token Token
	err   error
}

func (c *cache) get(ctx context.Context) (Token, error) {
	token, f, err := c.knownOrFetched(ctx)
	if f == nil {
		return token, err
	}
	select {
	case <-f.done:
		if f.err == nil {
			return f.token, nil
		}
		err = f.err
	case <-ctx.Done():
		err = fmt.Errorf("waiting for an access token: %w", context.Cause(ctx))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.good(time.Now()) { // it may have ended meanwhile
		return c.token, nil
	}
	return Token{}, err
}

// passed reports whether t has passed by one of the two clocks (rule 49). The monotonic clock may
// stand still while a machine is suspended. Round strips that clock.
func passed(t, now time.Time) bool { return !now.Before(t) || !now.Round(0).Before(t.Round(0)) }

// good reports whether the known token may be used. c.mu is held.
func (c *cache) good(now time.Time) bool { return c.token.Value != "" && !passed(c.end, now) }

// knownOrFetched returns the known token or error, or the fetch to wait for.
func (c *cache) knownOrFetched(ctx context.Context) (Token, *fetch, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	good := c.good(now)
	switch {
	case good && (!passed(c.refresh, now) || !passed(c.retry, now)):
		return c.token, nil, nil
	case !good && !passed(c.retry, now):
		return Token{}, nil, c.err
	}
	if c.running == nil && ctx.Err() == nil {
		limit := fetchTimeout
		if good {
			limit = earlyTimeout
		}
		c.running = c.begin(context.WithoutCancel(ctx), limit)
	}
	if c.running == nil { // the caller has given up already
		if good {
			return c.token, nil, nil
		}
		return Token{}, nil, fmt.Errorf("waiting for an access token: %w", context.Cause(ctx))
	}
	return Token{}, c.running, nil
}

// begin fetches a token in the background.
func (c *cache) begin(ctx context.Context, limit time.Duration) *fetch {
	f := &fetch{done: make(chan struct{}), err: errors.New("the source of access tokens has not returned")}
	go func() {
		defer c.finish(f) // also if the source ends the goroutine
		bounded, cancel := context.WithTimeout(ctx, limit)
		defer cancel()
		f.token, f.err = c.source(bounded)
		if f.err == nil {
			f.err = f.token.Check()
		}
		if f.err == nil && !f.token.Expires.IsZero() && !f.token.Expires.After(time.Now()) {
			f.err = errors.New("a new access token is expired already: compare the clocks")
		}
	}()
	return f
}

// finish keeps the end of a fetch, and lets the next one begin.
func (c *cache) finish(f *fetch) {
	c.mu.Lock()
	defer c.mu.Unlock()
	defer close(f.done)
	c.running = nil
	now := time.Now()
	if f.err == nil {
		c.keep(f.token, now)
		return
	}
	c.err, c.retry = f.err, now.Add(retryPause)
	if c.good(now) {
		c.retry = now.Add(earlyPause)
		if c.retry.After(c.end) {
			c.retry = c.end
		}
	}
}

// keep notes a new token. c.mu is held.
func (c *cache) keep(token Token, now time.Time) {
	life := unknownLife
	if !token.Expires.IsZero() {
		life = token.Expires.Sub(now)
	}
	c.token, c.err, c.retry = token, nil, time.Time{}
	c.refresh, c.end = now.Add(life/5*4), now.Add(life-min(margin, life/10))
}
