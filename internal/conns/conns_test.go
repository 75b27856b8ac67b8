package conns

import (
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/internal/testenv"
)

// withDialer returns settings with a dialer that a user has configured.
func withDialer(d dialer) *sarama.Config {
	sc := sarama.NewConfig()
	sc.Net.Proxy.Enable, sc.Net.Proxy.Dialer = true, d
	return sc
}

// foreign is a user's dialer without a context.
type foreign struct{ dials, closed atomic.Int64 }

type foreignConn struct {
	net.Conn
	of   *foreign
	once sync.Once
}

func (d *foreign) Dial(network, addr string) (net.Conn, error) {
	d.dials.Add(1)
	conn, err := net.Dial(network, addr)
	return &foreignConn{Conn: conn, of: d}, err
}

func (c *foreignConn) Close() error {
	c.once.Do(func() { c.of.closed.Add(1) })
	return c.Conn.Close()
}

// A cut ends reads at once and refuses dials until it is mended, for each kind of dialer.
func TestConnections_Cut(t *testing.T) {
	addr := testenv.SilentAddr(t)
	of := new(foreign)
	for name, sc := range map[string]*sarama.Config{
		"direct": sarama.NewConfig(), "a user's dialer": withDialer(of), "with a context": withDialer(new(net.Dialer)),
	} {
		t.Run(name, func(t *testing.T) {
			conns := New(sc)
			dial := conns.Config(sc).Net.Proxy.Dialer.Dial
			ended := make(chan error)
			for range 3 {
				conn, err := dial("tcp", addr)
				require.NoError(t, err)
				go func() {
					_, err := conn.Read(make([]byte, 1))
					ended <- err
				}()
			}
			closed, err := dial("tcp", addr)
			require.NoError(t, err)
			require.NoError(t, closed.Close())
			conns.Cut()
			for range 3 {
				require.ErrorIs(t, <-ended, net.ErrClosed)
			}
			_, err = dial("tcp", addr)
			require.ErrorIs(t, err, ErrCut)
			conns.Mend()
			conn, err := dial("tcp", addr)
			require.NoError(t, err)
			require.NoError(t, conn.Close())
			_, err = dial("tcp", addr)
			require.NoError(t, err)
			require.Len(t, conns.open, 1, "closed ones are forgotten")
			conns.Cut()
		})
	}
	require.EqualValues(t, 6, of.dials.Load())
	require.EqualValues(t, 6, of.closed.Load())
}

// slowDialer is a user's dialer that takes its time, and takes no context.
type slowDialer struct{ begun, release chan struct{} }

func (d *slowDialer) Dial(network, addr string) (net.Conn, error) {
	close(d.begun)
	<-d.release
	return net.Dial(network, addr)
}

// A cut ends dials under way. A connection that comes too late is closed.
func TestConnections_CutsDials(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	slow := &slowDialer{make(chan struct{}), make(chan struct{})}
	conns := New(withDialer(slow))
	failed := make(chan error)
	go func() {
		_, err := conns.Dial("tcp", l.Addr().String())
		failed <- err
	}()
	<-slow.begun
	conns.Cut()
	require.ErrorIs(t, <-failed, ErrCut)
	close(slow.release)
	conn, err := l.Accept()
	require.NoError(t, err)
	defer conn.Close()
	require.NoError(t, conn.SetReadDeadline(time.Now().Add(30*time.Second)))
	_, err = conn.Read(make([]byte, 1))
	require.ErrorContains(t, err, "EOF")
}

// sarama finds dead sockets in TCP connections only: they are not wrapped.
func TestConnections_LeaveTCPAsItIs(t *testing.T) {
	conn, err := New(sarama.NewConfig()).Dial("tcp", testenv.SilentAddr(t))
	require.NoError(t, err)
	defer conn.Close()
	require.IsType(t, new(net.TCPConn), conn)
}

// The configuration stays as it is, but for the dialer and pauses while the connections are cut.
func TestConnections_Config(t *testing.T) {
	sc := sarama.NewConfig()
	sc.Metadata.Retry.Backoff = time.Second
	sc.Producer.Transaction.Retry.BackoffFunc = func(retries, most int) time.Duration { return time.Duration(retries + most) }
	conns := New(sc)
	own := conns.Config(sc)
	require.False(t, sc.Net.Proxy.Enable, "the original")
	require.Equal(t, time.Second, own.Metadata.Retry.BackoffFunc(1, 2))
	require.EqualValues(t, 3, own.Producer.Transaction.Retry.BackoffFunc(1, 2))
	conns.Cut()
	require.Zero(t, own.Metadata.Retry.BackoffFunc(1, 2))
	require.Zero(t, own.Producer.Transaction.Retry.BackoffFunc(1, 2))
	require.NoError(t, own.Validate())
}
