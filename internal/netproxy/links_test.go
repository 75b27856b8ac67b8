package netproxy

import (
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestLinks: connections pass bytes, are silent up to a deadline, are cut, and are refused.
func TestLinks(t *testing.T) {
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	p := Start(t, listener.Addr().String(), nil)
	go func() {
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			go func() { _, _ = io.Copy(c, c) }()
		}
	}()
	t.Cleanup(func() { _ = listener.Close() })
	l := new(Links)
	c, err := l.Dial("tcp", p.Addr())
	require.NoError(t, err)
	echo := func() error {
		if _, err := c.Write([]byte("x")); err != nil {
			return err
		}
		_, err := io.ReadFull(c, make([]byte, 1))
		return err
	}
	require.NoError(t, echo())

	restore := l.Silence()
	require.NoError(t, c.SetDeadline(time.Now().Add(20*time.Millisecond)))
	require.ErrorIs(t, echo(), os.ErrDeadlineExceeded)
	restore()
	require.NoError(t, c.SetDeadline(time.Time{}))
	require.NoError(t, echo())

	l.Cut()
	require.Error(t, echo())
	_ = c.Close() // it is cut
	away := errors.New("away")
	restore = l.Refuse(away)
	_, err = l.Dial("tcp", p.Addr())
	require.ErrorIs(t, err, away)
	restore()
	c, err = l.DialContext(t.Context(), "tcp", p.Addr())
	require.NoError(t, err)
	require.NoError(t, echo())
	require.NoError(t, c.Close())
}
