// Package netproxy breaks the network between a test and a server. [Proxy] is a TCP proxy that can
// hold bytes back. [Links] breaks the connections of a client with a dialer of its own. The package
// knows no protocol: each test brings the [Pipe] that understands its own.
package netproxy

import (
	"context"
	"io"
	"net"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// Pipe copies one direction of a connection. It must return when src or dst fails. When a Pipe
// returns, the proxy closes both connections.
type Pipe func(dst io.Writer, src io.Reader)

// Link is the two directions of one connection through the proxy: Up copies from the client to the
// server, Down from the server to the client. Each runs in a goroutine of its own. A nil Pipe
// copies all data.
type Link struct{ Up, Down Pipe }

// Proxy listens on the loopback interface. Safe for concurrent use.
type Proxy struct {
	listener net.Listener
	target   string
	link     func() Link
	dialing  context.Context // the context of the test
	running  sync.WaitGroup

	mu    sync.Mutex
	conns map[net.Conn]bool // nil once closed
}

// Start starts a proxy to the TCP address target. link is called once for each connection. A nil
// link copies all data. Cleanup closes all connections and waits for all goroutines.
func Start(t testing.TB, target string, link func() Link) *Proxy {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	if link == nil {
		link = func() Link { return Link{} }
	}
	p := &Proxy{
		listener: l, target: target, link: link, dialing: t.Context(),
		conns: make(map[net.Conn]bool),
	}
	p.running.Go(p.accept)
	t.Cleanup(p.close)
	return p
}

// Addr returns the address of the proxy, as host:port.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

func (p *Proxy) close() {
	_ = p.listener.Close()
	p.mu.Lock()
	for c := range p.conns {
		_ = c.Close()
	}
	p.conns = nil
	p.mu.Unlock()
	p.running.Wait()
}

func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		server, err := (&net.Dialer{}).DialContext(p.dialing, "tcp", p.target)
		if err != nil {
			_ = client.Close()
			continue
		}
		if !p.track(client, server) {
			return
		}
		link := p.link()
		p.running.Go(func() { p.carry(link.Up, server, client) })
		p.running.Go(func() { p.carry(link.Down, client, server) })
	}
}

func (p *Proxy) carry(pipe Pipe, dst, src net.Conn) {
	defer p.hangUp(dst, src)
	if pipe == nil {
		_, _ = io.Copy(dst, src) // the end of a connection is no failure of the test
		return
	}
	pipe(dst, src)
}

// track registers connections for close. If the proxy is closed already, track closes them and
// returns false.
func (p *Proxy) track(conns ...net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range conns {
		if p.conns == nil {
			_ = c.Close()
			continue
		}
		p.conns[c] = true
	}
	return p.conns != nil
}

func (p *Proxy) hangUp(conns ...net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range conns {
		_ = c.Close()
		delete(p.conns, c)
	}
}
