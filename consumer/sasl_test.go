package consumer

import (
	"context"
	"crypto/tls"
	"encoding/pem"
	"errors"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/kafkaauth"
	"github.com/idem-go/idem/runner"
)

func acceptAll(tls.ConnectionState) error { return nil }

// reloadingCA verifies servers by itself, with a CA from a file that may change.
func reloadingCA(t *testing.T) *tls.Config {
	t.Helper()
	server := httptest.NewTLSServer(nil)
	server.Close()
	ca := filepath.Join(t.TempDir(), "ca.pem")
	require.NoError(t, os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}), 0o600))
	cfg, err := kafkaauth.TLSFiles{CA: ca, ReloadCA: true}.Config()
	require.NoError(t, err)
	return cfg
}

func fixedToken(context.Context) (kafkaauth.Token, error) {
	return kafkaauth.Token{Value: "abc", Extensions: map[string]string{"pool": "p1"}}, nil
}

// providerOf returns the provider that sarama asks for a token.
func providerOf(t *testing.T, source kafkaauth.TokenSource) sarama.AccessTokenProvider {
	t.Helper()
	cfg := good()
	cfg.SASL, cfg.AllowInsecure = &SASL{Mechanism: "OAUTHBEARER", Token: source}, true
	sc, err := DefaultSaramaConfig(cfg)
	require.NoError(t, err)
	return sc.Net.SASL.TokenProvider
}

func TestSASL_Token(t *testing.T) {
	token, err := providerOf(t, fixedToken).Token()
	require.NoError(t, err)
	require.Equal(t, &sarama.AccessToken{Token: "abc", Extensions: map[string]string{"pool": "p1"}}, token)

	refused := errors.Join(kafkaauth.ErrRefused, errTest)
	for name, c := range map[string]struct {
		token kafkaauth.Token
		err   error
		fatal bool
	}{
		"refused":   {err: refused, fatal: true},
		"outage":    {err: errTest},
		"timeout":   {err: context.DeadlineExceeded},
		"injection": {token: kafkaauth.Token{Value: "canary\x01auth=x"}},
		"empty":     {},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := providerOf(t, func(context.Context) (kafkaauth.Token, error) { return c.token, c.err }).Token()
			require.Error(t, err)
			require.NotContains(t, err.Error(), "canary")
			if c.err != nil {
				require.ErrorIs(t, err, c.err)
			}
			require.Equal(t, c.fatal, errors.Is(err, ErrUnauthorized))
			end := retrierFor(false).Fatal(sarama.Wrap(sarama.ErrOutOfBrokers, err))
			require.Equal(t, c.fatal, end != nil, "an outage is waited for")
		})
	}
}

// TestRefusedLater: a refusal ends a start. After a session has begun, it may pass.
func TestRefusedLater(t *testing.T) {
	_, endpoint := providerOf(t, func(context.Context) (kafkaauth.Token, error) { return kafkaauth.Token{}, kafkaauth.ErrRefused }).Token()
	for name, c := range map[string]struct {
		err              error
		password, tokens bool // waited for
	}{
		"authorization server": {endpoint, true, true},
		"log-in":               {sarama.ErrSASLAuthenticationFailed, false, true},
		"mechanism":            {sarama.ErrUnsupportedSASLMechanism, false, true},
		"too early":            {sarama.ErrIllegalSASLState, true, true},
		"right":                {sarama.ErrTopicAuthorizationFailed, true, true},
		"instance":             {sarama.ErrFencedInstancedId, false, false},
	} {
		for _, tokens := range []bool{false, true} {
			waits := c.password
			if tokens {
				waits = c.tokens
			}
			r := retrierFor(tokens)
			require.Error(t, r.Fatal(c.err), name)
			r.Serving()
			require.Equal(t, waits, r.Fatal(c.err) == nil, "%s, tokens=%t", name, tokens)
		}
	}
}

func retrierFor(tokens bool) *runner.Retrier {
	login := &SASL{Mechanism: "PLAIN"}
	if tokens {
		login = &SASL{Mechanism: "OAUTHBEARER", Token: fixedToken}
	}
	cfg := Config{Group: "g"}.withDefaults()
	return runner.NewRetrier(cfg.neutral(), "sarama", classesWith(login), func(err error) error { return err })
}

// Sarama has no context for a token, so the call is bounded here.
func TestSASL_TokenIsBounded(t *testing.T) {
	began := time.Now()
	_, _ = providerOf(t, func(ctx context.Context) (kafkaauth.Token, error) {
		end, ok := ctx.Deadline()
		require.True(t, ok)
		require.WithinRange(t, end, began, began.Add(20*time.Second))
		return kafkaauth.Token{Value: "a"}, nil
	}).Token()
}

func TestSASL_StringOfOAuth(t *testing.T) {
	require.Equal(t, "OAUTHBEARER", SASL{Mechanism: "OAUTHBEARER", Token: fixedToken}.String())
	require.Equal(t, `OAUTHBEARER as "orders"`, SASL{Mechanism: "OAUTHBEARER", User: "orders", Token: fixedToken}.String())
}
