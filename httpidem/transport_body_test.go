package httpidem

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// onlyReader hides the types for which http.NewRequest sets GetBody.
type onlyReader struct {
	io.Reader
	closed *bool
}

func (r onlyReader) Close() error { *r.closed = true; return nil }

func TestTransportBody(t *testing.T) {
	binary := make([]byte, 100_000)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(binary)
	for name, c := range map[string]struct {
		body   []byte
		max    int64
		length int64 // announced by the request
		err    error
	}{
		"without a length":     {body: binary},
		"with a length":        {body: binary, length: int64(len(binary))},
		"empty":                {},
		"as large as it may":   {body: binary, max: int64(len(binary))},
		"larger than it may":   {body: binary, max: int64(len(binary)) - 1, err: ErrBody},
		"larger than may be":   {body: make([]byte, DefaultMaxBody+1), err: ErrBody},
		"unknown, as it is -1": {body: binary, length: -1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := answers(0, 503, 200)
				closed := false
				r, err := http.NewRequestWithContext(t.Context(), http.MethodPost,
					"http://api.test/", onlyReader{bytes.NewReader(c.body), &closed})
				require.NoError(t, err)
				r.ContentLength = c.length
				resp, err := (&Transport{Base: server, MaxBody: c.max}).RoundTrip(r)
				require.True(t, closed)
				if c.err != nil {
					require.ErrorIs(t, err, c.err)
					require.Empty(t, server.seen)
					return
				}
				require.NoError(t, err)
				require.NoError(t, resp.Body.Close())
				require.Len(t, server.seen, 3)
				for _, s := range server.seen {
					require.Equal(t, string(c.body), s.body)
					require.EqualValues(t, len(c.body), s.length)
				}
			})
		})
	}
}

// A GetBody of the caller is used for any size. If it fails, there is no other attempt.
func TestTransportGetBody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		large := strings.Repeat("x", 2*DefaultMaxBody)
		server := answers(503, 200)
		resp, err := post(t.Context(), t, &Transport{Base: server}, large)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		for _, s := range server.seen {
			require.Equal(t, large, s.body)
			require.EqualValues(t, len(large), s.length)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		opened, closed := 0, false
		server := answers(503)
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://api.test/",
			onlyReader{strings.NewReader("x"), &closed})
		require.NoError(t, err)
		gone := errors.New("file is gone")
		r.GetBody = func() (io.ReadCloser, error) {
			if opened++; opened > 1 {
				return nil, gone
			}
			return io.NopCloser(strings.NewReader("x")), nil
		}
		_, err = (&Transport{Base: server}).RoundTrip(r)
		require.ErrorIs(t, err, gone)
		require.Equal(t, 2, opened)
		require.True(t, closed)
		failed, ok := errors.AsType[*SendError](err)
		require.True(t, ok)
		require.Equal(t, 1, failed.Attempts, "the second one was not sent")
	})
	synctest.Test(t, func(t *testing.T) {
		server, gone := answers(200), errors.New("file is gone")
		r, err := http.NewRequestWithContext(WithKey(t.Context(), "k"), http.MethodPost,
			"http://api.test/", strings.NewReader("x"))
		require.NoError(t, err)
		r.GetBody = func() (io.ReadCloser, error) { return nil, gone }
		_, err = (&Transport{Base: server}).RoundTrip(r)
		require.Equal(t, &SendError{Key: "k", Err: gone}, err)
		require.EqualError(t, err, `httpidem: request with key "k" was not sent: file is gone`)
		require.Empty(t, server.seen)
	})
}

// An attempt that http.Client refuses never reached the server, and would be refused again.
func TestTransportRepeatsOnlyWhatWasSent(t *testing.T) {
	for _, c := range []struct {
		sent, answered, want bool
		err                  error
	}{
		{sent: false, err: errBroken, want: false},
		{sent: true, err: errBroken, want: true},
		{sent: true, answered: true, want: true},
	} {
		s := &sending{t: &Transport{}, sent: c.sent, answered: c.answered}
		require.Equal(t, c.want, s.repeats(response(503), c.err), "%+v", c)
	}
}

// An error of the body is returned to the caller, and no request was sent.
func TestTransportUnreadableBody(t *testing.T) {
	server, closed := answers(200), false
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://api.test/",
		onlyReader{brokenReader{}, &closed})
	require.NoError(t, err)
	_, err = (&Transport{Base: server}).RoundTrip(r)
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
	require.Empty(t, server.seen)
	require.True(t, closed)
}

// The transport reads no more of a body than it may keep.
func TestTransportEndlessBody(t *testing.T) {
	server, body := answers(200), &trackedBody{Reader: io.LimitReader(endless{}, 10<<20)}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://api.test/", body)
	require.NoError(t, err)
	_, err = (&Transport{Base: server, MaxBody: 1000}).RoundTrip(r)
	require.ErrorIs(t, err, ErrBody)
	require.Equal(t, 1001, body.read)
	require.True(t, body.closed)
	require.Empty(t, server.seen)
}

// stuckBody is a body whose Read waits for the end. Close is the end, unless deaf is set.
type stuckBody struct {
	end    chan struct{}
	deaf   bool
	closes atomic.Int32
	once   sync.Once
}

func (b *stuckBody) Read([]byte) (int, error) {
	<-b.end
	return 0, io.ErrClosedPipe
}

func (b *stuckBody) Close() error {
	if b.closes.Add(1); !b.deaf {
		b.release()
	}
	return nil
}

func (b *stuckBody) release() { b.once.Do(func() { close(b.end) }) }

// The end of the context ends the wait for a body that does not come. The request was not sent.
func TestTransportBodyThatDoesNotCome(t *testing.T) {
	for name, c := range map[string]struct {
		deaf  bool
		after time.Duration // the time to the context's end
		took  time.Duration
	}{
		"Close ends the Read":         {after: time.Second, took: time.Second},
		"Close does not end the Read": {deaf: true, after: time.Second, took: 2 * time.Second},
		"the context has ended":       {deaf: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				late := errors.New("too late")
				ctx, cancel := context.WithTimeoutCause(WithKey(t.Context(), "k"), c.after, late)
				defer cancel()
				body, server := &stuckBody{end: make(chan struct{}), deaf: c.deaf}, answers(200)
				defer body.release()
				r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://api.test/", body)
				require.NoError(t, err)
				began := time.Now()
				_, err = (&Transport{Base: server}).RoundTrip(r)
				require.Equal(t, &SendError{Key: "k", Err: late}, err)
				require.Equal(t, c.took, time.Since(began))
				require.Empty(t, server.seen)
				require.EqualValues(t, 1, body.closes.Load())
				body.release()
				synctest.Wait()
				require.EqualValues(t, 1, body.closes.Load(), "closed once")
			})
		})
	}
}

// A pipe without a writer ends with the time-out of the client.
func TestTransportPipeWithoutWriter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := answers(200)
		client := &http.Client{Transport: &Transport{Base: server}, Timeout: time.Second}
		body, writer := io.Pipe()
		began := time.Now()
		_, err := client.Post("http://api.test/", "text/plain", body)
		failed, ok := errors.AsType[*url.Error](err)
		require.True(t, ok)
		require.True(t, failed.Timeout())
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, time.Second, time.Since(began))
		require.Empty(t, server.seen)
		_, err = writer.Write([]byte("x"))
		require.ErrorIs(t, err, io.ErrClosedPipe)
	})
}

// funcBody is a body whose Read and Close are functions of the test.
type funcBody struct{ read, closing func() }

func (b funcBody) Read([]byte) (int, error) { b.read(); return 0, io.EOF }
func (b funcBody) Close() error             { b.closing(); return nil }

// A panic of the body reaches the caller of RoundTrip, which may recover it. A body that ends its
// goroutine is an error. Both are closed, and their requests are not sent.
func TestTransportBodyThatPanics(t *testing.T) {
	none, breaks := func() {}, func() { panic("broken") }
	for name, c := range map[string]struct {
		body   funcBody
		panics bool
	}{
		"Read panics":              {body: funcBody{breaks, none}, panics: true},
		"Close panics":             {body: funcBody{none, breaks}, panics: true},
		"both panic":               {body: funcBody{breaks, breaks}, panics: true},
		"Read ends the goroutine":  {body: funcBody{runtime.Goexit, none}},
		"Close ends the goroutine": {body: funcBody{none, runtime.Goexit}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				server, closes := answers(200), 0
				body := funcBody{c.body.read, func() { closes++; c.body.closing() }}
				r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://api.test/", body)
				require.NoError(t, err)
				began := time.Now()
				send := func() { _, err = (&Transport{Base: server}).RoundTrip(r) }
				if c.panics {
					require.PanicsWithValue(t, "broken", send)
				} else {
					send()
					require.ErrorIs(t, err, errBodyEnded)
				}
				require.Zero(t, time.Since(began))
				require.Equal(t, 1, closes)
				require.Empty(t, server.seen)
			})
		})
	}
}

// After the end of the context a panic of the body has no caller, and is dropped.
func TestTransportBodyThatPanicsLate(t *testing.T) {
	for name, c := range map[string]struct{ read, closing func() }{
		"Read panics":              {read: func() { panic("broken") }, closing: func() {}},
		"Close panics":             {read: func() {}, closing: func() { panic("broken") }},
		"Read ends the goroutine":  {read: runtime.Goexit, closing: func() {}},
		"Close ends the goroutine": {read: func() {}, closing: runtime.Goexit},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				late := errors.New("too late")
				ctx, cancel := context.WithTimeoutCause(WithKey(t.Context(), "k"), time.Second, late)
				defer cancel()
				server, closed := answers(200), make(chan struct{})
				body := funcBody{
					read:    func() { <-closed; c.read() },
					closing: func() { close(closed); c.closing() },
				}
				r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://api.test/", body)
				require.NoError(t, err)
				_, err = (&Transport{Base: server}).RoundTrip(r)
				require.Equal(t, &SendError{Key: "k", Err: late}, err)
				require.Empty(t, server.seen)
				synctest.Wait()
			})
		})
	}
}

type brokenReader struct{}

func (brokenReader) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }
