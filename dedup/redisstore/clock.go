package redisstore

import (
	"context"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// clock returns the server's time without asking each time.
type clock struct {
	mu     sync.Mutex
	asked  time.Time // by the monotonic clock; zero: never
	wall   time.Time // by the wall clock
	server int64     // the server's, in milliseconds since 1970
}

const (
	clockAge = time.Minute // then the server is asked again
	// tolerated difference of the host's two clocks; a larger one is a sleep or a step
	clockSkew = time.Second
)

// now is the server's time in milliseconds since 1970: the last answer, plus the time since by the
// monotonic clock of this host. The host's wall clock does not count. On a cluster any
// server is asked: the margin of the horizon covers the difference.
func (c *clock) now(ctx context.Context, client redis.UniversalClient) (int64, error) {
	c.mu.Lock()
	asked, wall, server := c.asked, c.wall, c.server
	c.mu.Unlock()
	if !asked.IsZero() {
		now := time.Now()
		passed := now.Sub(asked)
		apart := now.Round(0).Sub(wall) - passed
		if passed < clockAge && apart.Abs() < clockSkew {
			return server + passed.Milliseconds(), nil
		}
	}
	t, err := client.Time(ctx).Result()
	if err != nil {
		return 0, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asked, c.server = time.Now(), t.UnixMilli()
	c.wall = c.asked.Round(0)
	return c.server, nil
}

// births remembers the births of scopes. A birth never changes while the store is not emptied.
type births struct {
	mu    sync.Mutex
	known map[string]birth
}

// birth is the birth of one scope, in milliseconds since 1970.
type birth struct {
	born  int64
	asked time.Time // by the monotonic clock
}

// maxBirths bounds the memory of a program with very many scopes. A full map is emptied.
const maxBirths = 1000

// of returns the remembered birth of scope, and whether the caller must ask the server. Zero stands
// for an unknown birth, which each caller asks for. For a known birth, one caller a minute asks: the
// others go on while a server does not answer.
func (b *births) of(scope string) (born int64, ask bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	known, ok := b.known[scope]
	if ok && time.Since(known.asked) < clockAge {
		return known.born, false
	}
	if ok {
		b.known[scope] = birth{born: known.born, asked: time.Now()}
	}
	return known.born, true
}

// askAgain lets the next caller ask for the birth of scope.
func (b *births) askAgain(scope string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if known, ok := b.known[scope]; ok {
		b.known[scope] = birth{born: known.born}
	}
}

func (b *births) remember(scope string, born int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.known == nil || len(b.known) >= maxBirths {
		b.known = make(map[string]birth)
	}
	b.known[scope] = birth{born: born, asked: time.Now()}
}
