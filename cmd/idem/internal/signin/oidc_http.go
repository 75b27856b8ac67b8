package signin

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"html/template"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"

	"github.com/idem-go/idem/internal/opsstyle"
)

// The paths below the page.
const (
	callbackPath = "signin/callback"
	signOutPath  = "signout"
)

// SignOut is the address of the form to sign out, relative to all pages.
const SignOut = "./" + signOutPath

// Serve answers the paths of signing in and out, and passes other requests on.
func (o *OIDC) Serve(next http.Handler) http.Handler {
	guard := http.NewCrossOriginProtection()
	_ = guard.AddTrustedOrigin(Origin(o.cfg.PublicURL)) // NewOIDC has checked the URL
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+o.cfg.Prefix+callbackPath, o.callback)
	mux.Handle("POST "+o.cfg.Prefix+signOutPath, guard.Handler(http.HandlerFunc(o.signOut)))
	mux.Handle("/", next)
	return mux
}

// Origin returns the scheme and the host of a URL.
func Origin(text string) string {
	u, err := url.Parse(text)
	if err != nil {
		return ""
	}
	return u.Scheme + "://" + u.Host
}

// Deny implements [Method]. A browser that opens a page is sent to the issuer; other requests, such
// as those of scripts, get an error.
func (o *OIDC) Deny(w http.ResponseWriter, r *http.Request, err error) {
	switch {
	case errors.Is(err, ErrForbidden):
		o.say(w, http.StatusForbidden, message{
			Title: "This page is not for you",
			Text:  "You are signed in, but may not look at this page.", Out: true,
		})
	case !errors.Is(err, ErrUnknown) || !opensPage(r):
		refuse(w, err)
	default:
		o.begin(w, r)
	}
}

// opensPage reports whether a person opens a page, by a link or the address.
func opensPage(r *http.Request) bool {
	if r.Method != http.MethodGet {
		return false
	}
	if mode := r.Header.Get("Sec-Fetch-Mode"); mode != "" {
		return mode == "navigate" && r.Header.Get("Sec-Fetch-Dest") == "document"
	}
	return strings.Contains(r.Header.Get("Accept"), "text/html")
}

// begin sends the browser to the issuer.
func (o *OIDC) begin(w http.ResponseWriter, r *http.Request) {
	a := newAttempt(o.returnTo(r.URL))
	if err := o.setCookie(w, o.attempt, attemptCookie, a, attemptLife); err != nil {
		o.cfg.Log.Error("sign-in failed", "error", err)
		refuse(w, err)
		return
	}
	w.Header().Set("Cache-Control", "no-store")
	http.Redirect(w, r, o.oauth.AuthCodeURL(
		a.State, oidc.Nonce(a.Nonce), oauth2.S256ChallengeOption(a.Verifier),
	), http.StatusFound)
}

// returnTo is the address of a page relative to the first one, or "".
func (o *OIDC) returnTo(u *url.URL) string {
	path, ok := strings.CutPrefix(u.EscapedPath(), o.cfg.Prefix)
	if u.RawQuery != "" {
		path += "?" + u.RawQuery
	}
	if !ok || len(path) > maxReturn {
		return ""
	}
	return path
}

// callback takes the answer of the issuer.
func (o *OIDC) callback(w http.ResponseWriter, r *http.Request) {
	var a attemptOf
	cookie, err := r.Cookie(attemptCookie)
	if err == nil {
		err = o.attempt.open(cookie.Value, &a, o.now())
	}
	o.dropCookie(w, attemptCookie)
	var p Person
	if err == nil {
		p, err = o.exchange(r, a)
	}
	if err == nil {
		s := sessionOf{ID: rand.Text(), Name: p.Name, Groups: p.Groups}
		err = o.setCookie(w, o.session, sessionCookie, s, o.cfg.Life)
	}
	if err != nil {
		o.cfg.Log.Warn("sign-in failed", "error", err)
		o.say(w, http.StatusForbidden, message{
			Title: "The sign-in has failed", Text: "The log of the page has the reason.",
		})
		return
	}
	o.cfg.Log.Info("signed in", "user", p.Name)
	o.secure(w)
	w.Header().Set("Location", o.cfg.PublicURL+a.Return)
	w.WriteHeader(http.StatusSeeOther)
}

// exchange checks the answer of the issuer, and returns the person.
func (o *OIDC) exchange(r *http.Request, a attemptOf) (p Person, err error) {
	query := r.URL.Query()
	if subtle.ConstantTimeCompare([]byte(query.Get("state")), []byte(a.State)) != 1 {
		return p, errors.New("the answer of the issuer belongs to another attempt (state)")
	}
	if code := query.Get("error"); code != "" {
		return p, fmt.Errorf("the issuer refused the sign-in: %.100q", code)
	}
	ctx, cancel := context.WithTimeout(oidc.ClientContext(r.Context(), o.client), issuerWait)
	defer cancel()
	answer, err := o.oauth.Exchange(ctx, query.Get("code"), oauth2.VerifierOption(a.Verifier))
	if err != nil {
		return p, fmt.Errorf("the issuer gave no token: %w", withoutBody(err))
	}
	raw, _ := answer.Extra("id_token").(string)
	token, err := o.verifier.Verify(ctx, raw)
	if err != nil {
		return p, fmt.Errorf("the ID token is not valid: %w", err)
	}
	if subtle.ConstantTimeCompare([]byte(token.Nonce), []byte(a.Nonce)) != 1 {
		return p, errors.New("the ID token belongs to another attempt (nonce)")
	}
	return o.personOf(token)
}

// withoutBody shortens an error that has the answer of the issuer.
func withoutBody(err error) error {
	var refused *oauth2.RetrieveError
	if errors.As(err, &refused) && refused.Response != nil {
		return fmt.Errorf("%s %.100q", refused.Response.Status, refused.ErrorCode)
	}
	return err
}

// signOut ends the session in the browser and in this process.
func (o *OIDC) signOut(w http.ResponseWriter, r *http.Request) {
	if s, err := o.sessionOf(r); err == nil {
		o.end(s.ID)
		o.cfg.Log.Info("signed out", "user", s.Name)
	}
	o.dropCookie(w, sessionCookie)
	m := message{Title: "You are signed out", Text: "The session of this page has ended."}
	if u, err := url.Parse(o.endAt); err == nil && o.endAt != "" {
		q := u.Query()
		q.Set("client_id", o.cfg.ClientID)
		u.RawQuery = q.Encode()
		m.Issuer = u.String()
	}
	o.say(w, http.StatusOK, m)
}

func (o *OIDC) setCookie(
	w http.ResponseWriter, s *sealer, name string, value any, life time.Duration,
) error {
	text, err := s.seal(value, o.now().Add(life))
	if err != nil {
		return err
	}
	c := o.cookie(name)
	c.Value, c.MaxAge = text, int(life/time.Second)
	http.SetCookie(w, c)
	return nil
}

func (o *OIDC) dropCookie(w http.ResponseWriter, name string) {
	c := o.cookie(name)
	c.MaxAge = -1
	http.SetCookie(w, c)
}

// cookie has the attributes of all cookies. SameSite is Lax, because the browser comes back from
// the issuer by a link.
func (o *OIDC) cookie(name string) *http.Cookie {
	return &http.Cookie{
		Name: name, Path: "/", Secure: true, HttpOnly: true, SameSite: http.SameSiteLaxMode,
	}
}

// message is a page of its own.
type message struct {
	Title, Text string
	Out         bool   // with a form to sign out
	Issuer      string // where to sign out at the issuer, or ""
	Page        string
	Style       template.HTML
}

// style is the style sheet of the ops page, as an element, because the page serves the sheet to
// signed-in persons only. The policy allows this element by its hash.
var style = template.HTML("<style>" + opsstyle.CSS + "</style>") //nolint:gosec // no part of it is foreign

// messagePolicy limits browsers to the style and to forms of the page.
var messagePolicy = func() string {
	sum := sha256.Sum256([]byte(opsstyle.CSS))
	return "default-src 'none'; style-src 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) +
		"'; img-src data:; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
}()

var messagePage = template.Must(template.New("").Parse(`<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark"><title>{{.Title}} · Idem</title><link rel="icon" href="data:,">
{{.Style}}</head>
<body><header class="top"><div class="wrap top-row"><span class="brand">Idem</span></div></header>
<main class="wrap"><section class="card"><h1>{{.Title}}</h1><p>{{.Text}}</p>
<div class="actions">{{if .Out}}<form action="{{.Page}}signout" method="post"><button class="primary" type="submit">Sign out</button></form>
{{else}}<a href="{{.Page}}">Sign in</a>{{end}}
{{with .Issuer}}<a href="{{.}}">Sign out at the issuer too</a>{{end}}</div>
</section></main></body></html>
`))

func (o *OIDC) say(w http.ResponseWriter, status int, m message) {
	m.Page, m.Style = o.cfg.PublicURL, style
	o.secure(w)
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	_ = messagePage.Execute(w, m) // the browser may be gone
}

// secure sets the headers of answers that are not the page's.
func (o *OIDC) secure(w http.ResponseWriter) {
	h := w.Header()
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Security-Policy", messagePolicy)
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
}
