package netproxy

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// echo starts a server that sends each line back, and returns its address.
func echo(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var running sync.WaitGroup
	running.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			running.Go(func() {
				_, _ = io.Copy(c, c)
				_ = c.Close()
			})
		}
	})
	t.Cleanup(running.Wait)
	t.Cleanup(func() { _ = l.Close() })
	return l.Addr().String()
}

// say sends a line, and returns the answer.
func say(t *testing.T, c net.Conn, line string) (string, error) {
	t.Helper()
	_, err := fmt.Fprintln(c, line)
	require.NoError(t, err)
	return bufio.NewReader(c).ReadString('\n')
}

func dial(t *testing.T, p *Proxy) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", p.Addr())
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func TestProxyCarriesBothWays(t *testing.T) {
	p := Start(t, echo(t), nil)
	for range 3 {
		got, err := say(t, dial(t, p), "hello")
		require.NoError(t, err)
		require.Equal(t, "hello\n", got)
	}
}

// A pipe that returns ends its connection, at both ends, and no other.
func TestPipeThatReturnsEndsItsConnection(t *testing.T) {
	heard := make(chan string, 2)
	n := 0
	p := Start(t, echo(t), func() Link {
		if n++; n > 1 {
			return Link{}
		}
		return Link{Up: func(_ io.Writer, src io.Reader) {
			line, _ := bufio.NewReader(src).ReadString('\n')
			heard <- line
		}}
	})
	first, second := dial(t, p), dial(t, p)
	_, err := say(t, first, "lost")
	require.ErrorIs(t, err, io.EOF)
	require.Equal(t, "lost\n", <-heard)
	got, err := say(t, second, "kept")
	require.NoError(t, err)
	require.Equal(t, "kept\n", got)
}

func TestServerThatIsNotThere(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	addr := l.Addr().String()
	require.NoError(t, l.Close())
	_, err = io.ReadAll(dial(t, Start(t, addr, nil)))
	require.NoError(t, err, "an ordinary end")
}

// The end of the test closes all connections and waits for every goroutine.
func TestCleanupEndsOpenConnections(t *testing.T) {
	var c net.Conn
	t.Run("open", func(t *testing.T) {
		p := Start(t, echo(t), nil)
		var err error
		c, err = net.Dial("tcp", p.Addr())
		require.NoError(t, err)
		_, err = say(t, c, "hello")
		require.NoError(t, err)
	})
	_, err := io.ReadAll(c)
	require.NoError(t, err, "closed in order")
	require.NoError(t, c.Close())
}
