package signin

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"
)

// OIDCConfig is the configuration of [NewOIDC]. All fields are required unless a default is named.
type OIDCConfig struct {
	// Issuer is the URL of the issuer, https unless it is on this machine.
	Issuer string
	// ClientID and ClientSecret are those of the page at the issuer. The secret may be empty, for a
	// public client.
	ClientID, ClientSecret string
	// PublicURL is the URL of the page in browsers. It ends with a slash. The issuer must know
	// PublicURL + "signin/callback" as a redirect URL of the client.
	PublicURL string
	// Prefix is the path of the page at this server, behind a proxy that may map the path.
	Prefix string
	// Scopes are requested beside openid.
	Scopes []string
	// NameClaim has the name of the person. The address of "email" must be one that the issuer has
	// verified. GroupsClaim has the groups, as a list.
	NameClaim, GroupsClaim string
	// Groups are those that the rules name. Others are not kept. By default no group is kept.
	Groups []string
	// Key seals the cookies: 32 to 4096 secret bytes. Processes with one key accept each other's
	// sessions.
	Key []byte
	// Life is how long a session lasts.
	Life time.Duration
	// Log gets the reasons of failed sign-ins.
	Log *slog.Logger
}

// OIDC signs persons in by the authorization code flow of OpenID Connect, with PKCE. A session is
// an encrypted cookie.
type OIDC struct {
	cfg      OIDCConfig
	client   *http.Client
	verifier *oidc.IDTokenVerifier
	oauth    oauth2.Config
	endAt    string // the issuer's page for signing out, or ""
	session  *sealer
	attempt  *sealer
	now      func() time.Time

	mu    sync.Mutex
	ended map[string]time.Time // sessions that were signed out, until they expire
}

// The cookies. A browser takes names with __Host- for this host alone, and with Secure.
const (
	sessionCookie = "__Host-idem-ops"
	attemptCookie = "__Host-idem-ops-signin"
)

// The bounds of requests to the issuer and of an attempt to sign in.
const (
	issuerWait  = 10 * time.Second
	maxIssuer   = 1 << 20 // bytes of an answer
	attemptLife = 10 * time.Minute
	maxReturn   = 1024 // bytes of a path to return to
	maxEnded    = 4096
)

// sessionOf is the content of the cookie of a session.
type sessionOf struct {
	ID     string   `json:"i"`
	Name   string   `json:"n"`
	Groups []string `json:"g,omitempty"`
}

// attemptOf is the content of the cookie of an attempt to sign in.
type attemptOf struct {
	State    string `json:"s"`
	Nonce    string `json:"n"`
	Verifier string `json:"v"`
	Return   string `json:"r"`
}

// NewOIDC asks the issuer for its configuration, for at most ten seconds.
func NewOIDC(ctx context.Context, cfg OIDCConfig) (*OIDC, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	o := &OIDC{
		cfg: cfg, client: issuerClient(), now: time.Now, ended: make(map[string]time.Time),
	}
	var err error
	if o.session, err = newSealer(cfg.Key, sessionCookie); err != nil {
		return nil, err
	}
	if o.attempt, err = newSealer(cfg.Key, attemptCookie); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(oidc.ClientContext(ctx, o.client), issuerWait)
	defer cancel()
	provider, err := oidc.NewProvider(ctx, cfg.Issuer)
	if err != nil {
		return nil, &DiscoveryError{Issuer: cfg.Issuer, Err: err}
	}
	var more struct {
		EndSession string `json:"end_session_endpoint"`
	}
	if err := provider.Claims(&more); err != nil {
		return nil, &DiscoveryError{Issuer: cfg.Issuer, Err: err}
	}
	o.endAt = more.EndSession
	o.verifier = provider.Verifier(&oidc.Config{
		ClientID: cfg.ClientID, Now: func() time.Time { return o.now() },
	})
	o.oauth = oauth2.Config{
		ClientID: cfg.ClientID, ClientSecret: cfg.ClientSecret, Endpoint: provider.Endpoint(),
		RedirectURL: cfg.PublicURL + callbackPath,
		Scopes:      append([]string{oidc.ScopeOpenID}, cfg.Scopes...),
	}
	return o, nil
}

// DiscoveryError means that the configuration of the issuer could not be read.
type DiscoveryError struct {
	Issuer string
	Err    error
}

// Error implements error.
func (e *DiscoveryError) Error() string {
	text := e.Err.Error()
	if len(text) > 300 { // it may have the whole page
		text = strings.ToValidUTF8(text[:300], "") + "..."
	}
	return fmt.Sprintf("issuer %s: its configuration cannot be read: %s", e.Issuer, text)
}

// Unwrap returns the cause.
func (e *DiscoveryError) Unwrap() error { return e.Err }

func (c *OIDCConfig) validate() error {
	for _, u := range []string{c.Issuer, c.PublicURL} {
		if err := checkURL(u); err != nil {
			return err
		}
	}
	switch {
	case !strings.HasSuffix(c.PublicURL, "/"):
		return fmt.Errorf("%s: the URL of the page ends with a slash", c.PublicURL)
	case c.ClientID == "":
		return errors.New("the client has no ID")
	case len(c.Key) < minKey || len(c.Key) > maxKey:
		return fmt.Errorf("the key has %d bytes, not %d to %d", len(c.Key), minKey, maxKey)
	case c.Life < time.Minute || c.Life > 24*time.Hour:
		return fmt.Errorf("a session lasts a minute to 24 hours, not %s", c.Life)
	case c.NameClaim == "" || c.GroupsClaim == "":
		return errors.New("the claim of names or of groups is empty")
	}
	return nil
}

// checkURL wants https, or http to this machine, and neither user, query nor fragment.
func checkURL(text string) error {
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return fmt.Errorf("%q is no URL such as https://id.example.com/", text)
	}
	at, err := netip.ParseAddr(u.Hostname())
	here := strings.EqualFold(u.Hostname(), "localhost") || err == nil && at.IsLoopback()
	if u.Scheme != "https" && (u.Scheme != "http" || !here) {
		return fmt.Errorf("%s: use https", text)
	}
	return nil
}

// issuerClient is for requests to the issuer, with bounded answers.
func issuerClient() *http.Client {
	return &http.Client{Timeout: issuerWait, Transport: boundedAnswers{http.DefaultTransport}}
}

type boundedAnswers struct{ next http.RoundTripper }

// RoundTrip implements [http.RoundTripper].
func (b boundedAnswers) RoundTrip(r *http.Request) (*http.Response, error) {
	res, err := b.next.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	res.Body = struct {
		io.Reader
		io.Closer
	}{io.LimitReader(res.Body, maxIssuer), res.Body}
	return res, nil
}

// Person implements [Method].
func (o *OIDC) Person(r *http.Request) (Person, error) {
	s, err := o.sessionOf(r)
	if err != nil {
		return Person{}, fmt.Errorf("%w: %w", ErrUnknown, err)
	}
	return Person{Name: s.Name, Groups: s.Groups}, nil
}

func (o *OIDC) sessionOf(r *http.Request) (s sessionOf, err error) {
	cookie, err := r.Cookie(sessionCookie)
	if err != nil {
		return s, err
	}
	if err := o.session.open(cookie.Value, &s, o.now()); err != nil {
		return s, err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if _, out := o.ended[s.ID]; out {
		return s, errOver
	}
	return s, nil
}

// end makes a session invalid in this process. If too many have ended, the one that expires first
// is forgotten.
func (o *OIDC) end(id string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	now := o.now()
	first := ""
	for other, expires := range o.ended {
		if !now.Before(expires) {
			delete(o.ended, other)
		} else if first == "" || expires.Before(o.ended[first]) {
			first = other
		}
	}
	if len(o.ended) >= maxEnded {
		delete(o.ended, first)
	}
	o.ended[id] = now.Add(o.cfg.Life) // no session lasts longer from now on
}

// personOf returns the person of an ID token.
func (o *OIDC) personOf(token *oidc.IDToken) (p Person, err error) {
	var claims map[string]any
	if err := token.Claims(&claims); err != nil {
		return p, err
	}
	if len(token.Audience) > 1 && claims["azp"] != o.cfg.ClientID {
		return p, errors.New("the ID token was issued to another client (azp)")
	}
	p.Name, _ = claims[o.cfg.NameClaim].(string)
	if !isName(p.Name) {
		return Person{}, fmt.Errorf("the ID token has no name in the claim %q", o.cfg.NameClaim)
	}
	verified := claims["email_verified"]
	if o.cfg.NameClaim == "email" && verified != true && verified != "true" {
		return Person{}, errors.New(
			"the issuer has not verified the e-mail address (claim email_verified): take another " +
				"claim for names",
		)
	}
	p.Groups = o.groupsOf(claims[o.cfg.GroupsClaim])
	return p, nil
}

// groupsOf returns the groups that rules name. A cookie has no room for all.
func (o *OIDC) groupsOf(claim any) (groups []string) {
	if one, ok := claim.(string); ok {
		claim = []any{one}
	}
	list, _ := claim.([]any)
	for _, item := range list {
		name, ok := item.(string)
		if ok && slices.Contains(o.cfg.Groups, name) && !slices.Contains(groups, name) {
			groups = append(groups, name)
		}
	}
	return groups
}

// newAttempt are fresh random values.
func newAttempt(back string) attemptOf {
	return attemptOf{
		State: rand.Text(), Nonce: rand.Text(), Verifier: oauth2.GenerateVerifier(), Return: back,
	}
}
