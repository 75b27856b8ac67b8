package auth

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/consumer"
	"github.com/idem-go/idem/kafkaauth"
)

const canary = "canary-4711"

// TestCredentials_G07 consumes and produces, dead letters included, with each kind of credentials
// over TLS.
func TestCredentials_G07(t *testing.T) {
	onEach(t, func(t *testing.T, c client) {
		for name, open := range map[string]func(w *world, user string) access{
			"SCRAM-SHA-256": func(w *world, user string) access {
				w.scram(user, canary, sarama.SCRAM_MECHANISM_SHA_256)
				return w.login(scram256, user, canary)
			},
			"SCRAM-SHA-512": func(w *world, user string) access {
				w.scram(user, canary, sarama.SCRAM_MECHANISM_SHA_512)
				return w.login(scram512, user, canary)
			},
			"OAUTHBEARER, function": func(w *world, user string) access {
				return w.oauth(w.signed(user, time.Hour))
			},
			"OAUTHBEARER, file": func(w *world, user string) access {
				file := filepath.Join(w.t.TempDir(), "token")
				token := w.Token(w.t, user, time.Now().Add(time.Hour))
				require.NoError(w.t, os.WriteFile(file, []byte(token+"\n"), 0o600))
				return w.oauth(kafkaauth.TokenFile(file))
			},
			"OAUTHBEARER, client credentials": func(w *world, user string) access {
				return w.oauth(newEndpoint(w, user, time.Hour).source())
			},
			"certificate": func(w *world, user string) access { return w.mutual(w.certificate(user)) },
			"PLAIN":       nil,
		} {
			t.Run(name, func(t *testing.T) {
				w := newWorld(t)
				user := w.user()
				if open == nil {
					user = w.User
					open = func(w *world, user string) access { return w.login(plain, user, w.Password) }
				}
				w.grant(user)
				a := open(w, user)
				w.publish(w.open(a), "p-1", "bad-1", "p-2")
				k := w.work(c, a)
				k.until("p-1", "p-2")
				k.soon(func() bool { return strings.Contains(k.String(), "event dead-lettered") })
				k.end()
				require.NotContains(t, k.String(), canary)
				require.NotContains(t, k.String(), w.Password)
			})
		}
	})
}

// TestRefused_G07: refused credentials end a start within seconds, and no error shows a secret.
func TestRefused_G07(t *testing.T) {
	onEach(t, func(t *testing.T, c client) {
		w := newWorld(t)
		user := w.user()
		w.grant(user)
		w.scram(user, canary, sarama.SCRAM_MECHANISM_SHA_256)
		token := func(end time.Duration, change ...func(map[string]any)) access {
			value := w.Token(t, user, time.Now().Add(end), change...)
			return w.oauth(func(context.Context) (kafkaauth.Token, error) {
				return kafkaauth.Token{Value: value}, nil
			})
		}
		forged := w.oauth(func(context.Context) (kafkaauth.Token, error) {
			good := w.Token(t, user, time.Now().Add(time.Hour))
			return kafkaauth.Token{Value: good[:len(good)-20] + strings.Repeat("A", 20)}, nil
		})
		unknown := newEndpoint(w, user, time.Hour)
		unknown.status.Store(http.StatusUnauthorized)
		for name, a := range map[string]access{
			"PLAIN":          w.login(plain, w.User, canary+"-wrong"),
			"SCRAM":          w.login(scram256, user, canary+"-wrong"),
			"SCRAM, no user": w.login(scram512, user, canary),
			"forged token":   forged,
			"expired token":  token(-time.Minute),
			"wrong audience": token(time.Hour, func(claims map[string]any) { claims["aud"] = "elsewhere" }),
			"endpoint":       w.oauth(unknown.source()),
			"function": w.oauth(func(context.Context) (kafkaauth.Token, error) {
				return kafkaauth.Token{}, kafkaauth.ErrRefused
			}),
			"no right at all": w.oauth(w.signed(w.user(), time.Hour)),
		} {
			t.Run(name, func(t *testing.T) {
				k := w.work(c, a)
				k.t = t
				err := k.refused()
				for _, text := range []string{err.Error(), k.String()} {
					require.NotContains(t, text, canary)
					require.NotContains(t, text, ".eyJ", "half a token")
				}
				if name == "endpoint" {
					require.NotContains(t, err.Error(), "kafka-acls", "no right is missing")
					require.ErrorContains(t, err, "status 401")
				}
			})
		}
	})
}

// TestOpenProducer_Refused_G07: a producer tells refused credentials from servers that are away,
// and sends no credentials to a server that is not trusted.
func TestOpenProducer_Refused_G07(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	unknown := newEndpoint(w, w.user(), time.Hour)
	unknown.status.Store(http.StatusUnauthorized)
	_, err := consumer.OpenProducer(w.oauth(unknown.source()).sarama())
	require.ErrorIs(t, err, consumer.ErrUnauthorized)
	require.ErrorContains(t, err, "status 401")
	require.NotContains(t, err.Error(), canary)
	require.NotContains(t, err.Error(), "kafka-acls", "no right is missing")

	for name, cfg := range map[string]consumer.Config{
		"no certificate": w.mutual(kafkaauth.TLSFiles{CA: w.CA}).sarama(),
		"untrusted server": func() consumer.Config {
			a := w.oauth(func(context.Context) (kafkaauth.Token, error) {
				t.Error("the token was sent")
				return kafkaauth.Token{}, nil
			})
			a.tls = &tls.Config{MinVersion: tls.VersionTLS12}
			return a.sarama()
		}(),
	} {
		cfg.Sarama = func(sc *sarama.Config) { sc.Metadata.Retry.Max = 1 }
		_, err := consumer.OpenProducer(cfg)
		require.Error(t, err, name)
		require.NotErrorIs(t, err, consumer.ErrUnauthorized)
	}
}

// TestTokenOutage: a runner waits for its authorization server, at the start and later, as for
// brokers.
func TestTokenOutage(t *testing.T) {
	onEach(t, func(t *testing.T, c client) {
		w := newWorld(t)
		user := w.user()
		w.grant(user)
		w.publish(w.open(w.oauth(w.signed(user, time.Hour))), "p-1")
		e := newEndpoint(w, user, time.Hour)
		e.status.Store(http.StatusServiceUnavailable)
		k := w.work(c, w.oauth(e.source()))
		k.soon(func() bool { return strings.Contains(k.String(), "cannot consume, will go on trying") })
		require.Contains(t, k.String(), "status 503")
		e.status.Store(http.StatusOK)
		k.until("p-1")
		require.Contains(t, k.String(), "consuming again")
		k.end()
		require.NotContains(t, k.String(), canary)
	})
}

// TestTokensEndDuringARun: no event waits for a token that has ended. Connections authenticate
// again with new tokens (KIP-368), or the runner opens new ones.
func TestTokensEndDuringARun(t *testing.T) {
	// A broker refuses to authenticate again within a second, and the last fifth is more than that.
	const life = 12 * time.Second
	onEach(t, func(t *testing.T, c client) {
		w := newWorld(t)
		user := w.user()
		w.grant(user)
		e := newEndpoint(w, user, life)
		cached := e.source()
		var asked atomic.Int32
		k := w.work(c, w.oauth(func(ctx context.Context) (kafkaauth.Token, error) {
			asked.Add(1)
			return cached(ctx)
		}))
		p := w.open(w.oauth(w.signed(user, time.Hour)))
		w.publish(p, "first")
		k.until("first")
		dials, tokens, logins := k.wires.count(), e.tokens.Load(), asked.Load()
		for began := time.Now(); e.tokens.Load() < tokens+2 || asked.Load() < logins+2; {
			require.Less(t, time.Since(began), 4*life, "new tokens are used: %s", &k.lines)
			id := time.Since(began).String()
			w.publish(p, id)
			k.until(id)
		}
		if c.reauthenticates {
			require.Equal(t, dials, k.wires.count(), "no new connection: %s", &k.lines)
			require.Equal(t, 1, strings.Count(k.String(), "level=WARN"), "that of the retry topics: %s", &k.lines)
		}
		k.end()
	})
}

// TestCertificateChangesDuringARun: new connections use the new certificate, here of another user.
func TestCertificateChangesDuringARun(t *testing.T) {
	onEach(t, func(t *testing.T, c client) {
		w := newWorld(t)
		first, second := w.user(), w.user()
		w.grant(first)
		files := w.certificate(first)
		k := w.work(c, w.mutual(files))
		p := w.open(w.oauth(w.signed(first, time.Hour)))
		w.publish(p, "p-1")
		k.until("p-1")

		w.grant(second)
		w.rewrite(files, second)
		w.publish(p, "p-2")
		k.until("p-2") // on the old connections
		q := w.open(w.oauth(w.signed(second, time.Hour)))
		w.withdraw(first)
		k.wires.cut()
		w.publish(q, "p-3")
		k.until("p-3")
		k.end()
	})
}

// endpoint is an authorization server.
type endpoint struct {
	server *httptest.Server
	status atomic.Int32
	tokens atomic.Int32
}

func newEndpoint(w *world, user string, life time.Duration) *endpoint {
	w.t.Helper()
	e := new(endpoint)
	e.status.Store(http.StatusOK)
	e.server = httptest.NewTLSServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if id, secret, ok := r.BasicAuth(); !ok || id != "orders" || secret != canary || r.FormValue("grant_type") != "client_credentials" {
			rw.WriteHeader(http.StatusTeapot)
			return
		}
		rw.WriteHeader(int(e.status.Load()))
		answer := map[string]any{"error_description": canary}
		if e.status.Load() == http.StatusOK {
			e.tokens.Add(1)
			answer = map[string]any{"access_token": w.Token(w.t, user, time.Now().Add(life)), "token_type": "Bearer", "expires_in": int(life.Seconds())}
		}
		if err := json.NewEncoder(rw).Encode(answer); err != nil && !errors.Is(err, http.ErrHandlerTimeout) {
			w.t.Error(err)
		}
	}))
	w.t.Cleanup(e.server.Close)
	return e
}

func (e *endpoint) credentials() kafkaauth.ClientCredentials {
	return kafkaauth.ClientCredentials{TokenURL: e.server.URL, ClientID: "orders", ClientSecret: canary, Client: e.server.Client()}
}

func (e *endpoint) source() kafkaauth.TokenSource {
	source, err := e.credentials().Source()
	if err != nil {
		panic(err)
	}
	return source
}
