package netproxy

import (
	"context"
	"errors"
	"net"
	"os"
	"sync"
	"time"
)

// Links makes the connections of a client inside a test, and breaks them. The zero value is ready,
// and lets all bytes pass. Safe for concurrent use.
type Links struct {
	mu      sync.Mutex
	open    map[*brittle]struct{}
	silent  chan struct{} // not nil: nothing passes until it is closed
	refuses error         // not nil: no connection can be made
}

// DialContext makes a connection.
func (l *Links) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	l.mu.Lock()
	refuses := l.refuses
	l.mu.Unlock()
	if refuses != nil {
		return nil, &net.OpError{Op: "dial", Net: network, Err: refuses}
	}
	conn, err := (&net.Dialer{Timeout: 5 * time.Second}).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	c := &brittle{Conn: conn, of: l, dead: make(chan struct{}), changed: make(chan struct{})}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.refuses != nil { // meanwhile
		return nil, errors.Join(&net.OpError{Op: "dial", Net: network, Err: l.refuses}, conn.Close())
	}
	if l.open == nil {
		l.open = make(map[*brittle]struct{})
	}
	l.open[c] = struct{}{}
	return c, nil
}

// Dial is DialContext for clients that have no context.
func (l *Links) Dial(network, address string) (net.Conn, error) {
	return l.DialContext(context.Background(), network, address)
}

// Cut closes all connections. The client can make new ones.
func (l *Links) Cut() {
	l.mu.Lock()
	open := make([]*brittle, 0, len(l.open))
	for c := range l.open {
		open = append(open, c)
	}
	l.mu.Unlock()
	for _, c := range open {
		_ = c.Close() // the client may have closed it
	}
}

// Refuse closes all connections, and refuses new ones with err until restore is called.
func (l *Links) Refuse(err error) (restore func()) {
	l.mu.Lock()
	l.refuses = err
	l.mu.Unlock()
	l.Cut()
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.refuses = nil
	}
}

// Silence drops all data until restore is called, like a firewall that drops packets. New
// connections are accepted, and are silent too.
func (l *Links) Silence() (restore func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	silent := make(chan struct{})
	l.silent = silent
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.silent = nil
		close(silent)
	}
}

// brittle is a connection that Links can break.
type brittle struct {
	net.Conn
	of   *Links
	once sync.Once
	dead chan struct{} // closed by Close

	mu          sync.Mutex
	read, write time.Time     // deadlines
	changed     chan struct{} // closed when a deadline changes
	held        []byte        // bytes that came during a silence
}

// Read implements net.Conn. One goroutine at a time may call it.
func (c *brittle) Read(p []byte) (int, error) {
	if len(c.held) == 0 {
		n, err := c.Conn.Read(p)
		if err != nil {
			return n, err
		}
		c.held = append(c.held, p[:n]...)
	}
	if err := c.wait(&c.read); err != nil {
		return 0, err
	}
	n := copy(p, c.held)
	c.held = c.held[n:]
	return n, nil
}

// Write implements net.Conn.
func (c *brittle) Write(p []byte) (int, error) {
	if err := c.wait(&c.write); err != nil {
		return 0, err
	}
	return c.Conn.Write(p)
}

// wait waits for the end of a silence, until the deadline.
func (c *brittle) wait(deadline *time.Time) error {
	for {
		c.of.mu.Lock()
		silent := c.of.silent
		c.of.mu.Unlock()
		if silent == nil {
			return nil
		}
		c.mu.Lock()
		until, changed := *deadline, c.changed
		c.mu.Unlock()
		var over <-chan time.Time
		if !until.IsZero() {
			over = time.After(time.Until(until))
		}
		select {
		case <-silent:
		case <-changed:
		case <-over:
			return os.ErrDeadlineExceeded
		case <-c.dead:
			return net.ErrClosed
		}
	}
}

// set changes deadlines, and wakes those that wait for them.
func (c *brittle) set(t time.Time, deadlines ...*time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, d := range deadlines {
		*d = t
	}
	close(c.changed)
	c.changed = make(chan struct{})
}

// SetDeadline implements net.Conn.
func (c *brittle) SetDeadline(t time.Time) error {
	c.set(t, &c.read, &c.write)
	return c.Conn.SetDeadline(t)
}

// SetReadDeadline implements net.Conn.
func (c *brittle) SetReadDeadline(t time.Time) error {
	c.set(t, &c.read)
	return c.Conn.SetReadDeadline(t)
}

// SetWriteDeadline implements net.Conn.
func (c *brittle) SetWriteDeadline(t time.Time) error {
	c.set(t, &c.write)
	return c.Conn.SetWriteDeadline(t)
}

// Close implements net.Conn.
func (c *brittle) Close() error {
	c.once.Do(func() {
		close(c.dead)
		c.of.mu.Lock()
		delete(c.of.open, c)
		c.of.mu.Unlock()
	})
	return c.Conn.Close()
}
