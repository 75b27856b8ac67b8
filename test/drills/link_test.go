package drills

import (
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// link forwards connections to a server, until it is cut. Then its connections stay open, and no
// byte arrives. Servers buffer their unsent bytes, as in a partitioned network.
type link struct {
	addr string
	to   string
	mu   sync.Mutex
	open []net.Conn
	cut  chan struct{}
	once sync.Once
}

func newLink(t testing.TB, to string) *link {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	k := &link{addr: l.Addr().String(), to: to, cut: make(chan struct{})}
	var all sync.WaitGroup
	all.Go(func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() { k.forward(in, &all) })
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		k.stop()
		k.mu.Lock()
		for _, c := range k.open {
			_ = c.Close()
		}
		k.mu.Unlock()
		all.Wait()
	})
	return k
}

// stop cuts the link, for new connections too.
func (k *link) stop() { k.once.Do(func() { close(k.cut) }) }

func (k *link) isCut() bool {
	select {
	case <-k.cut:
		return true
	default:
		return false
	}
}

func (k *link) forward(in net.Conn, all *sync.WaitGroup) {
	out, err := net.DialTimeout("tcp", k.to, time.Second)
	if err != nil {
		_ = in.Close()
		return
	}
	k.mu.Lock()
	k.open = append(k.open, in, out)
	k.mu.Unlock()
	all.Go(func() { k.pass(in, out) })
	all.Go(func() { k.pass(out, in) })
}

// pass copies bytes until the link is cut or a side closes.
func (k *link) pass(from, to net.Conn) {
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		if k.isCut() {
			return
		}
		if n > 0 {
			if _, err := to.Write(buf[:n]); err != nil {
				_ = from.Close()
				return
			}
		}
		if err != nil {
			if err == io.EOF { //nolint:errorlint // Read returns io.EOF itself
				_ = to.Close()
			}
			return
		}
	}
}
