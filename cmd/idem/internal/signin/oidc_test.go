package signin

import (
	"context"
	"crypto/ecdsa"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/internal/issuertest"
)

// logged has the text of a log.
type logged struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// oidcSite is a page behind an issuer, and a browser.
type oidcSite struct {
	t       *testing.T
	issuer  *issuertest.Issuer
	oidc    *OIDC
	url     string
	browser *http.Client
	log     logged
	skew    time.Duration
}

func newOIDCSite(t *testing.T, change ...func(*OIDCConfig)) *oidcSite {
	t.Helper()
	s := &oidcSite{t: t, issuer: issuertest.New(t)}
	mux := http.NewServeMux()
	server := httptest.NewTLSServer(mux)
	t.Cleanup(server.Close)
	s.url = server.URL + "/admin/"
	s.issuer.Redirect(s.url + callbackPath)
	cfg := OIDCConfig{
		Issuer: s.issuer.URL, ClientID: issuertest.ClientID, ClientSecret: issuertest.ClientSecret, PublicURL: s.url, Prefix: "/admin/",
		Scopes: []string{"email"}, NameClaim: "email", GroupsClaim: "groups", Groups: []string{"sre", "dev"},
		Key: []byte(strings.Repeat("k", minKey)), Life: time.Hour, Log: slog.New(slog.NewTextHandler(&s.log, nil)),
	}
	for _, c := range change {
		c(&cfg)
	}
	var err error
	s.oidc, err = NewOIDC(t.Context(), cfg)
	require.NoError(t, err)
	s.oidc.now = func() time.Time { return time.Now().Add(s.skew) }
	guard := &Guard{Method: s.oidc, Rules: Rules{ViewerGroups: []string{"dev"}, OperatorGroups: []string{"sre"}}}
	mux.Handle("/", s.oidc.Serve(guard.Find(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		who, err := guard.Auth(r)
		if err != nil {
			s.oidc.Deny(w, r, err)
			return
		}
		_, _ = io.WriteString(w, "hello "+who+" "+strings.Join(PersonOf(r, who).Groups, ",")+" at "+r.URL.RequestURI())
	}))))
	s.browser = s.newBrowser(server)
	s.issuer.SignIn(map[string]any{"email": "ada@example.com", "email_verified": true, "groups": []string{"dev", "sales"}})
	return s
}

func (s *oidcSite) newBrowser(server *httptest.Server) *http.Client {
	s.t.Helper()
	jar, err := cookiejar.New(nil)
	require.NoError(s.t, err)
	browser := *server.Client()
	browser.Jar = jar
	return &browser
}

// ask sends a request as a browser does that opens a page.
func (s *oidcSite) ask(method, at string, header ...string) (int, string, *http.Response) {
	s.t.Helper()
	req, err := http.NewRequestWithContext(s.t.Context(), method, at, nil)
	require.NoError(s.t, err)
	req.Header.Set("Accept", "text/html")
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	res, err := s.browser.Do(req)
	require.NoError(s.t, err)
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	require.NoError(s.t, err)
	return res.StatusCode, string(text), res
}

// stepwise makes the browser show each redirect.
func (s *oidcSite) stepwise() {
	s.browser.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
}

func (s *oidcSite) cookie(name string) *http.Cookie {
	s.t.Helper()
	u, err := url.Parse(s.url)
	require.NoError(s.t, err)
	for _, c := range s.browser.Jar.Cookies(u) {
		if c.Name == name {
			return c
		}
	}
	return nil
}

func TestOIDC_SignIn(t *testing.T) {
	s := newOIDCSite(t)
	status, body, res := s.ask(http.MethodGet, s.url+"event?id=a%2Fb&type=x")
	require.Equal(t, http.StatusOK, status, s.log.String())
	require.Equal(t, "hello ada@example.com dev at /admin/event?id=a%2Fb&type=x", body, "and back to the same page")
	require.Equal(t, s.url+"event?id=a%2Fb&type=x", res.Request.URL.String())
	_, body, _ = s.ask(http.MethodGet, s.url)
	require.Contains(t, body, "hello ada@example.com")
	asked := s.issuer.Requests()
	require.Len(t, asked, 1, "the session lasts")
	require.Equal(t, "openid email", asked[0].Get("scope"))
	require.Equal(t, "S256", asked[0].Get("code_challenge_method"))
	require.NotEqual(t, asked[0].Get("state"), asked[0].Get("nonce"))
	require.Nil(t, s.cookie(attemptCookie), "good for one sign-in")
	value := s.cookie(sessionCookie).Value
	require.NotContains(t, value, "ada")

	s.skew = time.Hour
	s.issuer.Break(func(claims map[string]any) { claims["exp"] = time.Now().Add(2 * time.Hour).Unix() }, nil, "")
	_, body, _ = s.ask(http.MethodGet, s.url)
	require.Contains(t, body, "hello")
	require.Len(t, s.issuer.Requests(), 2, "a session is over after its life")
	require.NotEqual(t, value, s.cookie(sessionCookie).Value)
}

// Cookies are for this host alone, over TLS, and out of reach of scripts and of other sites.
func TestOIDC_Cookies(t *testing.T) {
	s := newOIDCSite(t)
	s.stepwise()
	_, _, res := s.ask(http.MethodGet, s.url)
	require.Equal(t, http.StatusFound, res.StatusCode)
	_, _, res2 := s.ask(http.MethodGet, res.Header.Get("Location"))
	_, _, res3 := s.ask(http.MethodGet, res2.Header.Get("Location"))
	require.Equal(t, http.StatusSeeOther, res3.StatusCode)
	n := 0
	for _, c := range append(res.Cookies(), res3.Cookies()...) {
		n++
		require.True(t, c.Secure && c.HttpOnly && c.Path == "/" && c.Domain == "" && c.SameSite == http.SameSiteLaxMode, c.String())
		require.True(t, strings.HasPrefix(c.Name, "__Host-"))
		require.LessOrEqual(t, c.MaxAge, int(time.Hour/time.Second))
		require.NotZero(t, c.MaxAge)
	}
	require.Equal(t, 3, n, "an attempt, its end, and a session")
}

// An answer that is not the one to this browser's request signs no person in.
func TestOIDC_Refuses(t *testing.T) {
	claim := func(name string, value any) func(map[string]any) {
		return func(claims map[string]any) { claims[name] = value }
	}
	for name, c := range map[string]struct {
		change  func(map[string]any)
		key     *ecdsa.PrivateKey
		refusal string
		says    string
	}{
		"another nonce":        {change: claim("nonce", "x"), says: "nonce"},
		"no nonce":             {change: claim("nonce", nil), says: "nonce"},
		"another client":       {change: claim("aud", "other"), says: "audience"},
		"another party":        {change: func(m map[string]any) { m["aud"], m["azp"] = []string{issuertest.ClientID, "other"}, "other" }, says: "azp"},
		"another issuer":       {change: claim("iss", "https://other.example"), says: "different provider"},
		"an old token":         {change: claim("exp", time.Now().Add(-time.Minute).Unix()), says: "expired"},
		"another key":          {key: issuertest.NewKey(t), says: "ID token is not valid"},
		"a refusal":            {refusal: "access_denied", says: "access_denied"},
		"an unverified e-mail": {change: claim("email_verified", false), says: "email_verified"},
		"an unchecked e-mail":  {change: claim("email_verified", nil), says: "email_verified"},
		"no name":              {change: claim("email", nil), says: "no name in the claim"},
		"a name with controls": {change: claim("email", "a\x00b"), says: "no name in the claim"},
	} {
		s := newOIDCSite(t)
		s.issuer.Break(c.change, c.key, c.refusal)
		status, body, _ := s.ask(http.MethodGet, s.url)
		require.Equal(t, http.StatusForbidden, status, name)
		require.Contains(t, body, "sign-in has failed", name)
		require.Contains(t, s.log.String(), c.says, name)
		require.Nil(t, s.cookie(sessionCookie), name)
		s.issuer.Break(nil, nil, "")
		status, _, _ = s.ask(http.MethodGet, s.url)
		require.Equal(t, http.StatusOK, status, name)
	}
}

// The state binds an answer to the browser that asked, and a code is good for one use.
func TestOIDC_State(t *testing.T) {
	s := newOIDCSite(t)
	s.stepwise()
	answerOf := func() string {
		_, _, res := s.ask(http.MethodGet, s.url)
		_, _, res = s.ask(http.MethodGet, res.Header.Get("Location"))
		return res.Header.Get("Location")
	}
	first := answerOf()
	second := answerOf() // a second tab: the attempt of the first is gone
	status, _, _ := s.ask(http.MethodGet, first)
	require.Equal(t, http.StatusForbidden, status)
	require.Contains(t, s.log.String(), "another attempt (state)")
	status, _, _ = s.ask(http.MethodGet, second)
	require.Equal(t, http.StatusForbidden, status, "the cookie of an attempt is good for one answer")

	third := answerOf()
	attempt := s.cookie(attemptCookie)
	status, _, _ = s.ask(http.MethodGet, third)
	require.Equal(t, http.StatusSeeOther, status)
	s.browser.Jar, _ = cookiejar.New(nil) // another browser, which has stolen the cookie and the answer
	status, _, _ = s.ask(http.MethodGet, third, "Cookie", attempt.Name+"="+attempt.Value)
	require.Equal(t, http.StatusForbidden, status)
	require.Contains(t, s.log.String(), "invalid_grant")

	fourth := answerOf()
	s.skew = attemptLife
	status, _, _ = s.ask(http.MethodGet, fourth)
	require.Equal(t, http.StatusForbidden, status)
	require.Contains(t, s.log.String(), errOver.Error())
	s.browser.Jar, _ = cookiejar.New(nil)
	status, _, _ = s.ask(http.MethodGet, fourth)
	require.Equal(t, http.StatusForbidden, status, "a forged link, without an attempt")
}

// Only a person that opens a page is led to the issuer, but not scripts and forms.
func TestOIDC_WhoIsLedToTheIssuer(t *testing.T) {
	s := newOIDCSite(t)
	s.stepwise()
	for name, c := range map[string]struct {
		method, mode, dest, accept string
		want                       int
	}{
		"a link":         {http.MethodGet, "navigate", "document", "text/html", http.StatusFound},
		"an old browser": {http.MethodGet, "", "", "text/html,*/*", http.StatusFound},
		"a refresh":      {http.MethodGet, "cors", "empty", "*/*", http.StatusUnauthorized},
		"a frame":        {http.MethodGet, "navigate", "iframe", "text/html", http.StatusUnauthorized},
		"an old script":  {http.MethodGet, "", "", "*/*", http.StatusUnauthorized},
		"a form":         {http.MethodPost, "navigate", "document", "text/html", http.StatusUnauthorized},
		"a picture":      {http.MethodGet, "no-cors", "image", "image/*", http.StatusUnauthorized},
		"a health check": {http.MethodHead, "", "", "text/html", http.StatusUnauthorized},
	} {
		header := []string{"Accept", c.accept}
		if c.mode != "" {
			header = append(header, "Sec-Fetch-Mode", c.mode, "Sec-Fetch-Dest", c.dest)
		}
		status, _, res := s.ask(c.method, s.url, header...)
		require.Equal(t, c.want, status, name)
		require.Equal(t, c.want == http.StatusFound, len(res.Cookies()) > 0, name)
	}
	long := s.url + "event?id=" + strings.Repeat("x", maxReturn)
	_, _, res := s.ask(http.MethodGet, long)
	require.Equal(t, http.StatusFound, res.StatusCode)
	s.browser.CheckRedirect = nil
	_, body, _ := s.ask(http.MethodGet, long)
	require.Contains(t, body, " at /admin/", "a long address is not kept")
}

func TestOIDC_SignOut(t *testing.T) {
	s := newOIDCSite(t)
	s.ask(http.MethodGet, s.url)
	stolen := s.cookie(sessionCookie)
	require.NotNil(t, stolen)
	status, _, _ := s.ask(http.MethodPost, s.url+signOutPath, "Sec-Fetch-Site", "cross-site")
	require.Equal(t, http.StatusForbidden, status)
	require.NotNil(t, s.cookie(sessionCookie))
	status, body, _ := s.ask(http.MethodPost, s.url+signOutPath, "Sec-Fetch-Site", "same-origin")
	require.Equal(t, http.StatusOK, status)
	require.Contains(t, body, s.issuer.URL+"/end?client_id=idem-ops")
	require.Nil(t, s.cookie(sessionCookie))
	s.stepwise()
	status, _, _ = s.ask(http.MethodGet, s.url, "Cookie", stolen.Name+"="+stolen.Value)
	require.Equal(t, http.StatusFound, status, "a copy of the cookie is worth nothing")

	clear(s.oidc.ended)
	for i := range maxEnded {
		s.oidc.ended[fmt.Sprint(i)] = time.Now().Add(time.Minute + time.Duration(i)*time.Microsecond)
	}
	for range 3 {
		s.oidc.end(newAttempt("").State)
	}
	require.Equal(t, maxEnded, len(s.oidc.ended)) //nolint:testifylint // a failure would print all
	_, first := s.oidc.ended["0"]
	_, last := s.oidc.ended[fmt.Sprint(maxEnded-1)]
	require.Equal(t, []bool{false, true}, []bool{first, last}, "the first to expire makes room")
	s.skew = 2 * time.Hour
	s.oidc.end("last")
	require.Len(t, s.oidc.ended, 1, "ended sessions are forgotten when they would have expired")
}

// A person without the right groups may sign in, and sees only the way out.
func TestOIDC_NoViewer(t *testing.T) {
	s := newOIDCSite(t)
	s.issuer.SignIn(map[string]any{"email": "eve@example.com", "email_verified": "true", "groups": "sales"})
	status, body, _ := s.ask(http.MethodGet, s.url)
	require.Equal(t, http.StatusForbidden, status)
	require.Contains(t, body, "not for you")
	require.Contains(t, body, "Sign out")
	require.NotContains(t, body, "hello")
}

// A cookie is invalid if it was changed, made with another key, or made for another purpose.
func TestOIDC_ForgedCookies(t *testing.T) {
	s := newOIDCSite(t)
	s.stepwise()
	other, err := newSealer([]byte(strings.Repeat("x", minKey)), sessionCookie)
	require.NoError(t, err)
	session := sessionOf{ID: "1", Name: "ada@example.com", Groups: []string{"dev"}}
	until := time.Now().Add(time.Hour)
	good, err := s.oidc.session.seal(session, until)
	require.NoError(t, err)
	foreign, err := other.seal(session, until)
	require.NoError(t, err)
	purpose, err := s.oidc.attempt.seal(session, until)
	require.NoError(t, err)
	changed := []byte(good)
	changed[len(changed)/2] ^= 1
	for name, c := range map[string]struct {
		value string
		want  int
	}{
		"good": {good, http.StatusOK}, "another key": {foreign, http.StatusFound}, "another purpose": {purpose, http.StatusFound},
		"changed": {string(changed), http.StatusFound}, "cut": {good[:8], http.StatusFound}, "empty": {"", http.StatusFound},
		"long": {strings.Repeat("A", maxCookie+1), http.StatusFound},
	} {
		status, _, _ := s.ask(http.MethodGet, s.url, "Cookie", sessionCookie+"="+c.value)
		require.Equal(t, c.want, status, name)
	}
	_, err = s.oidc.session.seal(sessionOf{Name: strings.Repeat("x", maxCookie)}, until)
	require.ErrorIs(t, err, errCookie)
}

func TestNewOIDC_DiscoveryFails(t *testing.T) {
	answers := map[string]http.HandlerFunc{
		"404": http.NotFound,
		"a page": func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, "<html>"+strings.Repeat("x", 1000))
		},
		"another issuer": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, `{"issuer":"https://other.example"}`)
		},
		"too much": func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, `{"issuer":"http://`+r.Host+`","x":"`+strings.Repeat("x", maxIssuer)+`"}`)
		},
	}
	config := func(issuer string) OIDCConfig {
		return OIDCConfig{
			Issuer: issuer, ClientID: "a", PublicURL: "https://ops.example.com/", Prefix: "/", NameClaim: "email", GroupsClaim: "groups",
			Key: make([]byte, minKey), Life: time.Hour, Log: slog.New(slog.DiscardHandler),
		}
	}
	var away *DiscoveryError
	for name, answer := range answers {
		server := httptest.NewServer(answer)
		_, err := NewOIDC(t.Context(), config(server.URL))
		server.Close()
		require.ErrorAs(t, err, &away, name)
		require.Less(t, len(err.Error()), 500, name)
		require.Contains(t, err.Error(), server.URL, name)
	}
	ctx, cancel := context.WithCancel(t.Context())
	hangs := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		cancel()
		<-r.Context().Done()
	}))
	defer hangs.Close()
	_, err := NewOIDC(ctx, config(hangs.URL))
	require.ErrorIs(t, err, context.Canceled)

	for says, change := range map[string]func(*OIDCConfig){
		"use https":     func(c *OIDCConfig) { c.Issuer = "http://id.example.com" },
		"is no URL":     func(c *OIDCConfig) { c.Issuer = "https://u:p@id.example.com" },
		"with a slash":  func(c *OIDCConfig) { c.PublicURL = "https://ops.example.com" },
		"no ID":         func(c *OIDCConfig) { c.ClientID = "" },
		"the key has":   func(c *OIDCConfig) { c.Key = c.Key[1:] },
		"a session":     func(c *OIDCConfig) { c.Life = 25 * time.Hour },
		"claim of name": func(c *OIDCConfig) { c.NameClaim = "" },
	} {
		cfg := config(hangs.URL)
		change(&cfg)
		_, err := NewOIDC(t.Context(), cfg)
		require.ErrorContains(t, err, says)
		require.NotErrorAs(t, err, &away)
	}
	require.Equal(t, issuerWait, issuerClient().Timeout)
}
