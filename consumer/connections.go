package consumer

import (
	"context"
	"errors"
	"net"
	"sync"
	"syscall"
	"time"

	"github.com/IBM/sarama"
)

// dialer is what sarama takes as Net.Proxy.Dialer.
type dialer interface {
	Dial(network, addr string) (net.Conn, error)
}

// contextDialer is a dialer whose dials can be ended.
type contextDialer interface {
	DialContext(ctx context.Context, network, addr string) (net.Conn, error)
}

// errCut is the error of a dial while the connections are cut.
var errCut = errors.New("connections are cut")

// connections dials for one sarama client and keeps the open connections, so that all of them can be closed at once.
// sarama's own Close cannot do that. It waits for a lock that each request holds until its answer or its read time-out, and
// the answer to a JoinGroup or SyncGroup takes as long as a rebalance. The methods may be called from several goroutines.
type connections struct {
	dial func(ctx context.Context, network, addr string) (net.Conn, error)

	mu   sync.Mutex
	ctx  context.Context // of the dials under way; it has ended while the connections are cut
	end  context.CancelCauseFunc
	open map[net.Conn]struct{}
}

// newConnections dials as sc says: directly, or with its Net.Proxy.Dialer.
func newConnections(sc *sarama.Config) *connections {
	c := &connections{open: make(map[net.Conn]struct{})}
	c.ctx, c.end = context.WithCancelCause(context.Background())
	n := &sc.Net
	switch d := n.Proxy.Dialer.(type) {
	case contextDialer:
		c.dial = d.DialContext
	case dialer:
		c.dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
			return dialAside(ctx, d, network, addr)
		}
	}
	if c.dial == nil || !n.Proxy.Enable {
		c.dial = (&net.Dialer{Timeout: n.DialTimeout, KeepAlive: n.KeepAlive, LocalAddr: n.LocalAddr}).DialContext
	}
	return c
}

// config returns a copy of sc with which sarama dials here. While the connections are cut, sarama's tries follow each other
// without a pause, so that they end at once.
func (c *connections) config(sc *sarama.Config) *sarama.Config {
	own := *sc
	own.Net.Proxy.Enable, own.Net.Proxy.Dialer = true, c
	own.Metadata.Retry.BackoffFunc = c.backoff(sc.Metadata.Retry.BackoffFunc, sc.Metadata.Retry.Backoff)
	own.Producer.Retry.BackoffFunc = c.backoff(sc.Producer.Retry.BackoffFunc, sc.Producer.Retry.Backoff)
	own.Producer.Transaction.Retry.BackoffFunc = c.backoff(sc.Producer.Transaction.Retry.BackoffFunc, sc.Producer.Transaction.Retry.Backoff)
	return &own
}

// backoff is as configured, and zero while the connections are cut.
func (c *connections) backoff(f func(retries, most int) time.Duration, fixed time.Duration) func(retries, most int) time.Duration {
	return func(retries, most int) time.Duration {
		switch {
		case c.isCut():
			return 0
		case f != nil:
			return f(retries, most)
		}
		return fixed
	}
}

// Dial implements dialer.
func (c *connections) Dial(network, addr string) (net.Conn, error) {
	return c.DialContext(context.Background(), network, addr)
}

// DialContext dials, unless the connections are cut. It ends when they are cut.
func (c *connections) DialContext(ctx context.Context, network, addr string) (net.Conn, error) {
	c.mu.Lock()
	uncut := c.ctx
	c.mu.Unlock()
	if uncut.Err() != nil {
		return nil, errCut
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(uncut, func() { cancel(errCut) })()
	conn, err := c.dial(ctx, network, addr)
	if err != nil {
		if uncut.Err() != nil {
			return nil, errCut
		}
		return nil, err
	}
	return c.keep(uncut, conn)
}

// keep notes an open connection. TCP connections stay as they are, since sarama looks into them for dead sockets.
func (c *connections) keep(uncut context.Context, conn net.Conn) (net.Conn, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if uncut.Err() != nil {
		_ = conn.Close() // nothing was sent on it
		return nil, errCut
	}
	if _, ok := conn.(*net.TCPConn); !ok {
		conn = &kept{Conn: conn, of: c}
	}
	for old := range c.open {
		if isClosed(old) {
			delete(c.open, old)
		}
	}
	c.open[conn] = struct{}{}
	return conn, nil
}

// kept is a connection of a kind that cannot be asked whether it is closed.
type kept struct {
	net.Conn
	of *connections
}

// Close closes the connection and forgets it.
func (k *kept) Close() error {
	k.of.mu.Lock()
	delete(k.of.open, k)
	k.of.mu.Unlock()
	return k.Conn.Close()
}

// isClosed reports whether this process has closed a TCP connection.
func isClosed(conn net.Conn) bool {
	tcp, ok := conn.(syscall.Conn)
	if !ok {
		return false
	}
	raw, err := tcp.SyscallConn()
	return err != nil || raw.Control(func(uintptr) {}) != nil
}

// cut closes all connections and ends the dials under way. Requests that wait for an answer end with an error, and new ones
// fail until mend is called.
func (c *connections) cut() {
	c.mu.Lock()
	c.end(errCut)
	open := c.open
	c.open = make(map[net.Conn]struct{})
	c.mu.Unlock()
	var closing sync.WaitGroup
	for conn := range open { // a connection of a foreign dialer may take its time
		closing.Go(func() { _ = conn.Close() })
	}
	closing.Wait()
}

// mend permits dials again.
func (c *connections) mend() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ctx.Err() != nil {
		c.ctx, c.end = context.WithCancelCause(context.Background())
	}
}

func (c *connections) isCut() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ctx.Err() != nil
}

// dialAside dials with a dialer that takes no context. If ctx ends first, the goroutine stays until the dialer returns, and
// closes the connection.
func dialAside(ctx context.Context, d dialer, network, addr string) (net.Conn, error) {
	type dialed struct {
		conn net.Conn
		err  error
	}
	came := make(chan dialed)
	go func() {
		conn, err := d.Dial(network, addr)
		select {
		case came <- dialed{conn, err}:
		case <-ctx.Done():
			if err == nil {
				_ = conn.Close()
			}
		}
	}()
	select {
	case r := <-came:
		return r.conn, r.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}
