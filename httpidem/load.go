package httpidem

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"sync"

	"github.com/idem-go/idem/dedup"
)

// load is what the keyed requests of a middleware hold: its bounds are those of all principals together, but for one. Safe for concurrent
// use.
type load struct {
	mu       sync.Mutex
	requests int
	by       map[owner]int // of whom; empty if Public
	bytes    int64         // of bodies
	bodies   map[bodyID]*sharedBody
}

// bodyID is where the body of a request is looked for. Two with the same may still differ, since a program may choose what is compared.
type bodyID struct {
	key         dedup.Key
	fingerprint dedup.Fingerprint
}

// sharedBody is the body of all copies of a request that are at work: those that wait for the first one hold none of their own.
type sharedBody struct {
	data  []byte
	users int
}

// held is what one request holds of a load. Its fields are guarded by load.mu.
type held struct {
	seated bool
	bytes  int64 // of its own body
	shared bodyID
	shares bool
}

// seat counts a request from before its body is read until its handler has returned, whether or not its client is still there.
func (m *Middleware) seat(q *request) (status int, code string, err error) {
	l := &m.load
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case !m.cfg.Public && l.by[q.who] >= m.cfg.MaxPrincipalRequests:
		return http.StatusTooManyRequests, "too_many_requests", clientError("Too many requests of this sender are at work. Try again later, with the same key.")
	case l.requests >= m.cfg.MaxRequests:
		return overloaded()
	}
	if l.by == nil {
		l.by, l.bodies = make(map[owner]int), make(map[bodyID]*sharedBody)
	}
	l.requests++
	if !m.cfg.Public {
		l.by[q.who]++
	}
	q.held.seated = true
	return 0, "", nil
}

func overloaded() (status int, code string, err error) {
	return http.StatusServiceUnavailable, "overloaded", clientError("The server is at work on too many requests. Try again later, with the same key.")
}

// unseat gives back all that a request holds. It may be called more than once.
func (m *Middleware) unseat(q *request) {
	l := &m.load
	l.mu.Lock()
	defer l.mu.Unlock()
	if !q.held.seated {
		return
	}
	l.requests--
	if !m.cfg.Public {
		if l.by[q.who]--; l.by[q.who] <= 0 {
			delete(l.by, q.who)
		}
	}
	l.bytes -= q.held.bytes
	if q.held.shares {
		s := l.bodies[q.held.shared]
		if s.users--; s.users == 0 {
			l.bytes -= int64(len(s.data))
			delete(l.bodies, q.held.shared)
		}
	}
	q.held = held{}
}

// errOverloaded says that there is no room for more of a body.
var errOverloaded = errors.New("httpidem: Config.MaxBytes are held")

// chargedBody is a body whose bytes are counted while they are read: what is announced only costs nothing.
type chargedBody struct {
	io.ReadCloser
	q *request
}

// Read is that of the body, until there is no room for more.
func (b *chargedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	l := &b.q.m.load
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.bytes+int64(n) > b.q.m.cfg.MaxBytes {
		return 0, errOverloaded
	}
	l.bytes += int64(n)
	b.q.held.bytes += int64(n)
	return n, err
}

// share lets the request have the body of one at work that is equal byte for byte, in the place of its own. server is the request as the server
// knows it, which must not hold the body either.
func (q *request) share(server *http.Request) {
	if len(q.body) == 0 {
		return
	}
	l := &q.m.load
	l.mu.Lock()
	defer l.mu.Unlock()
	id := bodyID{q.call.Key, q.call.Fingerprint}
	s := l.bodies[id]
	if s != nil && !bytes.Equal(s.data, q.body) {
		return
	}
	if s == nil {
		s = &sharedBody{data: q.body}
		l.bodies[id] = s
		l.bytes += int64(len(s.data))
	}
	s.users++
	l.bytes -= q.held.bytes
	q.held.bytes, q.held.shared, q.held.shares = 0, id, true
	q.body = s.data
	q.rewind()
	q.left, server.Body = q.r.Body, q.r.Body
}
