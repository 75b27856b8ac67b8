package httpidem

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"net/textproto"
	"net/url"
	"slices"
	"time"

	"github.com/dunglas/httpsfv"
	"github.com/hashicorp/go-retryablehttp"
)

// The defaults of a [Transport].
const (
	DefaultAttempts   = 5
	DefaultBackoff    = 200 * time.Millisecond
	DefaultMaxBackoff = 10 * time.Second
	DefaultPatience   = time.Minute
)

// Errors of a [Transport] that say that nothing was sent.
var (
	// ErrKey says that the key given by [WithKey] is none: it has more than 255 characters, or others than printable ASCII, or needs
	// [Transport].Quoted.
	ErrKey = errors.New("httpidem: not an idempotency key")
	// ErrBody says that the body cannot be sent a second time: it has more than [Transport].MaxBody bytes and the request has no GetBody.
	ErrBody = errors.New("httpidem: body is too large to be kept for retries: set Request.GetBody, or Transport.MaxBody")
)

// Transport is the client's side: it sends each request under an idempotency key, and repeats it under the same key, with the same bytes,
// while nobody knows what became of it. The zero value is fit for use; all fields may be left out:
//
//	client := &http.Client{Transport: &httpidem.Transport{}}
//
// The key is what [WithKey] put in the context, or the header if the request has it already, or a new UUID (v4). A call that is to survive a
// restart of the client needs a key of its own, kept with the order it belongs to: a new process finds the answer under it.
//
// Repeated are requests without an answer, and those that [Transport].Retry says yes to. Never repeated is an answer that was replayed
// ([IsReplay]), since it will be the same each time. The last answer is returned as it came; without one the error is a [*SendError]. Requests
// of other methods pass untouched.
//
// A redirect that keeps the method is sent under the same key to the same host, and under a key made of it to another one, the same each time: what
// is agreed with one host is not told to another. Other redirects to another host lose the header.
//
// net/http itself repeats a keyed request once more when a kept-alive connection breaks before the answer begins (H-20). Those repeats carry
// the same key and bytes, are not counted as attempts, and are answered by the server like any other.
//
// A Transport is safe for concurrent use and starts no goroutines. Its fields must not change once it is used.
type Transport struct {
	// Base sends; default [http.DefaultTransport]. How long one attempt may wait for its answer is a setting of Base, such as
	// [http.Transport].ResponseHeaderTimeout; by default there is no limit but the context's and http.Client.Timeout, which are for all attempts.
	Base http.RoundTripper
	// Header is the name of the request header; default [DefaultHeader].
	Header string
	// ReplayedHeader is the name of the response header that says true on replays; default [DefaultReplayedHeader].
	ReplayedHeader string
	// Quoted sends the key as a quoted string, as the draft asks for. By default it is sent bare, as most servers want it; a [Middleware]
	// takes both unless it is [Strict]. A header that the request has already is sent as it is.
	Quoted bool
	// Methods that get a key; default POST and PATCH.
	Methods []string

	// Attempts is how often a request is sent at most; default [DefaultAttempts]. 1: no retries.
	Attempts int
	// Backoff is how long the first retry waits, the next ones twice as long each, less up to a half by chance; default [DefaultBackoff].
	// Retry-After of an answer, in seconds or as a date, is waited for in its place.
	Backoff time.Duration
	// MaxBackoff is how long a retry waits at most, but for Retry-After; default [DefaultMaxBackoff].
	MaxBackoff time.Duration
	// Patience is for how long after the first attempt others may begin; default [DefaultPatience]. An answer that asks to come again later
	// than that, or than the deadline of the context, is returned at once.
	Patience time.Duration
	// MaxBody is how many bytes are kept in memory of a body whose request has no GetBody; default [DefaultMaxBody]. Larger ones are
	// [ErrBody].
	MaxBody int64
	// Retry says whether an answer that is no replay is worth another attempt; default [DefaultRetry].
	Retry func(*http.Response) bool

	// Observe is told of each keyed request when it has its answer, or will have none, on its goroutine. It must be quick. Requests of
	// which nothing was sent are not told of ([ErrKey], [ErrBody]).
	Observe func(context.Context, Sending)
}

// Sending is how a keyed request of a [Transport] ended.
type Sending struct {
	// Request as it was sent; [KeyOf] tells its key.
	Request *http.Request
	// Attempts that were made; those that net/http makes by itself do not count.
	Attempts int
	// Status of the answer; zero if there is none.
	Status int
	// Replayed says that it is the kept answer to an earlier request.
	Replayed bool
	// Took is how long all attempts took, with the pauses between them, until the header of the answer was there.
	Took time.Duration
	// Err is a [*SendError] if there is no answer.
	Err error
}

// DefaultRetry says yes to 408, 425, 429, 502, 503 and 504, and to a 409 that has Retry-After: another request with the key is at work.
// A 409 without it needs a person ([UnknownOutcome]), a 422 another key.
//
// It says no to 500. A server that runs handlers under a claim has kept the answer and would replay it. Of one that rolls back, such as a
// [Middleware] made by [NewTx], a 500 may be repeated: write a Retry that says so.
func DefaultRetry(r *http.Response) bool {
	switch r.StatusCode {
	case http.StatusRequestTimeout, http.StatusTooEarly, http.StatusTooManyRequests,
		http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true
	case http.StatusConflict:
		return r.Header.Get("Retry-After") != ""
	default:
		return false
	}
}

// SendError says that a keyed request got no answer. It may have had its effect: to find out, send it again with the same key and the
// same bytes.
type SendError struct {
	// Key that the request was sent under.
	Key string
	// Attempts that were made.
	Attempts int
	// Err of the last attempt, or of the context if it ended while the next one was waited for.
	Err error
}

// Error names the key, and how often it was tried.
func (e *SendError) Error() string {
	return fmt.Sprintf("httpidem: no answer to key %q after %d attempts: %v", e.Key, e.Attempts, e.Err)
}

// Unwrap returns Err.
func (e *SendError) Unwrap() error { return e.Err }

// Timeout reports whether Err is a timeout; [url.Error] asks for it.
func (e *SendError) Timeout() bool {
	t, ok := errors.AsType[interface {
		error
		Timeout() bool
	}](e.Err)
	return ok && t.Timeout()
}

type clientKey struct{}

// WithKey gives the requests sent with ctx their key: one key for one operation. Two requests that differ need two contexts, or the second one
// is answered 422. An empty key counts as none.
//
//	ctx = httpidem.WithKey(ctx, order.PaymentKey)                // kept with the order: the same after a restart
//	ctx = httpidem.WithKey(ctx, e.IdempotencyKey())              // in a handler of an event
//	ctx = httpidem.WithKey(ctx, httpidem.ForwardKey(ctx, "pay")) // in a handler of a keyed request
func WithKey(ctx context.Context, key string) context.Context {
	return context.WithValue(ctx, clientKey{}, key)
}

// KeyOf returns the key that a [Transport] sent a request with, such as KeyOf(response.Request), or that [WithKey] gave it. Empty if it has
// none.
func KeyOf(r *http.Request) string {
	if r == nil {
		return ""
	}
	key, _ := r.Context().Value(clientKey{}).(string)
	return key
}

// IsReplay reports whether a response is the kept answer to an earlier request, by [DefaultReplayedHeader].
func IsReplay(r *http.Response) bool { return r.Header.Get(DefaultReplayedHeader) == "true" }

// RoundTrip implements [http.RoundTripper].
func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	base := t.Base
	if base == nil {
		base = http.DefaultTransport
	}
	if !slices.Contains(t.methods(), r.Method) {
		return base.RoundTrip(t.unkeyed(r))
	}
	out, err := t.keyed(r)
	if err != nil {
		closeBody(r)
		return nil, err
	}
	again, err := t.again(r, out)
	if err != nil {
		return nil, err
	}
	began := time.Now()
	s := &sending{t: t, base: base, again: again, until: began.Add(orDefault(t.Patience, DefaultPatience))}
	resp, err := s.client().Do(&retryablehttp.Request{Request: out})
	if err != nil {
		if u, ok := errors.AsType[*url.Error](err); ok {
			err = u.Err // the caller's http.Client makes one of its own
		}
		err = &SendError{Key: KeyOf(out), Attempts: s.attempts, Err: err}
	}
	if t.Observe != nil {
		o := Sending{Request: out, Attempts: s.attempts, Took: time.Since(began), Err: err}
		if err == nil {
			o.Status, o.Replayed = resp.StatusCode, t.isReplay(resp)
		}
		t.Observe(out.Context(), o)
	}
	if err != nil {
		return nil, err
	}
	return resp, nil
}

// CloseIdleConnections closes those of Base, if it can.
func (t *Transport) CloseIdleConnections() {
	base := t.Base
	if base == nil {
		base = http.DefaultTransport
	}
	if c, ok := base.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

func (t *Transport) methods() []string {
	if len(t.Methods) == 0 {
		return []string{http.MethodPost, http.MethodPatch}
	}
	return t.Methods
}

// name of the request header.
func (t *Transport) name() string {
	return textproto.CanonicalMIMEHeaderKey(cmp.Or(t.Header, DefaultHeader))
}

// unkeyed is a request that gets no key, without the one that a redirect to another host has brought along.
func (t *Transport) unkeyed(r *http.Request) *http.Request {
	if r.Response == nil || len(r.Header[t.name()]) == 0 {
		return r
	}
	if _, ok := elsewhere(r); !ok {
		return r
	}
	out := *r // the body is the same
	out.Header = r.Header.Clone()
	out.Header.Del(t.name())
	return &out
}

// keyed returns a copy of a request, with its key in the header and in the context.
func (t *Transport) keyed(r *http.Request) (*http.Request, error) {
	name := t.name()
	lines, key := r.Header[name], KeyOf(r)
	if host, ok := elsewhere(r); ok {
		if len(lines) > 0 {
			key = lines[0]
		}
		lines, key = nil, foreignKey(key, host)
	}
	switch {
	case len(lines) > 0: // whatever it is: the server says what it thinks of it
		key = lines[0]
		if read, err := parseKey(lines, Lenient, false); err == nil {
			key = read
		}
	case key == "":
		key = newUUID()
		fallthrough
	default:
		line, err := t.line(key)
		if err != nil {
			return nil, err
		}
		lines = []string{line}
	}
	out := r.Clone(WithKey(r.Context(), key))
	out.Trailer = r.Trailer // it is filled in while the body is read
	if out.Header == nil {
		out.Header = http.Header{}
	}
	out.Header[name] = lines
	return out, nil
}

// line is a key as the header has it: one that would be read otherwise than it was written is refused.
func (t *Transport) line(key string) (line string, err error) {
	line = key
	if t.Quoted {
		line, err = httpsfv.Marshal(httpsfv.NewItem(key))
	}
	if read, readErr := parseKey([]string{line}, Lenient, false); err != nil || readErr != nil || read != key {
		return "", fmt.Errorf("%w: 1 to %d printable ASCII characters, and no placeholder such as null or 0; one with quotes, a comma, or a space at an end, must be sent quoted", ErrKey, maxKey)
	}
	return line, nil
}

// newUUID returns a random one (RFC 9562, version 4).
func newUUID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	b[6] = b[6]&0x0f | 0x40
	b[8] = b[8]&0x3f | 0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}
