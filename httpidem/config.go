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
	// DefaultWait is a good [Config].Wait: ten polls.
	DefaultWait = dedup.DefaultWait
)

// minSecret is how many bytes a secret must have.
const minSecret = 16

// Syntax says how the header is read.
type Syntax uint8

const (
	// Lenient takes a quoted string as the draft asks for, and also the bare key that most clients send.
	Lenient Syntax = iota
	// Strict takes a quoted string only: an Item of RFC 8941 whose value is a String.
	Strict
)

// LogValue shows which configuration it is, without its secret (G-04).
func (c Config) LogValue() slog.Value {
	return slog.GroupValue(slog.String("scope", c.Scope), slog.String("header", c.Header), slog.String("store", fmt.Sprintf("%T", c.Store)))
}

// String shows what [Config.LogValue] does.
func (c Config) String() string { return "httpidem.Config" + c.LogValue().String() }

// GoString shows what [Config.LogValue] does.
func (c Config) GoString() string { return c.String() }

// Config is how a [Middleware] works. Store, Scope, Principal and Secret are required.
type Config struct {
	// Store is the store. Required.
	Store dedup.Store
	// Scope says who remembers, such as the name of the API: the same key in two scopes is two requests. Required.
	Scope string
	// Principal says who asks. Keys of different principals never meet, so that nobody can fetch another one's answer with a guessed
	// key (H-12). Required, unless Public.
	//
	// An empty name is answered 401, and an error made by [Refuse] with its own status and text, by default 401. Any other error of
	// Principal, Tenant or Authorize is answered 503 without its text, and logged.
	//
	// The principal is a part of keys in the store, in logs and in spans, as it is: see PrincipalSecret. It must be the name of a user and
	// never a credential, since the next token of a user would be another principal. Bearer tokens, JWTs and the like are answered 500.
	Principal func(*http.Request) (string, error)
	// PrincipalSecret puts a keyed hash in the place of the principal ([HashPrincipal]), for principals that stores, logs and spans must not
	// show, such as mail addresses. At least 16 bytes, the same in all instances. Default: none, principals stay as they are. To set or to
	// change it makes all keys new, as another Scope does: take other bytes than Secret, which may change.
	PrincipalSecret []byte
	// Public says that there are no principals: whoever knows a key gets its answer.
	Public bool
	// Tenant separates customers, as [dedup.Key].Tenant. Default: none. An error made by [Refuse] is answered 400 by default, any other one
	// 503. A tenant of more than [dedup.MaxPart] bytes is answered 500.
	Tenant func(*http.Request) (string, error)
	// Authorize is asked before an answer is replayed and before anything runs, if that is not done by a middleware in front. An error made
	// by [Refuse] is answered 403 by default, any other one 503.
	Authorize func(*http.Request) error
	// Secret keys the HMAC-SHA-256 of method, path, query, content type and body that tells another payload under the same
	// key. All instances must have the same. At least 16 bytes. Required, unless AnyPayload.
	Secret []byte
	// AnyPayload replays the answer to whatever comes with the key.
	AnyPayload bool
	// Fingerprint changes what of a request is compared, such as [IgnoreBoundary] for uploads. It may add to More what else must be equal. It may
	// read the body, and refuse a request by [Refuse], by default with 400; any other error is answered 503. Default: none, the [Payload] is
	// compared as it came. It must be the same in all instances: with another one, retries of the keys of one Retention get 422.
	Fingerprint func(*http.Request, *Payload) error

	// Header is the name of the request header; default [DefaultHeader].
	Header string
	// ReplayedHeader is set to true on replays; default [DefaultReplayedHeader].
	ReplayedHeader string
	// Syntax of the header; default [Lenient].
	Syntax Syntax
	// UUIDOnly refuses keys that are no UUID, of any version. It takes the forms of RFC 9562 (8-4-4-4-12 hexadecimal digits in either case, also
	// behind urn:uuid:), and those in braces and without hyphens. All forms of one UUID are one key: [KeyFrom] has it in lower case with hyphens.
	UUIDOnly bool
	// Methods that are idempotent by key; default POST and PATCH. All others pass untouched (H-19), and so do upgrades of the
	// connection without a key (H-14).
	Methods []string
	// Optional lets requests of these methods pass without a key. By default they are answered 400.
	Optional bool
	// OptionalMethods are further methods that are idempotent by key where a request has one, and pass untouched without; default none. PUT and
	// DELETE are good ones: their handlers are idempotent, and a key adds the answer of the first request.
	OptionalMethods []string
	// DocsURL is where your API's documentation says how keys are used. It is the type of problems, and a Link of 400s.
	DocsURL string
	// ReplayHeaders are names of response headers to replay beside those that describe the body (see [DefaultReplayHeaders]). Set-Cookie
	// is never replayed, and neither are CORS headers (Access-Control-...), which belong to the origin that asks: a middleware in front sets them.
	ReplayHeaders []string
	// ReplayWith200 replays an answer of any 2xx status with the status 200, for clients that tell a replay by it. By default a replay has
	// the status of the first answer.
	ReplayWith200 bool

	// Retention is how long answers are kept; default 24 h. Publish it: after it a key is new.
	Retention time.Duration
	// Lease of a claim; default [dedup.DefaultLease]. It is how long a key is busy after its process died.
	Lease time.Duration
	// Timeout is when the context of the handler ends; default [DefaultTimeout]. It does not end when the client hangs up: the retry is to
	// find an answer (H-05).
	Timeout time.Duration
	// Wait is how long a request waits for another one that is at work on its key; default: not at all, it is answered 409. [DefaultWait]
	// is a good value if it is to wait.
	Wait time.Duration
	// Poll is how often the store is asked meanwhile; default [dedup.DefaultPoll].
	Poll time.Duration
	// RetryAfter is sent with 409 in flight, 429 and 503, in whole seconds; default [DefaultRetryAfter].
	RetryAfter time.Duration
	// MaxBody is how many bytes a request may have, since all of it is hashed; default [DefaultMaxBody]. Larger ones are
	// answered 413.
	MaxBody int64
	// MaxResponse is how many bytes of a body are kept; default [DefaultMaxResponse]. Of a larger answer it is kept that it was given
	// (H-06).
	MaxResponse int
	// MaxBuffer is how many bytes of a body are held back until the answer is stored; default [DefaultMaxBuffer]. A larger answer
	// leaves while it is written, after it was stored that it cannot be replayed; in a transaction it is an error.
	MaxBuffer int
	// StreamOnFlush does so at the first Flush. By default Flush does nothing: the answer is held back until it is stored (H-14).
	StreamOnFlush bool
	// MaxLiveKeys is how many keys of one principal of one tenant may be at work in this process; default [DefaultMaxLiveKeys]. The
	// next is answered 429 with Retry-After (rule 21). Further requests with a key that is at work do not count. Without meaning if Public.
	MaxLiveKeys int

	// MaxRequests is how many requests with a key this process may be at, of all principals together; default [DefaultMaxRequests]. The next is
	// answered 503 with Retry-After. A request counts from before its body is read until its handler has returned, also if its
	// client has left, since the handler goes on (H-05).
	MaxRequests int
	// MaxPrincipalRequests is how many of them may be of one principal of one tenant, copies that wait included; default
	// [DefaultMaxPrincipalRequests]. The next is answered 429 with Retry-After. Without meaning if Public.
	MaxPrincipalRequests int
	// MaxBytes is how many bytes of bodies of requests are held at once; default [DefaultMaxBytes], at least MaxBody. A request for whose body there
	// is no room is answered 503 with Retry-After. Copies of a request that is at work share its body, if theirs is
	// equal byte for byte.
	MaxBytes int64

	// StoreTimeout is how long the store may take to answer for a key; default [DefaultStoreTimeout]. Then the request is answered 503, or
	// runs with FailOpen, also if the client of the store does not heed contexts. While the store does not answer at all, requests are
	// answered so at once, but for one a second that asks. What follows the handler has ten seconds of its own: its answer is not lost to
	// a short outage. See [dedup.GuardConfig].StoreTimeout.
	StoreTimeout time.Duration

	// ResultPolicy decides what becomes of an answer; default [DefaultResultPolicy].
	ResultPolicy func(*http.Request, Outcome) ResultPolicy
	// ForgetStatus are statuses, from 400 to 499, of answers that are not kept, such as 401: the next request with the key runs, also with another
	// payload. It is as if the handler called [NotApplied] with each of them, so the handler must have changed nothing. Default: none. ResultPolicy
	// is not asked about them.
	ForgetStatus []int
	// Rerun runs the handler again where an earlier run was cut short and may have had its effect, instead of the answer 409
	// unknown_outcome. For handlers that are idempotent by themselves (rule 19).
	Rerun bool
	// FailOpen runs handlers while the store cannot be asked, without any protection, instead of the answer 503.
	FailOpen bool

	// Logger; default [slog.Default].
	Logger *slog.Logger
	// Observe is told of each keyed request when it ends, on its goroutine, also if its handler panics. It must be quick.
	Observe func(context.Context, Observation)
}

// Observation is how a keyed request ended.
type Observation struct {
	Request *http.Request
	// Key is zero if the request had no valid one.
	Key    dedup.Key
	Result Result
	// Status of the answer. Zero if it is not known: the handler panicked, or ran without the store.
	Status int
	// Took is how long the request took, Waited how much of that was over when the handler began (in a transaction that was run
	// again: the last time), or all of it if none ran: for the store, and for another request with the key.
	Took, Waited time.Duration
	// Err says why the store could not be asked, or did not take the answer, or why a function of the [Config] failed.
	Err error
}

// Result is a word for what became of a keyed request, fit for a metric label.
type Result string

// The results.
const (
	Executed       Result = "executed"        // the handler ran, its answer is kept
	Forgotten      Result = "forgotten"       // the handler ran, its answer is not kept
	Unstored       Result = "unstored"        // the handler ran, the store did not take its answer: later requests are told unknown_outcome
	Unguarded      Result = "unguarded"       // the handler ran without the store (FailOpen)
	Replayed       Result = "replayed"        //
	NotReplayable  Result = "not_replayable"  // 409
	InFlight       Result = "in_flight"       // 409
	UnknownOutcome Result = "unknown_outcome" // 409
	GivenUp        Result = "given_up"        // 409
	Mismatch       Result = "mismatch"        // 422
	Refused        Result = "refused"         // 400, 401, 403, 411, 413, 429; 503 overloaded; 500 for a mistake of the program around the middleware
	Unavailable    Result = "unavailable"     // 503 of the store or of a function of the Config; 500 where the transaction could not be committed
	Panicked       Result = "panicked"        // the handler
)

// check fills in defaults and returns all mistakes, joined.
func (c *Config) check() error {
	var problems []error
	require := func(ok bool, text string) {
		if !ok {
			problems = append(problems, errors.New(text))
		}
	}
	require(c.Store != nil, "Store is missing: a dedup.Store such as redisstore.New(client)")
	require(c.Scope != "", "Scope is missing: the name of the API, such as \"transfers\"")
	require(len(c.Scope) <= dedup.MaxPart && isText(c.Scope), fmt.Sprintf("Scope is no UTF-8 text of at most %d bytes without NUL", dedup.MaxPart))
	require(c.Principal != nil || c.Public, "Principal is missing: a function that says who sends the request; set Public if whoever knows a key may have its answer")
	require(c.Principal == nil || !c.Public, "Principal and Public exclude each other")
	require(len(c.Secret) >= minSecret || c.AnyPayload, fmt.Sprintf("Secret has less than %d bytes: the same random bytes in all instances; set AnyPayload if payloads are not to be compared", minSecret))
	require(c.PrincipalSecret == nil || len(c.PrincipalSecret) >= minSecret, fmt.Sprintf("PrincipalSecret has less than %d bytes: the same random bytes in all instances", minSecret))
	require(c.PrincipalSecret == nil || c.Principal != nil, "PrincipalSecret is set without a Principal")
	require(c.Fingerprint == nil || !c.AnyPayload, "Fingerprint and AnyPayload exclude each other: one changes what is compared, the other compares nothing")
	require(!slices.ContainsFunc(c.ForgetStatus, func(s int) bool { return s < 400 || s > 499 }), "ForgetStatus has a status outside 400 to 499: of an answer with 5xx nobody knows what was done before, use ResultPolicy for it")
	require(c.Syntax <= Strict, "Syntax is neither Lenient nor Strict")
	for name, d := range map[string]time.Duration{"Retention": c.Retention, "Lease": c.Lease, "Timeout": c.Timeout, "Wait": c.Wait, "Poll": c.Poll, "RetryAfter": c.RetryAfter, "StoreTimeout": c.StoreTimeout} {
		require(d >= 0, name+" is negative")
	}
	for name, n := range map[string]int64{"MaxBody": c.MaxBody, "MaxResponse": int64(c.MaxResponse), "MaxBuffer": int64(c.MaxBuffer), "MaxLiveKeys": int64(c.MaxLiveKeys),
		"MaxRequests": int64(c.MaxRequests), "MaxPrincipalRequests": int64(c.MaxPrincipalRequests), "MaxBytes": c.MaxBytes} {
		require(n >= 0, name+" is negative")
	}
	c.Header = textproto.CanonicalMIMEHeaderKey(cmp.Or(c.Header, DefaultHeader))
	c.ReplayedHeader = cmp.Or(c.ReplayedHeader, DefaultReplayedHeader)
	if len(c.Methods) == 0 {
		c.Methods = []string{http.MethodPost, http.MethodPatch}
	}
	require(!slices.ContainsFunc(c.OptionalMethods, func(m string) bool { return slices.Contains(c.Methods, m) }), "a method is in Methods and in OptionalMethods")
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
		c.MaxResponse = min(c.MaxResponse, max(0, limited.MaxResult()-maxHead))
	}
	if c.ResultPolicy == nil {
		c.ResultPolicy = DefaultResultPolicy
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	if len(problems) > 0 {
		return fmt.Errorf("httpidem: %w", errors.Join(problems...))
	}
	return nil
}
