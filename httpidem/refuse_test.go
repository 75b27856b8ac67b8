package httpidem_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/dedup/memstore"
	"github.com/idem-go/idem/httpidem"
)

// checked is a middleware with functions that may refuse, with its log.
func checked(t *testing.T, change func(*httpidem.Config)) (*service, http.Handler, *bytes.Buffer) {
	t.Helper()
	var log bytes.Buffer
	s := newService(t)
	cfg := s.config(memstore.New())
	cfg.Public, cfg.Logger = false, slog.New(slog.NewTextHandler(&log, nil))
	cfg.Principal = func(*http.Request) (string, error) { return "alice", nil }
	change(&cfg)
	h := s.handler(httpidem.New(cfg))
	return s, h, &log
}

// hooks are the functions of a program that may refuse a request.
var hooks = map[string]func(*httpidem.Config, error){
	"Principal": func(c *httpidem.Config, err error) {
		c.Principal = func(*http.Request) (string, error) { return "", err }
	},
	"Tenant": func(c *httpidem.Config, err error) {
		c.Tenant = func(*http.Request) (string, error) { return "", err }
	},
	"Authorize": func(c *httpidem.Config, err error) {
		c.Authorize = func(*http.Request) error { return err }
	},
}

// H-11: an error of the program, such as an unavailable user database, is no answer. The client is
// asked to retry, and gets no part of the error.
func TestErrorsOfHooksStayHere_H11(t *testing.T) {
	const dsn, password = "postgres://app:hunter2@db.internal:5432/users", "hunter2"
	for name, fail := range hooks {
		t.Run(name, func(t *testing.T) {
			s, h, log := checked(t, func(c *httpidem.Config) {
				fail(c, errors.New("cannot connect to "+dsn+": connection refused"))
			})
			rec := send(h, "a")
			require.Equal(t, http.StatusServiceUnavailable, rec.Code)
			require.Equal(t, "check_failed", code(rec))
			require.NotEmpty(t, rec.Header().Get("Retry-After"))
			for _, part := range []string{password, "db.internal", "connect", "refused"} {
				require.NotContains(t, rec.Body.String(), part)
			}
			require.Equal(t, httpidem.Unavailable, s.last())
			require.ErrorContains(t, s.seen[0].Err, "cannot connect")
			require.Zero(t, s.ran("a"))
			require.Contains(t, log.String(), "connection refused")
			require.Contains(t, log.String(), "httpidem.Config."+name+" failed")
			require.Contains(t, log.String(), "httpidem.Refuse")
			require.NotContains(t, log.String(), password)
		})
	}
}

// H-11: the client gets a text that the program has made for it, also from a wrapped error.
func TestRefuse_H11(t *testing.T) {
	usual := map[string]struct {
		status int
		code   string
	}{"Principal": {401, "principal_unknown"}, "Tenant": {400, "tenant_unknown"},
		"Authorize": {403, "not_allowed"}}
	for name, fail := range hooks {
		for _, c := range []struct {
			err    error
			status int
		}{
			{httpidem.Refuse(0, "Log in first."), usual[name].status},
			{httpidem.Refuse(http.StatusTeapot, "Log in first."), http.StatusTeapot},
			{httpidem.Refuse(http.StatusOK, "Log in first."), usual[name].status},
			{&httpidem.ClientError{Text: "Log in first."}, usual[name].status},
			{errors.Join(errors.New("row 7 of users"), httpidem.Refuse(0, "Log in first.")),
				usual[name].status},
		} {
			s, h, log := checked(t, func(cfg *httpidem.Config) { fail(cfg, c.err) })
			rec := send(h, "a")
			require.Equal(t, c.status, rec.Code, name)
			require.Equal(t, usual[name].code, code(rec))
			require.Contains(t, rec.Body.String(), "Log in first.")
			require.NotContains(t, rec.Body.String(), "row 7")
			require.Equal(t, httpidem.Refused, s.last())
			require.Empty(t, log.String())
		}
		_, h, _ := checked(t, func(cfg *httpidem.Config) {
			fail(cfg, httpidem.Refuse(http.StatusServiceUnavailable, "Closed until noon."))
		})
		require.NotEmpty(t, send(h, "a").Header().Get("Retry-After"))
		_, h, _ = checked(t, func(cfg *httpidem.Config) { fail(cfg, (*httpidem.ClientError)(nil)) })
		require.Equal(t, http.StatusServiceUnavailable, send(h, "a").Code,
			"a nil pointer has no text for the client")
	}
}

// An unavailable database fails every request, but logs only a few lines.
func TestErrorsOfHooksAreLoggedSparsely(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, h, log := checked(t,
			func(c *httpidem.Config) { hooks["Principal"](c, errors.New("down")) })
		lines := func() int { return strings.Count(log.String(), "\n") }
		for range 100 {
			send(h, "a")
		}
		require.Equal(t, 1, lines())
		time.Sleep(10 * time.Second)
		send(h, "a")
		require.Equal(t, 2, lines())
		require.Contains(t, log.String(), "unlogged=99")
		require.Equal(t, 1, strings.Count(log.String(), "unlogged=0"))
	})
}

// A client that hangs up makes a function fail that uses its context. That is no error, and is not
// logged.
func TestHookOfAClientThatHasGone(t *testing.T) {
	var ask func()
	s, h, log := checked(t, func(c *httpidem.Config) {
		c.Principal = func(r *http.Request) (string, error) { ask(); return "", r.Context().Err() }
	})
	ctx, hangUp := context.WithCancel(t.Context())
	ask = hangUp
	rec := httptest.NewRecorder()
	h.ServeHTTP(rec, post(ctx, "/orders", "a"))
	require.Equal(t, "not_run", code(rec))
	require.Equal(t, httpidem.InFlight, s.last())
	require.Empty(t, log.String())
}

// H-12: a credential as principal would be written to the store, to logs and to traces, and a new
// token of the same user would be another principal.
func TestCredentialAsPrincipal_H12(t *testing.T) {
	const jwt = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJhbGljZSJ9.c2lnbmF0dXJl"
	for _, value := range []string{"Bearer abc", "bearer " + jwt, "BEARER\tx", jwt,
		"Basic YWxpY2U6c2VjcmV0", "DPoP " + jwt, jwt + ".aXY.dGFn"} {
		for _, secret := range [][]byte{nil, []byte("sixteen bytes or more")} {
			s, h, log := checked(t, func(c *httpidem.Config) {
				c.PrincipalSecret = secret
				c.Principal = func(*http.Request) (string, error) { return value, nil }
			})
			rec := send(h, "a")
			require.Equal(t, http.StatusInternalServerError, rec.Code, value)
			require.Equal(t, "principal_invalid", code(rec))
			require.Zero(t, s.ran("a"))
			require.Contains(t, log.String(), "user")
			require.NotContains(t, log.String()+rec.Body.String(), value)
			require.NotContains(t, log.String()+rec.Body.String(), "abc")
		}
	}
	for _, value := range []string{"bearer", "Bearerin", "Basic Fit Ltd", "Basic ",
		"alice@example.com", "eyJ", "eyJ.x", "a.b.c"} {
		_, h, _ := checked(t, func(c *httpidem.Config) {
			c.Principal = func(*http.Request) (string, error) { return value, nil }
		})
		require.Equal(t, http.StatusCreated, send(h, "a").Code, value)
	}
}

// H-12: with PrincipalSecret, keys have a hash in place of the principal. Principals stay distinct.
func TestHashedPrincipals_H12(t *testing.T) {
	secret := []byte("sixteen bytes or more")
	s, h, _ := checked(t, func(c *httpidem.Config) {
		c.PrincipalSecret = secret
		c.Principal = func(r *http.Request) (string, error) { return r.Header.Get("User"), nil }
	})
	var forwarded []string
	s.work = func(_ http.ResponseWriter, r *http.Request) {
		forwarded = append(forwarded, httpidem.ForwardKey(r.Context(), "charge"))
	}
	for i, user := range []string{"alice@example.com", "bob@example.com", "alice@example.com"} {
		r := post(t.Context(), "/orders", "k")
		r.Header.Set("User", user)
		rec := httptest.NewRecorder()
		h.ServeHTTP(rec, r)
		require.Equal(t, http.StatusCreated, rec.Code)
		require.Equal(t, i == 2, replayed(rec))
		require.Equal(t, httpidem.HashPrincipal(secret, user)+":k", s.seen[i].Key.ID)
		require.NotContains(t, s.seen[i].Key.String(), "example.com")
	}
	require.Len(t, forwarded, 2)
	require.NotEqual(t, forwarded[0], forwarded[1])

	require.Equal(t, "4c67ed951a81b4547f9a8bd7852948ad", httpidem.HashPrincipal(secret, "alice"),
		"a hash that changes makes every key new")
	require.NotEqual(t, httpidem.HashPrincipal(secret, "alice"),
		httpidem.HashPrincipal([]byte("sixteen bytes, too"), "alice"))

	cfg := s.config(memstore.New())
	cfg.PrincipalSecret = secret
	_, err := httpidem.New(cfg)
	require.ErrorContains(t, err, "PrincipalSecret", "no principals with Public")
	cfg.Public, cfg.PrincipalSecret = false, []byte("short")
	cfg.Principal = func(*http.Request) (string, error) { return "alice", nil }
	_, err = httpidem.New(cfg)
	require.ErrorContains(t, err, "PrincipalSecret")
}

// A tenant that no store accepts is a mistake of the program, not of the client.
func TestInvalidTenant(t *testing.T) {
	for name, tenant := range map[string]string{"long": strings.Repeat("t", 256), "no text": "\xff",
		"NUL": "a\x00b"} {
		s, h, log := checked(t, func(c *httpidem.Config) {
			c.Tenant = func(*http.Request) (string, error) { return tenant, nil }
		})
		rec := send(h, "a")
		require.Equal(t, http.StatusInternalServerError, rec.Code, name)
		require.Equal(t, "tenant_invalid", code(rec))
		require.NotContains(t, rec.Body.String(), "256", "what only the program can mend")
		require.Zero(t, s.ran("a"))
		require.Contains(t, log.String(), "tenant")
		require.NotContains(t, log.String(), tenant)
	}
	cfg := newService(t).config(memstore.New())
	cfg.Scope = "a\x00b"
	_, err := httpidem.New(cfg)
	require.ErrorContains(t, err, "Scope")
}

// A 401 names how to authenticate (RFC 9110, section 15.5.2). A challenge that is set in front of
// the middleware stays.
func TestChallenge(t *testing.T) {
	refusals := map[string]func(*httpidem.Config){
		"an empty principal": func(c *httpidem.Config) { hooks["Principal"](c, nil) },
		"by Principal":       func(c *httpidem.Config) { hooks["Principal"](c, httpidem.Refuse(0, "Log in.")) },
		"by Authorize": func(c *httpidem.Config) {
			hooks["Authorize"](c, httpidem.Refuse(http.StatusUnauthorized, "Log in again."))
		},
	}
	for name, refuse := range refusals {
		t.Run(name, func(t *testing.T) {
			_, h, _ := checked(t, refuse)
			rec := send(h, "a")
			require.Equal(t, http.StatusUnauthorized, rec.Code)
			require.Equal(t, []string{`Bearer realm="api"`}, rec.Header().Values("WWW-Authenticate"))

			_, own, _ := checked(t, func(c *httpidem.Config) { refuse(c); c.Challenge = `DPoP algs="ES256"` })
			require.Equal(t, []string{`DPoP algs="ES256"`}, send(own, "a").Header().Values("WWW-Authenticate"))

			front := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("WWW-Authenticate", "Negotiate")
				own.ServeHTTP(w, r)
			})
			require.Equal(t, []string{"Negotiate"}, send(front, "a").Header().Values("WWW-Authenticate"))
		})
	}
	_, h, _ := checked(t, func(c *httpidem.Config) { hooks["Authorize"](c, httpidem.Refuse(0, "No.")) })
	rec := send(h, "a")
	require.Equal(t, http.StatusForbidden, rec.Code)
	require.Empty(t, rec.Header().Values("WWW-Authenticate"))
}

func TestChallenge_Config(t *testing.T) {
	for _, challenge := range []string{" ", "Bearer\r\nSet-Cookie: a=b", "Bearer realm=\"\u00e4\""} {
		cfg := newService(t).config(memstore.New())
		cfg.Challenge = challenge
		_, err := httpidem.New(cfg)
		require.ErrorContains(t, err, "Challenge is no header value", "%q", challenge)
	}
}
