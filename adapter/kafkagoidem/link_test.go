package kafkagoidem

import (
	"context"
	"io"
	"net"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestLinks_DialDuringClose_K38: a connection that is made while the links are closed is closed too.
// Otherwise a stop would wait for a request on it.
func TestLinks_DialDuringClose_K38(t *testing.T) {
	near, far := net.Pipe()
	t.Cleanup(func() { require.NoError(t, far.Close()) })
	var l *links
	l = newLinks(settings{client: Config{
		Dial: func(context.Context, string, string) (net.Conn, error) {
			l.close()
			return near, nil
		},
	}})
	_, err := l.connect(t.Context(), "tcp", "broker:9092")
	require.ErrorIs(t, err, context.Canceled)
	_, err = near.Write([]byte("x"))
	require.ErrorIs(t, err, io.ErrClosedPipe)
	require.Empty(t, l.open)
}
