package httpidem

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/hashicorp/go-retryablehttp"
)

// getBody returns a body from its beginning; nil: the request has no body.
type getBody func() (io.ReadCloser, error)

// again returns a function that opens the body of r again, and closes the current one. The body of
// out is removed.
func (t *Transport) again(r, out *http.Request) (getBody, error) {
	out.Body, out.GetBody = nil, nil
	switch {
	case r.Body == nil || r.Body == http.NoBody:
		out.Body = r.Body
		return nil, nil
	case r.GetBody != nil:
		closeBody(r)
		return r.GetBody, nil
	}
	limit := orDefault(t.MaxBody, DefaultMaxBody)
	kept, ended, err := readInTime(r.Context(), r.Body, limit+1)
	switch {
	case ended:
		return nil, &SendError{Key: KeyOf(out), Err: err}
	case err != nil:
		return nil, err
	case int64(len(kept)) > limit:
		return nil, ErrBody
	}
	if len(out.Trailer) == 0 && out.ContentLength <= 0 {
		out.ContentLength = int64(len(kept)) // known by now
	}
	if len(kept) == 0 && out.ContentLength == 0 {
		out.Body = http.NoBody
		return nil, nil
	}
	return func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(kept)), nil }, nil
}

// closeWait limits the wait for a Read that Close should have ended.
const closeWait = time.Second

// errBodyEnded means that Read or Close of a body called runtime.Goexit.
var errBodyEnded = errors.New("httpidem: body ended its goroutine")

// bodyResult is the result of reading a body.
type bodyResult struct {
	kept     []byte
	err      error
	panicked any
}

// readInTime reads up to limit bytes of a body, and closes the body once. If ended is true, the
// context ended first, and err is the cause. Close ends the Read of a pipe, a file or a connection.
// A Read that Close does not end keeps its goroutine, as in net/http. A panic of the body continues
// in the caller, unless the context ended first.
func readInTime(
	ctx context.Context, body io.ReadCloser, limit int64,
) (kept []byte, ended bool, err error) {
	var once sync.Once // sync.OnceFunc would turn a Goexit of Close into a panic
	closing := func() { once.Do(func() { _ = body.Close() }) }
	if ctx.Err() != nil {
		closing()
		return nil, true, context.Cause(ctx)
	}
	read := make(chan bodyResult, 1)
	go func() {
		r := bodyResult{err: errBodyEnded}
		defer func() {
			r.panicked = recover()
			read <- r
		}()
		kept, err := readAndClose(body, limit, closing)
		r.kept, r.err = kept, err
	}()
	select {
	case r := <-read:
		if r.panicked != nil {
			panic(r.panicked)
		}
		return r.kept, false, r.err
	case <-ctx.Done():
	}
	go func() { // Close may wait for the Read
		defer func() { _ = recover() }()
		closing()
	}()
	wait := time.NewTimer(closeWait)
	defer wait.Stop()
	select {
	case <-read:
	case <-wait.C:
	}
	return nil, true, context.Cause(ctx)
}

// readAndClose reads up to limit bytes, and calls closing even if Read panics.
func readAndClose(body io.Reader, limit int64, closing func()) ([]byte, error) {
	defer closing()
	return io.ReadAll(io.LimitReader(body, limit))
}

func closeBody(r *http.Request) {
	if r.Body != nil {
		_ = r.Body.Close()
	}
}

// sending is one request with all its attempts. go-retryablehttp provides the loop, the draining of
// unread answers, and the protection of a request that is still being written. The retry decisions
// are made here.
type sending struct {
	t        *Transport
	base     http.RoundTripper
	again    getBody
	until    time.Time
	attempts int
	sent     bool      // the last attempt was given to base
	answered bool      // the last attempt got an answer
	next     time.Time // of the next attempt
}

func (s *sending) client() *retryablehttp.Client {
	return &retryablehttp.Client{
		HTTPClient: &http.Client{
			Transport: attempt{s},
			// The caller's client follows redirects, or not.
			CheckRedirect: func(*http.Request, []*http.Request) error {
				return http.ErrUseLastResponse
			},
		},
		RetryMax:   orDefault(s.t.Attempts, DefaultAttempts) - 1,
		CheckRetry: s.check,
		Backoff: func(time.Duration, time.Duration, int, *http.Response) time.Duration {
			return time.Until(s.next)
		},
		ErrorHandler: retryablehttp.PassthroughErrorHandler,
	}
}

// attempt sends a request once.
type attempt struct{ s *sending }

// RoundTrip gives each attempt its own body. An earlier GetBody would open one for each redirect
// without closing it.
func (a attempt) RoundTrip(r *http.Request) (*http.Response, error) {
	s := a.s
	if s.again != nil {
		body, err := s.again()
		if err != nil {
			return nil, err
		}
		out := *r
		out.Body, out.GetBody = body, s.again
		r = &out
	}
	s.attempts++
	s.sent = true
	resp, err := s.base.RoundTrip(r)
	s.answered = err == nil
	if s.answered && resp.Request == nil {
		resp.Request = r
	}
	return resp, err
}

// check reports whether there is another attempt. The error is always nil, since an error would
// hide the last answer. The body of an answer that a repeat replaces gets a limit of time.
func (s *sending) check(ctx context.Context, resp *http.Response, err error) (bool, error) {
	more := ctx.Err() == nil && s.repeats(resp, err) && s.inTime(ctx, resp) &&
		s.attempts < orDefault(s.t.Attempts, DefaultAttempts)
	if more && s.answered {
		resp.Body = closeAfter(resp.Body, min(time.Until(s.next), drainTime))
	}
	s.sent, s.answered = false, false
	return more, nil
}

// drainTime limits the time in which an unread answer is read to its end, so that its connection
// can be used again. The pause before the repeat is another limit.
const drainTime = time.Second

// limited is the body of an answer that is closed once, at the latest when its time is over.
type limited struct {
	io.ReadCloser
	timer   *time.Timer
	closing func() error
}

// closeAfter returns a body that is closed after d, which ends a Read that waits. A panic of that
// Close continues in the caller of Close.
func closeAfter(body io.ReadCloser, d time.Duration) io.ReadCloser {
	closing := sync.OnceValue(body.Close) // repeats a panic in each call
	timer := time.AfterFunc(d, func() {
		defer func() { _ = recover() }()
		_ = closing()
	})
	return &limited{body, timer, closing}
}

// Close closes the body and ends its time.
func (l *limited) Close() error {
	l.timer.Stop()
	return l.closing()
}

// repeats reports whether an attempt is worth another one. An attempt that was not sent, since its
// body could not be opened or http.Client refused the request, would fail again.
func (s *sending) repeats(resp *http.Response, err error) bool {
	switch {
	case !s.sent:
		return false
	case s.answered:
		return err == nil && s.worth(resp)
	default:
		return !lasting(err)
	}
}

// inTime sets the time of the next attempt, and reports whether the pause until then fits.
func (s *sending) inTime(ctx context.Context, resp *http.Response) bool {
	now, wait := time.Now(), s.backoff()
	if s.answered {
		if after, ok := retryAfter(resp.Header, now); ok {
			wait = after + rand.N(orDefault(s.t.Backoff, DefaultBackoff)) // spread the clients
		}
	}
	s.next = now.Add(wait)
	if deadline, ok := ctx.Deadline(); ok && s.next.After(deadline) {
		return false
	}
	return !s.next.After(s.until)
}

// isReplay reports whether resp is a stored answer, by the header of this transport.
func (t *Transport) isReplay(resp *http.Response) bool {
	return resp.Header.Get(cmp.Or(t.ReplayedHeader, DefaultReplayedHeader)) == "true"
}

func (s *sending) worth(resp *http.Response) bool {
	if s.t.isReplay(resp) {
		return false
	}
	if s.t.Retry != nil {
		return s.t.Retry(resp)
	}
	return DefaultRetry(resp)
}

// lasting reports whether every attempt would fail with this error.
func lasting(err error) bool {
	_, ok := errors.AsType[*tls.CertificateVerificationError](err)
	return ok
}

// backoff doubles with each attempt, less a random part of up to a half.
func (s *sending) backoff() time.Duration {
	d, limit := orDefault(s.t.Backoff, DefaultBackoff), orDefault(s.t.MaxBackoff, DefaultMaxBackoff)
	for n := 1; n < s.attempts && d < limit; n++ {
		d *= 2
	}
	d = min(d, limit)
	return d - rand.N(d/2+1)
}

// maxRetryAfter bounds the value of a header, so that nanoseconds do not overflow.
const maxRetryAfter = 365 * 24 * time.Hour

// retryAfter reads the header (RFC 9110, section 10.2.3): seconds or a date; a date in the past is
// now.
func retryAfter(h http.Header, now time.Time) (time.Duration, bool) {
	value := h.Get("Retry-After")
	// too large: the bound applies
	if n, err := strconv.ParseUint(value, 10, 64); err == nil || errors.Is(err, strconv.ErrRange) {
		return time.Duration(min(n, uint64(maxRetryAfter/time.Second))) * time.Second, true
	}
	if at, err := http.ParseTime(value); err == nil {
		return min(max(0, at.Sub(now)), maxRetryAfter), true
	}
	return 0, false
}

// orDefault returns n, or the default if n is not positive.
func orDefault[N int | int64 | time.Duration](n, def N) N {
	if n <= 0 {
		return def
	}
	return n
}
