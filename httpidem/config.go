package httpidem

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/textproto"
	"slices"
	"time"

	"github.com/idem-go/idem/dedup"
)

// The defaults of a [Config].
const (
	DefaultHeader         = "Idempotency-Key"
	DefaultChallenge      = `Bearer realm="api"`
	DefaultReplayedHeader = "Idempotent-Replayed"
	DefaultTimeout        = time.Minute
	DefaultMaxBody        = 1 << 20
	DefaultMaxResponse    = 1 << 20
	DefaultMaxBuffer      = 32 << 20
	DefaultMaxLiveKeys    = 100
	DefaultRetryAfter     = time.Second
	DefaultStoreTimeout   = dedup.DefaultStoreTimeout
	DefaultMaxRequests    = 1024
	DefaultMaxBytes       = 64 << 20
	// DefaultMaxPrincipalRequests is the default of [Config].MaxPrincipalRequests.
	DefaultMaxPrincipalRequests = 256
	// DefaultWait is the recommended [Config].Wait: ten polls.
	DefaultWait = dedup.DefaultWait
)

// minSecret is the smallest length of a secret, in bytes.
const minSecret = 16

// LogValue shows the scope, the header and the type of the store, without secrets.
func (c Config) LogValue() slog.Value {
	return slog.GroupValue(slog.String("scope", c.Scope), slog.String("header", c.Header),
		slog.String("store", fmt.Sprintf("%T", c.Store)))
}

// String returns the text of [Config.LogValue].
func (c Config) String() string { return "httpidem.Config" + c.LogValue().String() }

// GoString returns the text of [Config.LogValue].
func (c Config) GoString() string { return c.String() }

// Config configures a [Middleware]. Store, Scope, Principal and Secret are required.
type Config struct {
	// Store keeps keys and answers. Required.
	Store dedup.Store
	// Scope is the namespace of the keys, such as the name of the API. The same key in two scopes
	// means two requests. Required.
	Scope string
	// Principal returns the user of a request. Keys of different principals never meet, so that a
	// guessed key returns no answer of another user. Required, unless Public.
	//
	// An empty name is answered 401. An error made by [Refuse] sets status and text of the answer,
	// by default 401. Any other error of Principal, Tenant or Authorize is logged and answered 503
	// without the text.
	//
	// The principal is a readable part of keys in the store, in logs and in spans: see
	// PrincipalSecret. Return the name of a user, never a credential, since the user's next token
	// would be another principal. Bearer tokens, JWTs and similar values are answered 500.
	Principal func(*http.Request) (string, error)
	// Challenge is the value of WWW-Authenticate of 401 answers of the middleware, in visible ASCII
	// characters and spaces. A challenge that code in front has set stays. Defaults to
	// [DefaultChallenge].
	Challenge string
	// PrincipalSecret replaces the principal in keys by a keyed hash ([HashPrincipal]), for
	// names that stores, logs and spans must not show, such as mail addresses. At least 16
	// bytes, the same in all instances. Default: keys contain the principal. A new secret makes
	// all keys new, like another Scope. Use other bytes than for Secret, which may change.
	PrincipalSecret []byte
	// Public means that there are no principals: everyone with a key gets the answer. Default:
	// false.
	Public bool
	// Tenant separates customers, as [dedup.Key].Tenant. Default: no tenant. An error made by
	// [Refuse] is answered 400 by default, any other one 503. A tenant of more than
	// [dedup.MaxPart] bytes is answered 500.
	Tenant func(*http.Request) (string, error)
	// Authorize checks the rights of a request before each replay and each run. Set Authorize if
	// no middleware in front does that. An error made by [Refuse] is answered 403 by default,
	// any other one 503. Default: no check.
	Authorize func(*http.Request) error
	// Secret is the key of the HMAC-SHA-256 of method, path, query, content type and body. This
	// fingerprint detects another payload with the same key. At least 16 bytes, the same in all
	// instances. Required, unless AnyPayload.
	Secret []byte
	// SecondSecret is accepted beside Secret: a request is equal if the stored fingerprint is that
	// under either one. New fingerprints are made with Secret. Add a new secret as SecondSecret in
	// all instances, swap the two, then drop the old one after Retention. At least 16 bytes; it
	// costs a second hash of each body. Nil, the default: no second secret.
	SecondSecret []byte
	// AnyPayload turns the comparison of payloads off: a key replays the answer to any payload.
	// Default: false.
	AnyPayload bool
	// Fingerprint changes the compared parts of a request, such as [IgnoreBoundary] for uploads.
	// The function may change the [Payload], add to its More, and read the body. An error made
	// by [Refuse] is answered 400 by default, any other one 503. Default: the Payload is
	// compared unchanged. The function must be the same in all instances: after a change,
	// retries of keys of the last Retention get 422.
	Fingerprint func(*http.Request, *Payload) error

	// Header is the name of the request header. Defaults to [DefaultHeader].
	Header string
	// ReplayedHeader is the name of the response header that is "true" on replays. Defaults to
	// [DefaultReplayedHeader].
	ReplayedHeader string
	// Syntax is the accepted form of the header. Defaults to [Lenient].
	Syntax Syntax
	// UUIDOnly refuses keys that are no UUID; any version is accepted. Accepted forms are those of
	// RFC 9562 (8-4-4-4-12 hexadecimal digits in either case, also after urn:uuid:), and UUIDs in
	// braces or without hyphens. All forms of one UUID are one key; [KeyFrom] returns the form with
	// lower case and hyphens.
	UUIDOnly bool
	// Methods are the methods that require a key. Defaults to POST and PATCH. Requests of other
	// methods go to the handler unchanged, and so do upgrades of the connection without a key.
	Methods []string
	// Optional accepts requests of these methods without a key. By default, false, such requests
	// are answered 400.
	Optional bool
	// OptionalMethods are further methods that may have a key. Without a key the request goes to
	// the handler unchanged. Default: no method. PUT and DELETE are suitable: such handlers are
	// idempotent, and a key adds the answer of the first request.
	OptionalMethods []string
	// DocsURL is the address of your API's documentation of keys. The address is the type of
	// problems (RFC 9457), and a Link of 400 answers. Default: no address.
	DocsURL string
	// ReplayHeaders are further response headers to replay, see [DefaultReplayHeaders].
	// Set-Cookie is never replayed. CORS headers (Access-Control-...) belong to the origin of a
	// request and are never replayed either: set CORS headers in a middleware in front. Default:
	// no further header.
	ReplayHeaders []string
	// ReplayWith200 replays every stored 2xx answer but 206 with the status 200, for clients that
	// recognise a replay by this status. By default a replay has the status of the first answer.
	ReplayWith200 bool

	// Retention is the time for which answers are stored. Defaults to 24 h. Publish this time,
	// because a key is new afterwards.
	Retention time.Duration
	// Lease is the lease of a claim. Defaults to [dedup.DefaultLease]. A key stays busy for this
	// long after its process died.
	Lease time.Duration
	// Timeout ends the context of the handler. Defaults to [DefaultTimeout]. A client that hangs up
	// does not end the context, so that a retry finds an answer.
	Timeout time.Duration
	// Wait is the time for which a request waits for an earlier request with its key. Default: 0,
	// the request is answered 409 at once. [DefaultWait] is a good value.
	Wait time.Duration
	// Poll is the interval of the store calls during Wait. Defaults to [dedup.DefaultPoll].
	Poll time.Duration
	// RetryAfter is sent with 409 request_in_flight, 429 and 503, rounded up to seconds. Defaults
	// to [DefaultRetryAfter].
	RetryAfter time.Duration
	// MaxBody is the largest body of a request, in bytes; the whole body is hashed. Defaults to
	// [DefaultMaxBody]. Larger requests are answered 413.
	MaxBody int64
	// MaxResponse is the largest stored body of an answer, in bytes. Defaults to
	// [DefaultMaxResponse]. A larger answer is sent to the client; the store keeps only the status,
	// and retries get 409 not_replayable.
	MaxResponse int
	// MaxBuffer is the largest body that is held back until the answer is stored, in bytes.
	// Defaults to [DefaultMaxBuffer]. A larger answer is stored as not replayable, and then sent
	// while the handler writes. If the answer is not stored ([Forget], or the store does not take
	// it), the key stays taken until the handler has ended. In a transaction, a larger answer is
	// an error.
	MaxBuffer int
	// StreamOnFlush does the same at the first Flush. By default Flush has no effect: the answer is
	// held back until the store has it.
	StreamOnFlush bool
	// MaxLiveKeys is the number of keys of one principal of one tenant that may be running in
	// this process. Defaults to [DefaultMaxLiveKeys]. The next key is answered 429 with
	// Retry-After. Further requests with a running key do not count. No effect with Public.
	MaxLiveKeys int

	// MaxRequests is the number of keyed requests in this process, of all principals together.
	// Defaults to [DefaultMaxRequests]. The next request is answered 503 with Retry-After. A
	// request counts from before the body is read until the handler has returned, even if the
	// client has left.
	MaxRequests int
	// MaxPrincipalRequests is the number of keyed requests of one principal of one tenant,
	// including waiting copies. Defaults to [DefaultMaxPrincipalRequests]. The next request is
	// answered 429 with Retry-After. No effect with Public.
	MaxPrincipalRequests int
	// MaxBytes is the number of bytes of request bodies in memory. Defaults to
	// [DefaultMaxBytes]; at least MaxBody. A request with a body that does not fit is answered
	// 503 with Retry-After. Copies of a running request with equal bytes share one body.
	MaxBytes int64

	// StoreTimeout is the time that the store may take to answer for a key. Defaults to
	// [DefaultStoreTimeout]. A later answer counts as a failure: the request is answered 503, or
	// runs with FailOpen, even if the client of the store ignores contexts. While the store does
	// not answer at all, requests fail at once, except for one a second that asks the store.
	// Storing an answer has ten seconds of its own, so that a short outage does not lose the
	// answer. See [dedup.GuardConfig].StoreTimeout.
	StoreTimeout time.Duration

	// Keyring encrypts answers in the store, and opens them: see [dedup.Keyring]. Keys, principals
	// and statuses of requests in flight stay readable. An answer that cannot be opened is never
	// replaced by a run: the client gets 500 answer_sealed. Nil, the default: answers are stored
	// unsealed.
	Keyring *dedup.Keyring

	// ResultPolicy decides whether an answer is stored. Defaults to [DefaultResultPolicy].
	ResultPolicy func(*http.Request, Outcome) ResultPolicy
	// ForgetStatus are statuses from 300 to 499, such as 401. Answers with these statuses are
	// not stored: the next request with the key runs, also with another payload. Each of them
	// acts like a call of [NotApplied], so the handler must not have made a change. ResultPolicy
	// is not called for these statuses. Default: no status.
	ForgetStatus []int
	// Rerun runs the handler again if an earlier run was cut short and may have had its effect. By
	// default, false, such a request is answered 409 unknown_outcome. Set Rerun for handlers that
	// are idempotent by themselves.
	Rerun bool
	// FailOpen runs handlers without any protection while the store is unavailable. By default,
	// false, requests are answered 503.
	FailOpen bool

	// Logger receives the log lines. Defaults to [slog.Default].
	Logger *slog.Logger
	// Observe is called for each keyed request when it ends, on its goroutine, also after a
	// panic of its handler. The function must be fast. Default: no call.
	Observe func(context.Context, Observation)
}

// Observation describes the end of a keyed request.
type Observation struct {
	Request *http.Request
	// Key is zero if the request had no valid key.
	Key    dedup.Key
	Result Result
	// Status is that of the answer. Zero if unknown: the handler panicked, or ran without the
	// store.
	Status int
	// Took is the duration of the request. Waited is the wait for the store, and for another
	// request with the key: the part of Took before the handler began. If no handler ran, Waited
	// is all of Took. In a transaction that ran again, the last run counts.
	Took, Waited time.Duration
	// Err is an error of the store, or of a function of the [Config].
	Err error
}

// Result is the outcome of a keyed request as one word, suitable for a metric label.
type Result string

// The results.
const (
	Executed  Result = "executed"  // the handler ran, the answer is stored
	Forgotten Result = "forgotten" // the handler ran, the answer is not stored
	// The handler ran, but the store did not take the answer: later requests get unknown_outcome.
	Unstored       Result = "unstored"
	Unguarded      Result = "unguarded"       // the handler ran without the store (FailOpen)
	Replayed       Result = "replayed"        // a stored answer was sent
	NotReplayable  Result = "not_replayable"  // 409; 500 for an answer that cannot be opened
	InFlight       Result = "in_flight"       // 409
	UnknownOutcome Result = "unknown_outcome" // 409
	GivenUp        Result = "given_up"        // 409
	Mismatch       Result = "mismatch"        // 422
	// 400, 401, 403, 411, 413, 429; 503 overloaded; 500 for a mistake around the middleware.
	Refused Result = "refused"
	// 503 of the store or of a function of the Config; 500 if the transaction was not committed.
	Unavailable Result = "unavailable"
	Panicked    Result = "panicked" // the handler panicked
)

// check fills in defaults and returns all problems, joined.
func (c *Config) check() error {
	problems := append(c.wiringProblems(), c.negativeLimits()...)
	c.setDefaults()
	for _, method := range c.OptionalMethods {
		if slices.Contains(c.Methods, method) {
			problems = append(problems, errors.New("a method is in Methods and in OptionalMethods"))
			break
		}
	}
	if len(problems) > 0 {
		return fmt.Errorf("httpidem: %w", errors.Join(problems...))
	}
	return nil
}

func (c *Config) wiringProblems() (problems []error) {
	require := func(ok bool, text string) {
		if !ok {
			problems = append(problems, errors.New(text))
		}
	}
	require(c.Store != nil, "Store is missing: a dedup.Store such as redisstore.New(client)")
	require(c.Scope != "", "Scope is missing: the name of the API, such as \"transfers\"")
	require(len(c.Scope) <= dedup.MaxPart && isText(c.Scope),
		fmt.Sprintf("Scope is no UTF-8 text of at most %d bytes without NUL", dedup.MaxPart))
	require(c.Principal != nil || c.Public,
		"Principal is missing: a function that returns the user of a request; "+
			"set Public if every client with the key may have the answer")
	require(c.Principal == nil || !c.Public, "Principal and Public exclude each other")
	require(len(c.Secret) >= minSecret || c.AnyPayload,
		fmt.Sprintf("Secret has less than %d bytes: the same random bytes in all instances; "+
			"set AnyPayload to compare no payloads", minSecret))
	require(c.SecondSecret == nil || len(c.SecondSecret) >= minSecret,
		fmt.Sprintf("SecondSecret has less than %d bytes: "+
			"the same random bytes in all instances", minSecret))
	require(c.SecondSecret == nil || !c.AnyPayload,
		"SecondSecret and AnyPayload exclude each other: payloads are not compared")
	require(c.Challenge == "" || isChallenge(c.Challenge),
		"Challenge is no header value: visible ASCII characters and spaces, such as "+
			DefaultChallenge)
	require(c.PrincipalSecret == nil || len(c.PrincipalSecret) >= minSecret,
		fmt.Sprintf("PrincipalSecret has less than %d bytes: "+
			"the same random bytes in all instances", minSecret))
	require(c.PrincipalSecret == nil || c.Principal != nil,
		"PrincipalSecret is set without a Principal")
	require(c.Fingerprint == nil || !c.AnyPayload,
		"Fingerprint and AnyPayload exclude each other: one changes the comparison, "+
			"the other turns it off")
	require(!slices.ContainsFunc(c.ForgetStatus, func(s int) bool { return s < 300 || s > 499 }),
		"ForgetStatus has a status outside 300 to 499: a handler that answers 2xx or 5xx may have "+
			"had effects, use ResultPolicy for it")
	require(c.Syntax <= Strict, "Syntax is neither Lenient nor Strict")
	return problems
}

func (c *Config) negativeLimits() (problems []error) {
	for name, d := range map[string]time.Duration{
		"Retention": c.Retention, "Lease": c.Lease, "Timeout": c.Timeout, "Wait": c.Wait,
		"Poll": c.Poll, "RetryAfter": c.RetryAfter, "StoreTimeout": c.StoreTimeout,
	} {
		if d < 0 {
			problems = append(problems, errors.New(name+" is negative"))
		}
	}
	for name, n := range map[string]int64{
		"MaxBody": c.MaxBody, "MaxResponse": int64(c.MaxResponse), "MaxBuffer": int64(c.MaxBuffer),
		"MaxLiveKeys": int64(c.MaxLiveKeys), "MaxRequests": int64(c.MaxRequests),
		"MaxPrincipalRequests": int64(c.MaxPrincipalRequests), "MaxBytes": c.MaxBytes,
	} {
		if n < 0 {
			problems = append(problems, errors.New(name+" is negative"))
		}
	}
	return problems
}

func (c *Config) setDefaults() {
	c.Header = textproto.CanonicalMIMEHeaderKey(cmp.Or(c.Header, DefaultHeader))
	c.Challenge = cmp.Or(c.Challenge, DefaultChallenge)
	c.ReplayedHeader = cmp.Or(c.ReplayedHeader, DefaultReplayedHeader)
	if len(c.Methods) == 0 {
		c.Methods = []string{http.MethodPost, http.MethodPatch}
	}
	c.Retention = cmp.Or(c.Retention, dedup.DefaultResultRetention)
	c.Lease = cmp.Or(c.Lease, dedup.DefaultLease)
	c.Timeout = cmp.Or(c.Timeout, DefaultTimeout)
	c.Poll = cmp.Or(c.Poll, dedup.DefaultPoll)
	c.RetryAfter = cmp.Or(c.RetryAfter, DefaultRetryAfter)
	c.StoreTimeout = cmp.Or(c.StoreTimeout, DefaultStoreTimeout)
	c.MaxBody = cmp.Or(c.MaxBody, DefaultMaxBody)
	c.MaxResponse = cmp.Or(c.MaxResponse, DefaultMaxResponse)
	c.MaxBuffer = max(cmp.Or(c.MaxBuffer, DefaultMaxBuffer), c.MaxResponse)
	c.MaxLiveKeys = cmp.Or(c.MaxLiveKeys, DefaultMaxLiveKeys)
	c.MaxRequests = cmp.Or(c.MaxRequests, DefaultMaxRequests)
	c.MaxPrincipalRequests = cmp.Or(c.MaxPrincipalRequests, DefaultMaxPrincipalRequests)
	c.MaxBytes = max(cmp.Or(c.MaxBytes, DefaultMaxBytes), c.MaxBody)
	if limited, ok := c.Store.(dedup.ResultLimiter); ok {
		c.MaxResponse = min(c.MaxResponse, max(0,
			limited.MaxResult()-maxHead-c.Keyring.Overhead()))
	}
	if c.ResultPolicy == nil {
		c.ResultPolicy = DefaultResultPolicy
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
}
