package kafkaauth

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// ClientCredentials is the client of an authorization server, with the grant of RFC 6749, section
// 4.4. No String method or encoding shows the secret.
type ClientCredentials struct {
	// TokenURL is the token endpoint: an https URL without a user and a fragment. Required.
	TokenURL string
	// ClientID is required.
	ClientID string
	// ClientSecret is required.
	ClientSecret string
	// Scopes are optional.
	Scopes []string
	// Params are further parameters of the request, such as "audience" or "resource".
	Params url.Values
	// SecretInBody sends ID and secret as parameters, for servers that do not take HTTP Basic.
	SecretInBody bool
	// AllowInsecure permits an http URL, which sends the secret in the clear.
	AllowInsecure bool
	// Client sends the requests, by default with the CAs of the system. Redirects are not followed.
	Client *http.Client
}

// String shows the endpoint and the ID.
func (c ClientCredentials) String() string {
	return fmt.Sprintf("client %q at %s", c.ClientID, endpoint(c.TokenURL))
}

// GoString hides the secret from %#v too.
func (c ClientCredentials) GoString() string {
	return "kafkaauth.ClientCredentials{" + c.String() + "}"
}

// LogValue hides the secret from structured logs.
func (c ClientCredentials) LogValue() slog.Value { return slog.StringValue(c.String()) }

// MarshalJSON hides the secret from JSON.
func (c ClientCredentials) MarshalJSON() ([]byte, error) {
	data, err := json.Marshal(c.String())
	if err != nil {
		return nil, fmt.Errorf("client credentials: %w", err)
	}
	return data, nil
}

// Source returns a [Cached] source of tokens. It uses no network before the first call. The error
// lists every mistake of the fields.
//
// An error of the source matches [ErrRefused] if the server answers 401 or 403. An answer 400
// counts too, with a code about the client or its request, such as invalid_client or invalid_scope.
// A server that cannot be reached, another answer, and an answer that cannot be read are outages.
func (c ClientCredentials) Source() (TokenSource, error) {
	var problems []error
	add := func(bad bool, text string) {
		if bad {
			problems = append(problems, errors.New("ClientCredentials."+text))
		}
	}
	u, err := url.Parse(c.TokenURL)
	valid := err == nil && u.Host != "" && (u.Scheme == "https" || u.Scheme == "http")
	add(!valid, "TokenURL is no https URL")
	if valid {
		add(u.Scheme == "http" && !c.AllowInsecure,
			"TokenURL without TLS sends the secret in the clear: use https, or AllowInsecure")
		add(u.User != nil || u.Fragment != "", "TokenURL has a user or a fragment")
	}
	add(c.ClientID == "", "ClientID is empty")
	add(c.ClientSecret == "", "ClientSecret is empty")
	for _, name := range []string{"grant_type", "scope", "client_id", "client_secret"} {
		add(c.Params.Has(name), "Params has "+name)
	}
	if err := errors.Join(problems...); err != nil {
		return nil, err
	}
	client := http.Client{}
	if c.Client != nil {
		client = *c.Client
	}
	// A redirect would send the secret to another server.
	client.CheckRedirect = func(*http.Request, []*http.Request) error {
		return http.ErrUseLastResponse
	}
	c.Scopes = slices.Clone(c.Scopes)
	params := url.Values{}
	for name, values := range c.Params {
		params[name] = slices.Clone(values)
	}
	c.Params = params
	return Cached(func(ctx context.Context) (Token, error) { return c.fetch(ctx, &client) }), nil
}

// maxAnswer bounds the answer of a token endpoint, in bytes.
const maxAnswer = 1 << 20

func (c ClientCredentials) fetch(ctx context.Context, client *http.Client) (Token, error) {
	at := "token endpoint " + endpoint(c.TokenURL)
	req, err := c.request(ctx)
	if err != nil {
		return Token{}, fmt.Errorf("%s: request: %w", at, withoutURL(err))
	}
	asked := time.Now()
	res, err := client.Do(req)
	if err != nil {
		return Token{}, fmt.Errorf("%s: %w", at, withoutURL(err))
	}
	defer res.Body.Close()
	body, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer))
	if err != nil {
		return Token{}, fmt.Errorf("%s: %w", at, err)
	}
	if res.StatusCode != http.StatusOK {
		return Token{}, fmt.Errorf("%s: %w", at, refusal(res.StatusCode, body))
	}
	token, err := parseAnswer(body, asked)
	if err != nil {
		return Token{}, fmt.Errorf("%s: %w", at, err)
	}
	return token, nil
}

func (c ClientCredentials) request(ctx context.Context) (*http.Request, error) {
	form := url.Values{"grant_type": {"client_credentials"}}
	for name, values := range c.Params {
		form[name] = values
	}
	if len(c.Scopes) > 0 {
		form.Set("scope", strings.Join(c.Scopes, " "))
	}
	if c.SecretInBody {
		form.Set("client_id", c.ClientID)
		form.Set("client_secret", c.ClientSecret)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.TokenURL,
		strings.NewReader(form.Encode()))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	req.Header.Set("Accept", "application/json")
	if !c.SecretInBody { // RFC 6749, section 2.3.1: both are encoded as in forms
		req.SetBasicAuth(url.QueryEscape(c.ClientID), url.QueryEscape(c.ClientSecret))
	}
	return req, nil
}

// refusals are the codes of errors that no retry mends (RFC 6749, section 5.2, and RFC 8707).
var refusals = []string{
	"invalid_client", "invalid_grant", "invalid_request", "invalid_scope", "invalid_target",
	"unauthorized_client", "unsupported_grant_type", "access_denied",
}

// refusal returns the error of an answer. The texts of the server are not repeated, except for
// codes that are known.
func refusal(status int, body []byte) error {
	var answer struct {
		Error string `json:"error"`
	}
	known := json.Unmarshal(body, &answer) == nil && slices.Contains(refusals, answer.Error)
	switch {
	case known && status >= 400 && status < 500:
		return fmt.Errorf("%w: status %d, %s", ErrRefused, status, answer.Error)
	case status == http.StatusUnauthorized, status == http.StatusForbidden:
		return fmt.Errorf("%w: status %d", ErrRefused, status)
	}
	return fmt.Errorf("status %d", status)
}

// parseAnswer reads an answer with status 200 (RFC 6749, section 5.1).
func parseAnswer(body []byte, asked time.Time) (Token, error) {
	var answer struct {
		Token   string          `json:"access_token"`
		Type    string          `json:"token_type"`
		Expires json.RawMessage `json:"expires_in"`
	}
	if json.Unmarshal(body, &answer) != nil { // the error would quote the answer
		return Token{}, errors.New("the answer cannot be decoded")
	}
	if !strings.EqualFold(answer.Type, "bearer") {
		return Token{}, errors.New("the token is no bearer token")
	}
	token := Token{Value: answer.Token, Expires: jwtExpiry(answer.Token)}
	if err := token.Check(); err != nil {
		return Token{}, err
	}
	if life, ok := seconds(answer.Expires); ok {
		// The clock of the server does not matter this way.
		token.Expires = asked.Add(life)
	}
	return token, nil
}

// maxLife bounds the life of a token.
const maxLife = 365 * 24 * time.Hour

// seconds reads a number, which some servers send as a string.
func seconds(raw json.RawMessage) (time.Duration, bool) {
	n, err := strconv.ParseFloat(strings.Trim(string(raw), `"`), 64)
	if err != nil || !(n > 0) {
		return 0, false
	}
	return time.Duration(min(n, maxLife.Seconds()) * float64(time.Second)), true
}

// endpoint returns scheme, host and path of a URL: user and query may have secrets.
func endpoint(text string) string {
	u, err := url.Parse(text)
	if err != nil {
		return "(no URL)"
	}
	return (&url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path}).String()
}

// withoutURL returns the cause of an error of net/http, which has the whole URL in its text.
func withoutURL(err error) error {
	var full *url.Error
	if errors.As(err, &full) {
		return full.Err
	}
	return err
}
