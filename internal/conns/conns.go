// Package conns dials for sarama clients and can close all connections of a client at once.
package conns

import (
	"context"
	"errors"
	"net"
	"sync"
	"syscall"
	"time"

	"github.com/IBM/sarama"
)

// dialer is the type of sarama's Net.Proxy.Dialer.
type dialer interface {
	Dial(network, addr string) (net.Conn, error)
}

// contextDialer is a dialer with dials that can be ended.
type contextDialer interface {
	DialContext(ctx context.Context, network, addr string) (net.Conn, error)
}

// ErrCut is the error of a dial while the connections are cut.
var ErrCut = errors.New("connections are cut")

// Conns dials for one sarama client and keeps the open connections, so that [Conns.Cut] can close
// all of them. The Close of a sarama client cannot do that. Each request holds a lock until the
// answer or the read time-out, and Close waits for the lock. A JoinGroup or SyncGroup is answered
// only when the rebalance is over. Safe for concurrent use.
type Conns struct {
	dial func(ctx context.Context, network, addr string) (net.Conn, error)

	mu   sync.Mutex
	ctx  context.Context // of the dials in progress; ended while the connections are cut
	end  context.CancelCauseFunc
	open map[net.Conn]struct{}
}

// New returns connections dialled as sc configures: directly, or with Net.Proxy.Dialer.
func New(sc *sarama.Config) *Conns {
	c := &Conns{open: make(map[net.Conn]struct{})}
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
		direct := &net.Dialer{
			Timeout: n.DialTimeout, KeepAlive: n.KeepAlive, LocalAddr: n.LocalAddr,
		}
		c.dial = direct.DialContext
	}
	return c
}

// Config returns a copy of sc that makes a client dial through c. While the connections are cut,
// sarama retries without a pause, so that the retries end at once.
func (c *Conns) Config(sc *sarama.Config) *sarama.Config {
	own := *sc
	own.Net.Proxy.Enable, own.Net.Proxy.Dialer = true, c
	metadata, producer, tx := &sc.Metadata.Retry, &sc.Producer.Retry, &sc.Producer.Transaction.Retry
	own.Metadata.Retry.BackoffFunc = c.backoff(metadata.BackoffFunc, metadata.Backoff)
	own.Producer.Retry.BackoffFunc = c.backoff(producer.BackoffFunc, producer.Backoff)
	own.Producer.Transaction.Retry.BackoffFunc = c.backoff(tx.BackoffFunc, tx.Backoff)
	return &own
}

// backoff returns the configured pause, and zero while the connections are cut.
func (c *Conns) backoff(
	f func(retries, most int) time.Duration, fixed time.Duration,
) func(retries, most int) time.Duration {
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

// Dial implements sarama's dialer.
func (c *Conns) Dial(network, addr string) (net.Conn, error) {
	return c.DialContext(context.Background(), network, addr)
}

// DialContext dials. While the connections are cut, and when they are cut during the dial, the
// error is [ErrCut].
func (c *Conns) DialContext(ctx context.Context, network, addr string) (net.Conn, error) {
	c.mu.Lock()
	uncut := c.ctx
	c.mu.Unlock()
	if uncut.Err() != nil {
		return nil, ErrCut
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(uncut, func() { cancel(ErrCut) })()
	conn, err := c.dial(ctx, network, addr)
	if err != nil {
		if uncut.Err() != nil {
			return nil, ErrCut
		}
		return nil, err
	}
	return c.keep(uncut, conn)
}

// keep notes an open connection. A TCP connection is not wrapped, since sarama checks TCP sockets
// for dead ones.
func (c *Conns) keep(uncut context.Context, conn net.Conn) (net.Conn, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if uncut.Err() != nil {
		_ = conn.Close() // nothing was sent on it
		return nil, ErrCut
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

// kept is a connection that notes Close, for kinds that cannot be asked.
type kept struct {
	net.Conn
	of *Conns
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

// Len returns the number of open connections.
func (c *Conns) Len() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.open)
}

// Cut closes all connections and ends the dials in progress. Requests that wait for an answer end
// with an error, and new ones fail until [Conns.Mend] is called.
func (c *Conns) Cut() {
	c.mu.Lock()
	c.end(ErrCut)
	open := c.open
	c.open = make(map[net.Conn]struct{})
	c.mu.Unlock()
	var closing sync.WaitGroup
	for conn := range open { // a connection of a user's dialer may close slowly
		closing.Go(func() { _ = conn.Close() })
	}
	closing.Wait()
}

// Mend permits dials again.
func (c *Conns) Mend() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ctx.Err() != nil {
		c.ctx, c.end = context.WithCancelCause(context.Background())
	}
}

func (c *Conns) isCut() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ctx.Err() != nil
}

// dialAside dials with a dialer that takes no context. If ctx ends first, the goroutine stays until
// the dialer returns, and closes the connection.
func dialAside(ctx context.Context, d dialer, network, addr string) (net.Conn, error) {
	type dialed struct {
		conn net.Conn
		err  error
	}
	results := make(chan dialed)
	go func() {
		conn, err := d.Dial(network, addr)
		select {
		case results <- dialed{conn, err}:
		case <-ctx.Done():
			if err == nil {
				_ = conn.Close()
			}
		}
	}()
	select {
	case r := <-results:
		return r.conn, r.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}
