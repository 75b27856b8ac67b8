package soak

import (
	"bytes"
	"io"
	"sync/atomic"
	"testing"

	"github.com/idem-go/idem/internal/netproxy"
)

// loss is the part of an exchange that a proxy loses once.
type loss int32

const (
	nothing    loss = iota
	theRequest      // the server does not act
	theAnswer       // the server acts, and the worker does not learn it
)

// wire is the way of one worker to the servers of its store. The processes of a worker that is
// killed and replaced share it.
type wire struct {
	through map[string]string
	commits bool // a request counts only if it is a COMMIT
	next    atomic.Int32
	lost    atomic.Int64 // requests and answers
}

func newWire(t testing.TB, addrs []string, commits bool) *wire {
	t.Helper()
	w := &wire{through: make(map[string]string), commits: commits}
	for _, addr := range addrs {
		w.through[addr] = netproxy.Start(t, addr, func() netproxy.Link { return netproxy.Link{Up: w.up} }).Addr()
	}
	return w
}

// lose makes the proxy lose something once, of any connection.
func (w *wire) lose(what loss) { w.next.Store(int32(what)) }

// up forwards requests. It ends both directions of its connection when it returns, so that the
// answer to the last request is lost.
func (w *wire) up(server io.Writer, client io.Reader) {
	buf := make([]byte, 64<<10)
	for {
		n, err := client.Read(buf)
		if err != nil {
			return
		}
		what := nothing
		if now := loss(w.next.Load()); now != nothing && w.counts(buf[:n]) && w.next.CompareAndSwap(int32(now), int32(nothing)) {
			what = now
			w.lost.Add(1)
		}
		if what == theRequest {
			return
		}
		if _, err := server.Write(buf[:n]); err != nil || what == theAnswer {
			return
		}
	}
}

func (w *wire) counts(request []byte) bool {
	return !w.commits || bytes.Contains(bytes.ToLower(request), []byte("commit"))
}
