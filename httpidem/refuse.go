package httpidem

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/idem-go/idem/internal/safetext"
)

// ClientError is an error with a text for the client. [Config].Principal, Tenant, Authorize and
// Fingerprint return one, alone or wrapped, to refuse a request. The client gets Status and Text
// only, without the texts of wrapping errors. Any other error of these functions is logged, and
// answered 503 without the text.
type ClientError struct {
	// Status is 400 to 599. Zero, or another number, means the default of the function: 401 of
	// Principal, 403 of Authorize, else 400.
	Status int
	// Text is the detail of the problem for the client.
	Text string
}

// Error returns Text.
func (e *ClientError) Error() string { return e.Text }

// Refuse returns a [ClientError]:
//
//	return "", httpidem.Refuse(http.StatusUnauthorized, "The token has expired.")
func Refuse(status int, text string) error { return &ClientError{Status: status, Text: text} }

// failedCheck is an error of the program: the client is asked to retry, and the cause stays in the
// process.
type failedCheck struct{ cause error }

func (*failedCheck) Error() string {
	return "This request could not be checked. Try again later, with the same key."
}

func (e *failedCheck) Unwrap() error { return e.cause }

// refusedBy returns the answer to a request that a function of the Config has refused, or failed to
// check. status and code are the defaults.
func (q *request) refusedBy(
	function string, status int, code string, err error,
) (int, string, error) {
	if e, ok := errors.AsType[*ClientError](err); ok && e != nil {
		if e.Status >= 400 && e.Status <= 599 {
			status = e.Status
		}
		return status, code, clientError(e.Text)
	}
	if q.r.Context().Err() == nil {
		q.logSparsely("httpidem.Config."+function+" failed, requests are answered 503; to "+
			"refuse a request return httpidem.Refuse(status, text)",
			slog.String("error", safetext.Line(err)))
	}
	return http.StatusServiceUnavailable, "check_failed", &failedCheck{err}
}

// challenge sets WWW-Authenticate, which a 401 must have (RFC 9110, section 15.5.2), unless code in
// front has set it.
func (q *request) challenge(w http.ResponseWriter) {
	if len(w.Header().Values("WWW-Authenticate")) == 0 {
		w.Header().Set("WWW-Authenticate", q.m.cfg.Challenge)
	}
}

// isChallenge reports whether a text is visible ASCII with spaces inside.
func isChallenge(s string) bool {
	return s == strings.TrimSpace(s) &&
		!strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r > '~' })
}

// serverMistake returns the answer to a request for which a function of the Config returned an
// unusable value.
func (q *request) serverMistake(code, text string) (int, string, error) {
	q.logSparsely(text)
	return http.StatusInternalServerError, code,
		clientError("This request was not run because of a mistake on the server.")
}

// logSparsely logs a problem that every request may have, at most once per interval.
func (q *request) logSparsely(text string, attrs ...slog.Attr) {
	if ok, left := q.m.sparse.may(text, time.Now()); ok {
		attrs = append(attrs, slog.String("method", q.r.Method),
			slog.String("scope", q.m.cfg.Scope), slog.Int("unlogged", left))
		q.m.cfg.Logger.LogAttrs(q.r.Context(), slog.LevelError, text, attrs...)
	}
}

// checkCORS logs a handler that allows its origin to read the answer. A replay lacks this header,
// and a browser could not read the answer.
func (q *request) checkCORS(rec *recorder) {
	const name = "Access-Control-Allow-Origin"
	if a, _ := rec.finish(); len(a.header[name]) > 0 && len(rec.base[name]) == 0 {
		q.logSparsely(
			"the handler sets CORS headers behind the idempotency middleware, and replays do not " +
				"have them: set them in front of httpidem",
		)
	}
}

// sparsely is the smallest interval between two equal log lines.
const sparsely = 10 * time.Second

// sparse limits the rate of log lines, for each text. Safe for concurrent use; the zero value is
// ready to use.
type sparse struct {
	mu    sync.Mutex
	lines map[string]*sparseLine
}

type sparseLine struct {
	next time.Time
	left int
}

// may reports whether a line is to be logged now, and how many equal lines were suppressed before
// it.
func (s *sparse) may(text string, now time.Time) (ok bool, left int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.lines[text]
	if l == nil {
		l = &sparseLine{}
		if s.lines == nil {
			s.lines = make(map[string]*sparseLine)
		}
		s.lines[text] = l
	}
	if now.Before(l.next) {
		l.left++
		return false, 0
	}
	left, l.left, l.next = l.left, 0, now.Add(sparsely)
	return true, left
}

// HashPrincipal returns the hash that replaces a principal in keys if [Config].PrincipalSecret is
// set: 32 hexadecimal digits, the first half of an HMAC-SHA-256. Operators find a principal's keys
// in the store by the hash.
func HashPrincipal(secret []byte, principal string) string {
	mac := hmac.New(sha256.New, secret)
	mac.Write([]byte("httpidem principal\x00" + principal))
	return hex.EncodeToString(mac.Sum(nil)[:16])
}

// isCredential reports whether a principal is a credential instead of a name: the value of an
// Authorization header, or a JWT.
func isCredential(principal string) bool {
	if scheme, rest, ok := cutSpace(principal); ok {
		switch strings.ToLower(scheme) {
		case "bearer", "dpop":
			return true
		case "basic":
			pair, err := base64.StdEncoding.DecodeString(rest)
			return err == nil && strings.Contains(string(pair), ":")
		}
	}
	dots := strings.Count(principal, ".")
	// signed, or encrypted (RFC 7516)
	return strings.HasPrefix(principal, "eyJ") && (dots == 2 || dots == 4)
}

func cutSpace(s string) (before, after string, ok bool) {
	i := strings.IndexAny(s, " \t")
	if i < 0 {
		return s, "", false
	}
	return s[:i], strings.TrimLeft(s[i:], " \t"), true
}
