// Package signin finds the person behind a request to the ops page of the command, and decides
// about the rights of that person.
package signin

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"unicode"
	"unicode/utf8"
)

// Person is a signed-in person.
type Person struct {
	Name   string
	Groups []string
}

// Method is a way to sign in. Methods are safe for concurrent use.
type Method interface {
	// Person returns the person behind a request. The error matches ErrUnknown, ErrLimited or
	// ErrForbidden; any other means that persons cannot be checked at present.
	Person(r *http.Request) (Person, error)
	// Deny answers a request for which Person returned an error.
	Deny(w http.ResponseWriter, r *http.Request, err error)
}

var (
	// ErrUnknown means that the request has no credentials, or wrong ones.
	ErrUnknown = errors.New("no or wrong credentials")
	// ErrLimited means that too many attempts have failed.
	ErrLimited = errors.New("too many attempts")
	// ErrForbidden means that the sender or the person may not come in.
	ErrForbidden = errors.New("not allowed")
)

// Everybody stands for all signed-in persons, in [Rules].Operators.
const Everybody = "*"

// Rules decide about the rights of persons. They are not changed during use.
type Rules struct {
	// Viewers and ViewerGroups may look at the page. If both are empty, all persons may.
	Viewers, ViewerGroups []string
	// Operators and OperatorGroups may also change events. They need not be viewers. If both are
	// empty, no person may.
	Operators, OperatorGroups []string
}

// MayView reports whether p may look at the page.
func (r Rules) MayView(p Person) bool {
	return len(r.Viewers)+len(r.ViewerGroups) == 0 || isOneOf(p, r.Viewers, r.ViewerGroups) ||
		r.MayOperate(p)
}

// MayOperate reports whether p may change events.
func (r Rules) MayOperate(p Person) bool { return isOneOf(p, r.Operators, r.OperatorGroups) }

// AnyOperator reports whether some person may change events.
func (r Rules) AnyOperator() bool { return len(r.Operators)+len(r.OperatorGroups) > 0 }

func isOneOf(p Person, names, groups []string) bool {
	return slices.Contains(names, p.Name) || slices.Contains(names, Everybody) ||
		slices.ContainsFunc(p.Groups, func(g string) bool { return slices.Contains(groups, g) })
}

// Guard lets persons in by a method and rules.
type Guard struct {
	Method Method
	Rules  Rules
}

type answer struct {
	person Person
	err    error
}

type answerKey struct{}

// Find finds the person behind each request once, before next. It refuses no request: Auth does,
// which next calls.
func (g *Guard) Find(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var found answer
		found.person, found.err = g.Method.Person(r)
		if found.err == nil && !g.Rules.MayView(found.person) {
			found.err = ErrForbidden
		}
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), answerKey{}, found)))
	})
}

// Auth returns the name of the person that Find has found.
func (g *Guard) Auth(r *http.Request) (string, error) {
	found, ok := r.Context().Value(answerKey{}).(answer)
	if !ok {
		return "", ErrUnknown
	}
	return found.person.Name, found.err
}

// PersonOf returns the person that a [Guard] has found, or one with the name alone.
func PersonOf(r *http.Request, name string) Person {
	found, ok := r.Context().Value(answerKey{}).(answer)
	if !ok || found.err != nil {
		return Person{Name: name}
	}
	return found.person
}

// refuse answers with the status of an error, and without its reason.
func refuse(w http.ResponseWriter, err error) {
	switch {
	case errors.Is(err, ErrUnknown):
		http.Error(w, "You are not signed in.", http.StatusUnauthorized)
	case errors.Is(err, ErrLimited):
		w.Header().Set("Retry-After", "10")
		http.Error(w, "Too many attempts. Wait a moment.", http.StatusTooManyRequests)
	case errors.Is(err, ErrForbidden):
		http.Error(w, "This page is not for you.", http.StatusForbidden)
	default:
		http.Error(w, "Sign-in does not work at present. The log has the reason.",
			http.StatusServiceUnavailable)
	}
}

// maxName bounds the name of a person or a group.
const maxName = 256

// isName reports whether text can be the name of a person or a group.
func isName(text string) bool {
	if text == "" || text == Everybody || len(text) > maxName || !utf8.ValidString(text) {
		return false
	}
	for _, r := range text {
		if !unicode.IsPrint(r) {
			return false
		}
	}
	return true
}
