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
// A token without a known end is kept for five minutes.
//
// One fetch runs at a time, for at most 10 s, or 5 s while the old token is still good. Other
// callers wait for it: a broker ends a session with its token, and refuses to authenticate a
// connection twice within a second (KIP-368). After a failure the next fetch waits for one second,
// or for ten if the old token is still good.
func Cached(source TokenSource) TokenSource {
	c := &cache{source: source, fetching: make(chan struct{}, 1)}
	return c.get
}

// cache keeps one token.
type cache struct {
	source   TokenSource
	fetching chan struct{} // has one element during a fetch

	mu      sync.Mutex
	token   Token
	refresh time.Time // when to fetch the next token
	end     time.Time // when the token must no longer be used
	err     error     // of the last fetch
	retry   time.Time // when to fetch after an error
}

func (c *cache) get(ctx context.Context) (Token, error) {
	token, state, err := c.known()
	if state == final {
		return token, err
	}
	select {
	case c.fetching <- struct{}{}:
	case <-ctx.Done():
		if state == early {
			return token, nil
		}
		return Token{}, fmt.Errorf("waiting for an access token: %w", context.Cause(ctx))
	}
	defer func() { <-c.fetching }()
	if token, state, err = c.known(); state == final { // another caller was faster
		return token, err
	}
	return c.fetch(ctx, state == early)
}

// state says how far the known token serves.
type state int

const (
	none  state = iota // fetch a token
	early              // the token is good, and it is time for the next one
	final              // the token or the error is the answer
)

func (c *cache) known() (Token, state, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	good := c.token.Value != "" && now.Before(c.end)
	switch {
	case good && (now.Before(c.refresh) || now.Before(c.retry)):
		return c.token, final, nil
	case good:
		return c.token, early, nil
	case now.Before(c.retry):
		return Token{}, final, c.err
	}
	return Token{}, none, nil
}

func (c *cache) fetch(ctx context.Context, good bool) (Token, error) {
	limit, pause := fetchTimeout, retryPause
	if good {
		limit, pause = earlyTimeout, earlyPause
	}
	bounded, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	token, err := c.source(bounded)
	now := time.Now()
	if err == nil {
		err = token.Check()
	}
	if err == nil && !token.Expires.IsZero() && !token.Expires.After(now) {
		err = errors.New("a new access token is expired already: compare the clocks")
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case err == nil:
		c.keep(token, now)
		return token, nil
	case ctx.Err() == nil: // else the caller has given up, which says nothing about the source
		c.err, c.retry = err, now.Add(pause)
		if good && c.retry.After(c.end) {
			c.retry = c.end
		}
	}
	if good && now.Before(c.end) {
		return c.token, nil
	}
	return Token{}, err
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
