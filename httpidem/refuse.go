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

// ClientError is an error whose text is meant for the client. [Config].Principal, Tenant, Authorize and Fingerprint return one, alone or
// wrapped, to refuse a request. The client gets Status and Text of it, and nothing of the errors around it. Any other error of these
// functions is answered 503, without its text, and logged.
type ClientError struct {
	// Status is 400 to 599. Zero, or another number, is the usual one of the function: 401 of Principal, 403 of Authorize, else 400.
	Status int
	// Text is the detail of the problem that the client gets.
	Text string
}

// Error is the text.
func (e *ClientError) Error() string { return e.Text }

// Refuse returns a [ClientError]:
//
//	return "", httpidem.Refuse(http.StatusUnauthorized, "The token has expired.")
func Refuse(status int, text string) error { return &ClientError{Status: status, Text: text} }

// failedCheck is an error of the program's own: the client is told to come again, and the cause stays here.
type failedCheck struct{ cause error }

func (*failedCheck) Error() string {
	return "This request could not be checked. Try again later, with the same key."
}

func (e *failedCheck) Unwrap() error { return e.cause }

// refusedBy returns the answer to a request that a function of the Config has refused, or failed to check. status and code are the usual ones.
func (q *request) refusedBy(function string, status int, code string, err error) (int, string, error) {
	if e, ok := errors.AsType[*ClientError](err); ok && e != nil {
		if e.Status >= 400 && e.Status <= 599 {
			status = e.Status
		}
		return status, code, clientError(e.Text)
	}
	if q.r.Context().Err() == nil {
		q.logSparsely("httpidem.Config."+function+" failed, requests are answered 503; to refuse a request return httpidem.Refuse(status, text)",
			slog.String("error", safetext.Line(err)))
	}
	return http.StatusServiceUnavailable, "check_failed", &failedCheck{err}
}

// serverMistake returns the answer to a request that a function of the Config has given a value that cannot be used.
func (q *request) serverMistake(code, text string) (int, string, error) {
	q.logSparsely(text)
	return http.StatusInternalServerError, code, clientError("This server has made a mistake with the request, which did not run.")
}

// logSparsely logs what may be wrong with every request.
func (q *request) logSparsely(text string, attrs ...slog.Attr) {
	if ok, left := q.m.sparse.may(text, time.Now()); ok {
		attrs = append(attrs, slog.String("method", q.r.Method), slog.String("scope", q.m.cfg.Scope), slog.Int("unlogged", left))
		q.m.cfg.Logger.LogAttrs(q.r.Context(), slog.LevelError, text, attrs...)
	}
}

// checkCORS logs that a handler has set what allows its origin to read the answer. A replay to a browser lacks it, and cannot be read.
func (q *request) checkCORS(rec *recorder) {
	const name = "Access-Control-Allow-Origin"
	if a, _ := rec.finish(); len(a.header[name]) > 0 && len(rec.base[name]) == 0 {
		q.logSparsely("the handler sets CORS headers behind the idempotency middleware, and replays do not have them: set them in front of httpidem")
	}
}

// sparsely is how often a line is logged that may be wrong with every request.
const sparsely = 10 * time.Second

// sparse bounds how often lines are logged. There are as many as texts in this package. Safe for concurrent use; the zero value is ready.
type sparse struct {
	mu    sync.Mutex
	lines map[string]*sparseLine
}

type sparseLine struct {
	next time.Time
	left int
}

// may reports whether a line is to be logged now, and how many like it were not since the last one.
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

// HashPrincipal returns what stands for a principal in keys if [Config].PrincipalSecret is set: 32 hexadecimal digits, the half of an
// HMAC-SHA-256. With it an operator finds a principal's keys in the store.
func HashPrincipal(secret []byte, principal string) string {
	mac := hmac.New(sha256.New, secret)
	mac.Write([]byte("httpidem principal\x00" + principal))
	return hex.EncodeToString(mac.Sum(nil)[:16])
}

// isCredential reports whether a principal is what somebody logs in with, rather than a name: the value of an Authorization header, or a JWT.
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
	return strings.HasPrefix(principal, "eyJ") && (dots == 2 || dots == 4) // signed, or encrypted (RFC 7516)
}

func cutSpace(s string) (before, after string, ok bool) {
	i := strings.IndexAny(s, " \t")
	if i < 0 {
		return s, "", false
	}
	return s[:i], strings.TrimLeft(s[i:], " \t"), true
}
