package httpidem

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"sync"

	"github.com/idem-go/idem/dedup"
)

// load counts the keyed requests of a middleware and their bytes, of all principals and of each
// one. Safe for concurrent use.
type load struct {
	mu       sync.Mutex
	requests int
	by       map[owner]int // by principal; empty if Public
	bytes    int64         // of bodies
	bodies   map[bodyID]*sharedBody
}

// bodyID identifies the body of a request. Two requests with one bodyID may have different bodies,
// since Config.Fingerprint may ignore parts.
type bodyID struct {
	key         dedup.Key
	fingerprint dedup.Fingerprint
}

// sharedBody is the body of all copies of a running request: a waiting copy has no body of its
// own.
type sharedBody struct {
	data  []byte
	users int
}

// held is the share of one request in a load. load.mu guards its fields.
type held struct {
	acquired bool
	bytes    int64 // of its own body
	shared   bodyID
	shares   bool
}

// acquire counts a request, from before its body is read until its handler has returned, even if
// its client has left.
func (m *Middleware) acquire(q *request) (status int, code string, err error) {
	l := &m.load
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case !m.cfg.Public && l.by[q.who] >= m.cfg.MaxPrincipalRequests:
		return http.StatusTooManyRequests, "too_many_requests", clientError(
			"Too many requests of this sender are being processed. Try again later, with the " +
				"same key.",
		)
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
	q.held.acquired = true
	return 0, "", nil
}

func overloaded() (status int, code string, err error) {
	return http.StatusServiceUnavailable, "overloaded", clientError(
		"The server is processing too many requests. Try again later, with the same key.",
	)
}

// release returns everything that a request holds. Further calls have no effect.
func (m *Middleware) release(q *request) {
	if q.form != nil {
		_ = q.form.RemoveAll()
		q.form = nil
	}
	l := &m.load
	l.mu.Lock()
	defer l.mu.Unlock()
	if !q.held.acquired {
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

// errOverloaded means that MaxBytes are in use.
var errOverloaded = errors.New("httpidem: Config.MaxBytes are in use")

// countedBody counts the bytes of a body while they are read, because an announced length is
// free for the client.
type countedBody struct {
	io.ReadCloser
	q *request
}

// Read implements [io.Reader]. It fails if MaxBytes are in use.
func (b *countedBody) Read(p []byte) (int, error) {
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

// share replaces the body of the request by an equal one of a running copy. server is the
// request of the server, which must not hold the body either.
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
