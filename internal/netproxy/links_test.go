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
	addr := echo(t)
	l := new(Links)
	c, err := l.Dial("tcp", addr)
	require.NoError(t, err)
	send := func() error {
		if _, err := c.Write([]byte("x")); err != nil {
			return err
		}
		_, err := io.ReadFull(c, make([]byte, 1))
		return err
	}
	require.NoError(t, send())

	restore := l.Silence()
	require.NoError(t, c.SetDeadline(time.Now().Add(20*time.Millisecond)))
	require.ErrorIs(t, send(), os.ErrDeadlineExceeded)
	restore()
	require.NoError(t, c.SetDeadline(time.Time{}))
	require.NoError(t, send())

	restore = l.Silence()
	ended := make(chan error, 1)
	go func() { ended <- send() }()
	require.NoError(t, c.SetDeadline(time.Now().Add(10*time.Millisecond)))
	require.ErrorIs(t, <-ended, os.ErrDeadlineExceeded)
	require.NoError(t, c.SetDeadline(time.Time{}))
	go func() { ended <- send() }()
	l.Cut()
	require.ErrorIs(t, <-ended, net.ErrClosed)
	restore()
	away := errors.New("away")
	restore = l.Refuse(away)
	_, err = l.Dial("tcp", addr)
	require.ErrorIs(t, err, away)
	restore()
	c, err = l.DialContext(t.Context(), "tcp", addr)
	require.NoError(t, err)
	require.NoError(t, send())
	require.NoError(t, c.Close())
}
