// Package issuertest has a small issuer of OpenID Connect, for tests of the command and of its
// pages.
package issuertest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"math/big"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The client that the issuer knows.
const (
	ClientID     = "idem-ops"
	ClientSecret = "client-secret-4711"
)

// Issuer approves each request of its client at once. It checks the redirect URL, the secret and
// PKCE, and a code is good for one use.
type Issuer struct {
	// URL is the issuer.
	URL string

	t        testing.TB
	key      *ecdsa.PrivateKey
	mu       sync.Mutex
	redirect string
	claims   map[string]any
	change   func(claims map[string]any)
	signer   *ecdsa.PrivateKey
	refusal  string
	codes    map[string]url.Values
	requests []url.Values
}

// New starts an issuer, which ends with the test.
func New(t testing.TB) *Issuer {
	t.Helper()
	i := &Issuer{t: t, key: NewKey(t), codes: make(map[string]url.Values)}
	i.signer = i.key
	mux := http.NewServeMux()
	mux.HandleFunc("GET /.well-known/openid-configuration", i.discovery)
	mux.HandleFunc("GET /keys", i.keys)
	mux.HandleFunc("GET /authorize", i.authorize)
	mux.HandleFunc("POST /token", i.token)
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	i.URL = server.URL
	return i
}

// NewKey makes a key for signatures.
func NewKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	return key
}

// Redirect sets the redirect URL that the client has registered.
func (i *Issuer) Redirect(to string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.redirect = to
}

// SignIn sets the claims of the signed-in person, beside those of the protocol.
func (i *Issuer) SignIn(claims map[string]any) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.claims = claims
}

// Break makes the issuer faulty: change changes the claims of each ID token, key signs them, and
// refusal is the error of authorizations. Zero values repair the issuer.
func (i *Issuer) Break(change func(claims map[string]any), key *ecdsa.PrivateKey, refusal string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.change, i.signer, i.refusal = change, key, refusal
	if key == nil {
		i.signer = i.key
	}
}

// Requests returns the parameters of all authorization requests.
func (i *Issuer) Requests() []url.Values {
	i.mu.Lock()
	defer i.mu.Unlock()
	return append([]url.Values(nil), i.requests...)
}

func (i *Issuer) discovery(w http.ResponseWriter, _ *http.Request) {
	i.reply(w, http.StatusOK, map[string]any{
		"issuer": i.URL, "authorization_endpoint": i.URL + "/authorize", "token_endpoint": i.URL + "/token",
		"jwks_uri": i.URL + "/keys", "end_session_endpoint": i.URL + "/end",
		"response_types_supported": []string{"code"}, "subject_types_supported": []string{"public"},
		"id_token_signing_alg_values_supported": []string{"ES256"},
	})
}

func (i *Issuer) keys(w http.ResponseWriter, _ *http.Request) {
	point, err := i.key.PublicKey.Bytes() // 4, x, y
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	i.reply(w, http.StatusOK, map[string]any{"keys": []any{map[string]any{
		"kty": "EC", "crv": "P-256", "alg": "ES256", "use": "sig", "kid": "1",
		"x": encode(point[1:33]), "y": encode(point[33:]),
	}}})
}

func (i *Issuer) authorize(w http.ResponseWriter, r *http.Request) {
	i.mu.Lock()
	defer i.mu.Unlock()
	q := r.URL.Query()
	i.requests = append(i.requests, q)
	if q.Get("client_id") != ClientID || q.Get("redirect_uri") != i.redirect || q.Get("response_type") != "code" {
		http.Error(w, "unknown client or redirect URL", http.StatusBadRequest)
		return
	}
	back := url.Values{"state": {q.Get("state")}}
	if i.refusal != "" {
		back.Set("error", i.refusal)
	} else {
		code := rand.Text()
		i.codes[code] = q
		back.Set("code", code)
	}
	http.Redirect(w, r, i.redirect+"?"+back.Encode(), http.StatusFound)
}

func (i *Issuer) token(w http.ResponseWriter, r *http.Request) {
	i.mu.Lock()
	defer i.mu.Unlock()
	id, secret, ok := r.BasicAuth()
	if !ok {
		id, secret = r.FormValue("client_id"), r.FormValue("client_secret")
	}
	asked := i.codes[r.FormValue("code")]
	delete(i.codes, r.FormValue("code"))
	challenge := sha256.Sum256([]byte(r.FormValue("code_verifier")))
	switch {
	case id != ClientID || secret != ClientSecret:
		i.reply(w, http.StatusUnauthorized, map[string]any{"error": "invalid_client"})
		return
	case asked == nil, r.FormValue("redirect_uri") != i.redirect, asked.Get("code_challenge_method") != "S256",
		asked.Get("code_challenge") != encode(challenge[:]):
		i.reply(w, http.StatusBadRequest, map[string]any{"error": "invalid_grant"})
		return
	}
	claims := map[string]any{
		"iss": i.URL, "aud": ClientID, "sub": "1", "nonce": asked.Get("nonce"),
		"iat": time.Now().Unix(), "exp": time.Now().Add(time.Minute).Unix(),
	}
	maps.Copy(claims, i.claims)
	if i.change != nil {
		i.change(claims)
	}
	token, err := sign(i.signer, claims)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	i.reply(w, http.StatusOK, map[string]any{"access_token": "a", "token_type": "Bearer", "id_token": token})
}

func (i *Issuer) reply(w http.ResponseWriter, status int, value any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	if err := json.NewEncoder(w).Encode(value); err != nil {
		i.t.Log(err)
	}
}

func encode(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }

// sign makes a JSON Web Token.
func sign(key *ecdsa.PrivateKey, claims map[string]any) (string, error) {
	body, err := json.Marshal(claims)
	if err != nil {
		return "", err
	}
	text := encode([]byte(`{"alg":"ES256","kid":"1","typ":"JWT"}`)) + "." + encode(body)
	sum := sha256.Sum256([]byte(text))
	r, s, err := ecdsa.Sign(rand.Reader, key, sum[:])
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%s.%s", text, encode(append(padded(r), padded(s)...))), nil
}

func padded(n *big.Int) []byte { return n.FillBytes(make([]byte, 32)) }
