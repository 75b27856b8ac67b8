package kafkaauth

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const canary = "canary-4711"

// jwt is a token with these claims and no valid signature.
func jwt(claims string) string {
	encode := base64.RawURLEncoding.EncodeToString
	return encode([]byte(`{"alg":"ES256"}`)) + "." + encode([]byte(claims)) + ".c2ln"
}

// endpointOf serves answers on TLS.
func endpointOf(t *testing.T, answer http.HandlerFunc) ClientCredentials {
	t.Helper()
	server := httptest.NewTLSServer(answer)
	t.Cleanup(server.Close)
	return ClientCredentials{TokenURL: server.URL + "/token?key=" + canary, ClientID: "orders", ClientSecret: canary, Client: server.Client()}
}

func (c ClientCredentials) get(t *testing.T) (Token, error) {
	t.Helper()
	source, err := c.Source()
	require.NoError(t, err)
	return source(t.Context())
}

// The request is that of RFC 6749, section 4.4.2, with the client of section 2.3.1.
func TestClientCredentials_Request(t *testing.T) {
	var form url.Values
	var user, password string
	var basic bool
	c := endpointOf(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost || r.ParseForm() != nil {
			w.WriteHeader(http.StatusTeapot)
			return
		}
		form = r.PostForm
		user, password, basic = r.BasicAuth()
		_, _ = io.WriteString(w, `{"access_token":"abc","token_type":"bearer","expires_in":300}`)
	})
	c.ClientID, c.ClientSecret = "a:b", "p%+ ä"
	c.Scopes, c.Params = []string{"kafka", "read"}, url.Values{"audience": {"cluster"}}
	began := time.Now()
	token, err := c.get(t)
	require.NoError(t, err)
	require.Equal(t, "abc", token.Value)
	require.WithinRange(t, token.Expires, began.Add(300*time.Second), time.Now().Add(300*time.Second))
	require.Equal(t, url.Values{"grant_type": {"client_credentials"}, "scope": {"kafka read"}, "audience": {"cluster"}}, form)
	require.True(t, basic)
	require.Equal(t, []string{"a%3Ab", "p%25%2B+%C3%A4"}, []string{user, password})

	c.SecretInBody = true
	_, err = c.get(t)
	require.NoError(t, err)
	require.False(t, basic)
	require.Equal(t, "a:b", form.Get("client_id"))
	require.Equal(t, "p%+ ä", form.Get("client_secret"))
}

func TestClientCredentials_Answers(t *testing.T) {
	end := time.Now().Add(time.Hour).Truncate(time.Second)
	var none time.Time
	token := jwt(fmt.Sprintf(`{"exp":%d}`, end.Unix()))
	for name, c := range map[string]struct {
		status  int
		body    string
		refused bool
		says    string // in the error; empty: a token
		life    time.Duration
		expires time.Time // zero: life after the request
	}{
		"token":                {200, `{"access_token":"a","token_type":"Bearer","expires_in":60}`, false, "", time.Minute, none},
		"life as a string":     {200, `{"access_token":"a","token_type":"Bearer","expires_in":"60"}`, false, "", time.Minute, none},
		"life in the token":    {200, `{"access_token":"` + token + `","token_type":"Bearer"}`, false, "", 0, end},
		"no life":              {200, `{"access_token":"a","token_type":"Bearer"}`, false, "", 0, none},
		"huge life":            {200, `{"access_token":"a","token_type":"Bearer","expires_in":1e99}`, false, "", maxLife, none},
		"no token":             {200, `{"token_type":"Bearer","secret":"` + canary + `"}`, false, "is empty", 0, none},
		"another kind":         {200, `{"access_token":"` + canary + `","token_type":"mac"}`, false, "no bearer token", 0, none},
		"no JSON":              {200, `<html>` + canary, false, "cannot be decoded", 0, none},
		"injection":            {200, `{"access_token":"` + canary + `\u0001","token_type":"Bearer"}`, false, "0x01", 0, none},
		"unknown client":       {401, `{"error":"invalid_client","error_description":"` + canary + `"}`, true, "status 401, invalid_client", 0, none},
		"unknown client, 400":  {400, `{"error":"invalid_client","error_description":"` + canary + `"}`, true, "status 400, invalid_client", 0, none},
		"unknown scope":        {400, `{"error":"invalid_scope"}`, true, "status 400, invalid_scope", 0, none},
		"401 alone":            {401, canary, true, "status 401", 0, none},
		"403 alone":            {403, canary, true, "status 403", 0, none},
		"400 alone":            {400, canary, false, "status 400", 0, none},
		"busy":                 {400, `{"error":"temporarily_unavailable"}`, false, "status 400", 0, none},
		"unknown code":         {400, `{"error":"` + canary + `"}`, false, "status 400", 0, none},
		"too many":             {429, `{}`, false, "status 429", 0, none},
		"down":                 {503, canary, false, "status 503", 0, none},
		"down, with an answer": {500, `{"error":"invalid_client"}`, false, "status 500", 0, none},
		"redirect":             {307, canary, false, "status 307", 0, none},
	} {
		t.Run(name, func(t *testing.T) {
			requests := 0
			client := endpointOf(t, func(w http.ResponseWriter, _ *http.Request) {
				requests++
				w.Header().Set("Location", "/elsewhere")
				w.WriteHeader(c.status)
				_, _ = io.WriteString(w, c.body)
			})
			began := time.Now()
			got, err := client.get(t)
			require.Equal(t, 1, requests)
			if c.says == "" {
				require.NoError(t, err)
				switch {
				case c.expires != none:
					require.True(t, c.expires.Equal(got.Expires), got.Expires)
				case c.life == 0:
					require.Zero(t, got.Expires)
				default:
					require.WithinRange(t, got.Expires, began.Add(c.life), time.Now().Add(c.life))
				}
				return
			}
			require.ErrorContains(t, err, c.says)
			require.ErrorContains(t, err, strings.TrimSuffix(client.TokenURL, "?key="+canary), "the endpoint is named")
			require.NotContains(t, err.Error(), canary) // G-04
			require.Equal(t, c.refused, isRefused(err))
		})
	}
}

func isRefused(err error) bool { return errors.Is(err, ErrRefused) }

func TestClientCredentials_Away(t *testing.T) {
	c := endpointOf(t, func(http.ResponseWriter, *http.Request) {})
	c.Client = &http.Client{} // does not know the CA
	_, err := c.get(t)
	require.ErrorContains(t, err, "certificate")
	require.NotErrorIs(t, err, ErrRefused)
	require.NotContains(t, err.Error(), canary)

	c.TokenURL = "https://127.0.0.1:1/token?key=" + canary
	_, err = c.get(t)
	require.ErrorContains(t, err, "https://127.0.0.1:1/token: dial")
	require.NotContains(t, err.Error(), canary)

	hang := make(chan struct{})
	defer close(hang)
	c = endpointOf(t, func(http.ResponseWriter, *http.Request) { <-hang })
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	source, err := c.Source()
	require.NoError(t, err)
	_, err = source(ctx)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	hang <- struct{}{}
}

func TestClientCredentials_Mistakes(t *testing.T) {
	good := ClientCredentials{TokenURL: "https://login.example/token", ClientID: "orders", ClientSecret: canary}
	_, err := good.Source()
	require.NoError(t, err)
	for want, spoil := range map[string]func(*ClientCredentials){
		"TokenURL is no https URL":       func(c *ClientCredentials) { c.TokenURL = "" },
		"TokenURL is no https":           func(c *ClientCredentials) { c.TokenURL = "ftp://" + canary },
		"TokenURL is":                    func(c *ClientCredentials) { c.TokenURL = "https://" + canary + "\x00" },
		"TokenURL without TLS":           func(c *ClientCredentials) { c.TokenURL = "http://login.example/" + canary },
		"TokenURL has a user":            func(c *ClientCredentials) { c.TokenURL = "https://u:" + canary + "@login.example/" },
		"ClientID is empty":              func(c *ClientCredentials) { c.ClientID = "" },
		"ClientSecret is empty":          func(c *ClientCredentials) { c.ClientSecret = "" },
		"Params has client_secret":       func(c *ClientCredentials) { c.Params = url.Values{"client_secret": {canary}} },
		"ClientCredentials.Params has g": func(c *ClientCredentials) { c.Params = url.Values{"grant_type": {canary}} },
	} {
		c := good
		spoil(&c)
		_, err := c.Source()
		require.ErrorContains(t, err, want)
		require.NotContains(t, err.Error(), canary)
	}
	good.TokenURL, good.AllowInsecure = "http://login.example/token", true
	_, err = good.Source()
	require.NoError(t, err)
	_, err = ClientCredentials{}.Source()
	for _, want := range []string{"TokenURL", "ClientID", "ClientSecret"} {
		require.ErrorContains(t, err, want, "all mistakes at once")
	}
}

// G-04: no way to print a value shows a secret.
func TestSecretsAreHidden_G04(t *testing.T) {
	c := ClientCredentials{TokenURL: "https://u:" + canary + "@login.example/token?k=" + canary, ClientID: "orders", ClientSecret: canary}
	token := Token{Value: canary, Expires: time.Unix(1, 0)}
	var log strings.Builder
	logger := slog.New(slog.NewJSONHandler(&log, nil))
	for _, v := range []any{c, &c, token, &token, struct{ T *Token }{&token}, struct{ C ClientCredentials }{c}} {
		logger.Info("x", "v", v)
		data, err := json.Marshal(v)
		require.NoError(t, err)
		for _, text := range []string{string(data), fmt.Sprintf("%v %+v %#v %s %q", v, v, v, v, v)} {
			require.NotContains(t, text, canary)
		}
	}
	require.NotContains(t, log.String(), canary)
	require.Contains(t, log.String(), "orders")
	require.Contains(t, log.String(), "access token until 1970")
}
