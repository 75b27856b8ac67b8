package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/idem-go/idem/dedup"
)

// plug is the power supply of a worker of the demonstration. Every connection of the worker goes
// through the plug. Once the plug is pulled, the worker has no further effect: it cannot complete a
// claim, commit an offset or leave the group. Other workers see a lost machine. kill -9 would also
// end the store and the broker, which run in this process.
type plug struct {
	out chan struct{} // closed when the plug is pulled

	// effects hold it for reading, so that each is either before or after the pull
	mu     sync.RWMutex
	pulled bool
	conns  map[net.Conn]struct{}
}

var errUnplugged = errors.New("worker is unplugged")

func newPlug() *plug { return &plug{out: make(chan struct{}), conns: make(map[net.Conn]struct{})} }

// pull disconnects the worker.
func (p *plug) pull() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.pulled {
		return
	}
	p.pulled = true
	close(p.out)
	for c := range p.conns {
		_ = c.Close()
	}
}

// do runs effect unless the plug is out.
func (p *plug) do(effect func() error) error {
	p.mu.RLock()
	defer p.mu.RUnlock()
	if p.pulled {
		return errUnplugged
	}
	return effect()
}

// Dial is the only connection of the worker to Kafka.
func (p *plug) Dial(network, addr string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.pulled {
		_ = conn.Close()
		return nil, errUnplugged
	}
	p.conns[conn] = struct{}{}
	return &pluggedConn{Conn: conn, plug: p}, nil
}

type pluggedConn struct {
	net.Conn
	plug *plug
}

// Close closes the connection and removes it from the plug.
func (c *pluggedConn) Close() error {
	c.plug.mu.Lock()
	defer c.plug.mu.Unlock()
	delete(c.plug.conns, c.Conn)
	return c.Conn.Close()
}

// pluggedStore is the only connection of the worker to the store.
type pluggedStore struct {
	dedup.Store
	plug *plug
}

func (s *pluggedStore) do(verb func() error) error {
	err := s.plug.do(verb)
	if errors.Is(err, errUnplugged) {
		return fmt.Errorf("%w: %w", dedup.ErrUnavailable, err)
	}
	return err
}

// Claim implements dedup.Store.
func (s *pluggedStore) Claim(
	ctx context.Context, t dedup.Token, lease time.Duration, reqs []dedup.Request,
	answers []dedup.Answer,
) error {
	return s.do(func() error { return s.Store.Claim(ctx, t, lease, reqs, answers) })
}

// Renew implements dedup.Store.
func (s *pluggedStore) Renew(ctx context.Context, lease time.Duration, claims []dedup.Claim) error {
	return s.do(func() error { return s.Store.Renew(ctx, lease, claims) })
}

// Complete implements dedup.Store.
func (s *pluggedStore) Complete(ctx context.Context, done []dedup.Completion) error {
	return s.do(func() error { return s.Store.Complete(ctx, done) })
}

// Release implements dedup.Store.
func (s *pluggedStore) Release(ctx context.Context, claims []dedup.Release) error {
	return s.do(func() error { return s.Store.Release(ctx, claims) })
}
