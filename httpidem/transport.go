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
	DefaultMaxElapsed = time.Minute
)

// Errors of a [Transport] for requests that were never sent.
var (
	// ErrKey means that the key of [WithKey] is invalid: more than 255 characters, others than
	// printable ASCII, or a key that needs [Transport].Quoted.
	ErrKey = errors.New("httpidem: not an idempotency key")
	// ErrBody means that the body cannot be sent a second time: a body of more than
	// [Transport].MaxBody bytes, in a request without GetBody.
	ErrBody = errors.New(
		"httpidem: body is too large to be held in memory for retries: set Request.GetBody, or " +
			"Transport.MaxBody",
	)
)

// Transport is the client side: each request is sent with an idempotency key, and repeated with the
// same key and the same bytes while the outcome is unknown. The zero value is ready to use:
//
//	client := &http.Client{Transport: &httpidem.Transport{}}
//
// The key is that of [WithKey], or else that of the request's header, or else a new UUID (v4). A
// header with another key than that of [WithKey] is replaced, in the copy that is sent. For a call
// that must survive a restart of the client, store a key with the order that the call belongs
// to. With that key, a new process gets the answer.
//
// The transport repeats requests without an answer, and those for which [Transport].Retry
// returns true. A replay ([IsReplay]) is never followed by a repeat, since the answer would be
// the same. RoundTrip returns the last answer unchanged; without an answer the error is a
// [*SendError]. Any other answer is read to its end during the pause, for at most a second, so that
// its connection can be used again. Requests of other methods are sent unchanged.
//
// The header counts in any spelling of its name, such as that of a header that was set without
// [http.Header.Set]. The copy has the usual spelling. Several lines are all sent, for the server to
// refuse.
//
// A redirect that keeps the method keeps the key on the same host. Another host gets a key derived
// from the first, the same each time, so that no host learns a key of another one. Each of several
// lines is derived by itself. Other redirects to another host lose the header.
//
// net/http itself repeats a keyed request once more if a kept-alive connection breaks before the
// answer begins. These repeats have the same key and bytes, do not count as attempts, and are
// answered like any other.
//
// A body without GetBody is read before the first attempt, until the context ends. Then the error is
// a [*SendError] with zero attempts. If Close of the body does not end its Read within a second, the
// Read outlives RoundTrip in a goroutine of its own. No other goroutine outlives RoundTrip. A panic
// of Read or Close continues in the caller of RoundTrip, unless the context has ended. So does a
// panic of an unread answer's body.
//
// A Transport is safe for concurrent use. Do not change the fields after the first use.
type Transport struct {
	// Base sends the requests. Defaults to [http.DefaultTransport]. To limit one attempt, configure
	// Base, for example with [http.Transport].ResponseHeaderTimeout. By default only the context
	// and http.Client.Timeout limit the request, over all attempts.
	Base http.RoundTripper
	// Header is the name of the request header. Defaults to [DefaultHeader].
	Header string
	// ReplayedHeader is the name of the response header that is "true" on replays. Defaults to
	// [DefaultReplayedHeader].
	ReplayedHeader string
	// Quoted sends the key as a quoted string, as the Internet-Draft requires. By default, false,
	// the key is sent bare, as most servers expect; a [Middleware] accepts both unless it is
	// [Strict]. A header of the request is sent unchanged, unless [WithKey] replaces it.
	Quoted bool
	// Methods are the methods that get a key. Defaults to POST and PATCH.
	Methods []string

	// Attempts is the largest number of attempts. Defaults to [DefaultAttempts]. 1 means no
	// retries.
	Attempts int
	// Backoff is the pause before the first retry. The pause doubles for each further one, less a
	// random part of up to a half. Defaults to [DefaultBackoff]. Retry-After of an answer, in
	// seconds or as a date, replaces the pause.
	Backoff time.Duration
	// MaxBackoff is the longest pause, except for Retry-After. Defaults to [DefaultMaxBackoff].
	MaxBackoff time.Duration
	// MaxElapsed is the time after the first attempt in which others may begin. Defaults to
	// [DefaultMaxElapsed]. An answer with a Retry-After later than that, or than the deadline of
	// the context, is returned at once.
	MaxElapsed time.Duration
	// MaxBody is the largest body that is kept in memory if the request has no GetBody, in bytes.
	// Defaults to [DefaultMaxBody]. A larger one is [ErrBody].
	MaxBody int64
	// Retry reports whether an answer other than a replay is worth another attempt. Defaults to
	// [DefaultRetry].
	Retry func(*http.Response) bool

	// Observe is called for each keyed request after the last attempt, on its goroutine. The
	// function must be fast. Requests with [ErrKey] or [ErrBody] are not reported, nor are those
	// whose body, without GetBody, could not be read. Default: no call.
	Observe func(context.Context, Sending)
}

// Sending describes the end of a keyed request of a [Transport].
type Sending struct {
	// Request is the request that was sent; [KeyOf] returns its key.
	Request *http.Request
	// Attempts is the number of attempts. Repeats by net/http itself do not count.
	Attempts int
	// Status is that of the answer; zero without an answer.
	Status int
	// Replayed is true if the answer is the stored one of an earlier request.
	Replayed bool
	// Took is the duration of all attempts, with the pauses between them, until the header of the
	// answer.
	Took time.Duration
	// Err is a [*SendError] if there is no answer.
	Err error
}

// DefaultRetry returns true for 408, 425, 429, 502, 503 and 504, and for a 409 with Retry-After,
// which means that another request with the key is running. A 409 without it needs a person
// ([UnknownOutcome]), a 422 another key.
//
// The result for 500 is false: a server that runs handlers under a claim has stored the answer and
// would replay that answer. A server that rolls back, such as a [Middleware] made by [NewTx], may
// be asked again after a 500: write a Retry for it.
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

// SendError means that a keyed request got no answer. The effect may have happened, unless Attempts
// is zero. To find out, send the request again with the same key and the same bytes.
type SendError struct {
	// Key is the key of the request.
	Key string
	// Attempts is the number of attempts. Zero: the request was not sent, and has had no effect.
	Attempts int
	// Err is the error of the last attempt, or of the context if it ended during a pause or before
	// the body was read.
	Err error
}

// Error returns the key, the number of attempts and Err.
func (e *SendError) Error() string {
	if e.Attempts == 0 {
		return fmt.Sprintf("httpidem: request with key %q was not sent: %v", e.Key, e.Err)
	}
	return fmt.Sprintf("httpidem: no answer to key %q after %d attempts: %v", e.Key, e.Attempts,
		e.Err)
}

// Unwrap returns Err.
func (e *SendError) Unwrap() error { return e.Err }

// Timeout reports whether Err is a timeout, for [url.Error].
func (e *SendError) Timeout() bool {
	t, ok := errors.AsType[interface {
		error
		Timeout() bool
	}](e.Err)
	return ok && t.Timeout()
}

type clientKey struct{}

// contextKey is the key that a context has, the value of clientKey.
type contextKey struct {
	key string
	// fromHeader is true if a transport has read the key from a header that it kept. Then the
	// header counts, not the key. WithKey resets it.
	fromHeader bool
}

func contextKeyOf(ctx context.Context) contextKey {
	key, _ := ctx.Value(clientKey{}).(contextKey)
	return key
}

// WithKey sets the key of the requests that are sent with ctx: one key for one operation. Two
// different requests need two contexts, or the second one is answered 422. An empty key counts
// as a missing key.
//
// The key replaces one in the header of a request, such as that of a client in front of a reverse
// proxy.
//
//	ctx = httpidem.WithKey(ctx, order.PaymentKey)                // stored with the order
//	ctx = httpidem.WithKey(ctx, e.IdempotencyKey())              // in a handler of an event
//	ctx = httpidem.WithKey(ctx, httpidem.ForwardKey(ctx, "pay")) // in a handler of a keyed request
func WithKey(ctx context.Context, key string) context.Context {
	return context.WithValue(ctx, clientKey{}, contextKey{key: key})
}

// KeyOf returns the key that a [Transport] sent a request with, such as KeyOf(response.Request), or
// the key of [WithKey]. Empty for a request without a key.
func KeyOf(r *http.Request) string {
	if r == nil {
		return ""
	}
	return contextKeyOf(r.Context()).key
}

// IsReplay reports whether a response is the stored answer to an earlier request, by
// [DefaultReplayedHeader].
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
	s := &sending{
		t: t, base: base, again: again, until: began.Add(orDefault(t.MaxElapsed, DefaultMaxElapsed)),
	}
	resp, err := s.client().Do(&retryablehttp.Request{Request: out})
	if err != nil {
		if u, ok := errors.AsType[*url.Error](err); ok {
			err = u.Err // the caller's http.Client adds one of its own
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

// CloseIdleConnections closes the idle connections of Base, if Base has such a method.
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

// name returns the name of the request header.
func (t *Transport) name() string {
	return textproto.CanonicalMIMEHeaderKey(cmp.Or(t.Header, DefaultHeader))
}

// unkeyed returns a request that gets no key. A key that a redirect to another host has carried
// along is removed.
func (t *Transport) unkeyed(r *http.Request) *http.Request {
	if r.Response == nil || len(linesOf(r.Header, t.name())) == 0 {
		return r
	}
	if _, ok := elsewhere(r); !ok {
		return r
	}
	out := *r // with the same body
	out.Header = r.Header.Clone()
	setLines(out.Header, t.name(), nil)
	return &out
}

// keyed returns a copy of a request, with its key in the header and in the context.
func (t *Transport) keyed(r *http.Request) (*http.Request, error) {
	name := t.name()
	own, lines := chosen(contextKeyOf(r.Context()), linesOf(r.Header, name))
	if len(lines) == 0 && own.key == "" {
		own.key = redirectedKey(r)
	}
	if host, ok := elsewhere(r); ok {
		own, lines = foreign(own, lines, host)
	}
	if len(lines) == 0 {
		if own.key == "" {
			own.key = newUUID()
		}
		line, err := t.line(own.key)
		if err != nil {
			return nil, err
		}
		lines = []string{line}
	}
	out := r.Clone(context.WithValue(r.Context(), clientKey{}, own))
	out.Trailer = r.Trailer // filled in while the body is read
	out.RequestURI = ""     // set by a server, as in a reverse proxy; http.Client refuses it
	if out.Header == nil {
		out.Header = http.Header{}
	}
	setLines(out.Header, name, lines)
	return out, nil
}

// chosen returns the key of a request: own, the key of its context, or else that of its header. Lines
// are the header if the request keeps it, valid or not. A header that already has the key of the
// context is kept, such as one that a transport in front has written. So is any header that a
// transport in front has kept.
func chosen(own contextKey, header []string) (_ contextKey, lines []string) {
	if len(header) == 0 {
		return own, nil
	}
	key := header[0]
	if read, err := parseKey(header, Lenient, false); err == nil {
		key = read
	}
	switch {
	case own.key == "" || own.fromHeader:
		return contextKey{key: key, fromHeader: true}, header
	case own.key == key && len(header) == 1:
		return own, header
	default:
		return own, nil
	}
}

// line returns the header value of a key. A key that the server would read differently is refused.
func (t *Transport) line(key string) (line string, err error) {
	line = key
	if t.Quoted {
		line, err = httpsfv.Marshal(httpsfv.NewItem(key))
	}
	if read, readErr := parseKey([]string{line}, Lenient, false); err != nil || readErr != nil ||
		read != key {
		return "", fmt.Errorf(
			"%w: 1 to %d printable ASCII characters, and no placeholder such as null or 0; one "+
				"with quotes, a comma, or a space at an end, must be sent quoted", ErrKey, maxKey,
		)
	}
	return line, nil
}

// newUUID returns a random UUID (RFC 9562, version 4).
func newUUID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	b[6] = b[6]&0x0f | 0x40
	b[8] = b[8]&0x3f | 0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}
