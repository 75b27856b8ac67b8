package main

import (
	"encoding/json"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/internal/testenv"
)

// The command logs in with tokens from a file and from an authorization server, and with a
// certificate (G-07). No output shows a secret (G-04).
func TestKafkaCredentials_G07(t *testing.T) {
	const secret = "canary-4711"
	kafka := testenv.Secure(t)
	s, known := memory()
	finish(t, s, claim(t, s, inScope("order", "1"), dedupOrigin(1)), "")
	try := func(brokers []string, more ...string) ran {
		r := commandWith(t, known, "", append([]string{
			"event", "get", "1", "--type", "order", "-G", "billing", "--store", inMemory, "--dead-letters",
			"--brokers", strings.Join(brokers, ","), "--tls-ca", kafka.CA,
		}, more...)...)
		require.NotContains(t, r.stdout+r.stderr, secret)
		require.NotContains(t, r.stdout+r.stderr, ".eyJ", "half a token")
		return r
	}
	in := func(r ran) {
		t.Helper()
		require.Contains(t, r.ok(t)+r.stderr, "no dead-letter topic of the group that this user may describe")
	}
	dir := t.TempDir()
	file := func(name string, data []byte) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, data, 0o600))
		return path
	}

	good := file("token", []byte(kafka.Token(t, "reader", time.Now().Add(time.Hour))))
	old := file("old", []byte(kafka.Token(t, "reader", time.Now().Add(-time.Hour))))
	oauth := []string{"--sasl-mechanism", "OAUTHBEARER"}
	in(try(kafka.Login, append(oauth, "--sasl-token-file", good)...))
	try(kafka.Login, append(oauth, "--sasl-token-file", old)...).failed(t, exitFailure, "has expired at")
	t.Setenv("IDEM_SASL_TOKEN_FILE", good)
	in(try(kafka.Login, oauth...))
	t.Setenv("IDEM_SASL_TOKEN_FILE", "")

	var asked atomic.Int32
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		_, password, _ := r.BasicAuth()
		if password != secret || r.FormValue("scope") != "kafka read" || r.FormValue("audience") != "orders" {
			w.WriteHeader(http.StatusUnauthorized)
			_, _ = w.Write([]byte(`{"error":"invalid_client","error_description":"` + password + `"}`))
			return
		}
		_ = json.NewEncoder(w).Encode(map[string]any{
			"access_token": kafka.Token(t, "reader", time.Now().Add(time.Hour)), "token_type": "Bearer", "expires_in": 3600,
		})
	}))
	defer server.Close()
	ca := file("ca.pem", pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}))
	flags := slices.Concat(oauth, []string{
		"--sasl-token-url", server.URL, "--sasl-client-id", "orders", "--sasl-token-ca", ca,
		"--sasl-scope", "kafka,read", "--sasl-token-param", "audience=orders",
	})
	t.Setenv("IDEM_SASL_CLIENT_SECRET", secret)
	in(try(kafka.Login, flags...))
	require.EqualValues(t, 1, asked.Load(), "one token serves all connections")
	t.Setenv("IDEM_SASL_CLIENT_SECRET", secret+"-wrong")
	try(kafka.Login, flags...).failed(t, exitFailure, "invalid_client", server.URL)

	cert, key := kafka.Certificate(t, "reader")
	in(try(kafka.Mutual, "--tls-cert", file("cert.pem", cert), "--tls-key", file("key.pem", key)))
	try(kafka.Mutual).failed(t, exitFailure, "kafka localhost:")
}

func TestOAuthFlags(t *testing.T) {
	for _, c := range []struct {
		args, secret, want string
	}{
		{"", "", "give --sasl-token-file, or --sasl-token-url"},
		{"--sasl-token-file f --sasl-token-url https://h/", "", "not both"},
		{"--sasl-token-url https://h/", "", "give --sasl-client-id"},
		{"--sasl-token-url https://h/ --sasl-client-id c", "", "IDEM_SASL_CLIENT_SECRET"},
		{"--sasl-token-url http://h/ --sasl-client-id c", "canary-4711", "TokenURL without TLS"},
		{"--sasl-token-url https://u:canary-4711@h/ --sasl-client-id c", "canary-4711", "TokenURL has a user"},
		{"--sasl-token-url https://h/ --sasl-client-id c --sasl-token-param audience", "canary-4711", "name=value"},
		{"--sasl-token-url https://h/ --sasl-client-id c --sasl-token-param client_secret=x", "canary-4711", "Params has client_secret"},
		{"--sasl-token-url https://h/ --sasl-client-id c --sasl-token-ca /nowhere", "canary-4711", "--sasl-token-ca"},
		{"--sasl-token-url https://h/ --sasl-client-id c", "canary-4711", "SASL/OAUTHBEARER without TLS"},
		{"--sasl-token-file /nowhere", "", "SASL/OAUTHBEARER without TLS"},
	} {
		t.Setenv("IDEM_SASL_CLIENT_SECRET", c.secret)
		r := command(t, append([]string{"lag", "-G", "g", "--brokers", "127.0.0.1:1", "--sasl-mechanism", "OAUTHBEARER"}, strings.Fields(c.args)...)...)
		r.failed(t, exitUsage, c.want)
		require.NotContains(t, r.stdout+r.stderr, "canary", c.args)
	}
	t.Setenv("IDEM_SASL_CLIENT_ID", "canary-client")
	require.NotContains(t, command(t, "lag", "--help").ok(t), "canary", "the environment is not shown")
}
