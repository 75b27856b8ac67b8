package ops

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"
)

// Without Auth, and without a restriction to this machine, there is no page (G-10).
func TestNewHandler_RefusesWithoutAuth(t *testing.T) {
	_, err := NewHandler(Config{})
	require.ErrorIs(t, err, ErrNoAuth)
	_, err = NewHandler(Config{AllowReplay: true})
	require.ErrorIs(t, err, ErrNoAuth)
	_, err = NewHandler(Config{Loopback: true, Timeout: -1})
	require.ErrorContains(t, err, "Timeout")
	_, err = NewHandler(Config{Loopback: true, TrustedOrigins: []string{"no origin"}})
	require.ErrorContains(t, err, "TrustedOrigins")
	for _, cfg := range []Config{{Loopback: true}, {Auth: func(*http.Request) (string, error) { return "ada", nil }}} {
		h, err := NewHandler(cfg)
		require.NoError(t, err)
		require.NoError(t, h.Close(t.Context()))
	}
}

// local is a request as a browser on this machine sends it.
func local() *http.Request {
	r := httptest.NewRequest(http.MethodGet, "http://localhost:8080/admin/idem/", nil)
	r.RemoteAddr = "127.0.0.1:50000"
	return r.WithContext(context.WithValue(r.Context(), http.LocalAddrContextKey, net.Addr(&net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 8080})))
}

func at(r *http.Request, addr net.Addr) *http.Request {
	return r.WithContext(context.WithValue(r.Context(), http.LocalAddrContextKey, addr))
}

func TestLoopback_G10(t *testing.T) {
	for _, host := range []string{"localhost", "localhost:8080", "LOCALHOST:1", "127.0.0.1:8080", "127.9.9.9", "[::1]:8080", "[::1]", "[::ffff:127.0.0.1]:1"} {
		r := local()
		r.Host = host
		require.NoError(t, fromLoopback(r), host)
	}
	six := at(local(), &net.TCPAddr{IP: net.IPv6loopback, Port: 80})
	six.RemoteAddr = "[::1]:50000"
	require.NoError(t, fromLoopback(six))

	for name, change := range map[string]func(*http.Request) *http.Request{
		"from elsewhere":         func(r *http.Request) *http.Request { r.RemoteAddr = "192.0.2.7:50000"; return r },
		"from nowhere":           func(r *http.Request) *http.Request { r.RemoteAddr = ""; return r },
		"a unix socket":          func(r *http.Request) *http.Request { r.RemoteAddr = "@"; return r },
		"to another address":     func(r *http.Request) *http.Request { return at(r, &net.TCPAddr{IP: net.IPv4(10, 0, 0, 1), Port: 80}) },
		"to an unknown address":  func(r *http.Request) *http.Request { return r.WithContext(context.Background()) },
		"DNS rebinding":          func(r *http.Request) *http.Request { r.Host = "evil.example:8080"; return r },
		"a name that looks like": func(r *http.Request) *http.Request { r.Host = "localhost.evil.example"; return r },
		"an address of others":   func(r *http.Request) *http.Request { r.Host = "192.0.2.7"; return r },
		"all addresses":          func(r *http.Request) *http.Request { r.Host = "0.0.0.0:8080"; return r },
		"no host":                func(r *http.Request) *http.Request { r.Host = ""; return r },
		"HTTP/1.0":               func(r *http.Request) *http.Request { r.Proto, r.ProtoMajor, r.ProtoMinor = "HTTP/1.0", 1, 0; return r },
	} {
		require.Error(t, fromLoopback(change(local())), name)
	}
	for _, header := range []string{
		"Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "x-forwarded-proto", "X-Forwarded", "X-Forwarded-Anything", "Via", "X-Real-IP",
		"CF-Connecting-IP", "True-Client-IP", "X-Client-IP",
	} {
		r := local()
		r.Header.Set(header, "")
		require.Error(t, fromLoopback(r), header)
	}
}

// Every address of the page calls Auth before all else, also the style sheet.
func TestAuth_BeforeEverything_G10(t *testing.T) {
	s, _ := fullSite(t, func(c *Config) {
		c.Loopback = false
		c.Auth = func(r *http.Request) (string, error) {
			switch r.Header.Get("X-User") {
			case "":
				return "", errors.New("secret reason")
			case "nameless":
				return "", nil
			}
			return r.Header.Get("X-User"), nil
		}
	})
	names := append([]string{"nothing-here"}, allPages...)
	for name := range assets() {
		names = append(names, name)
	}
	for _, name := range names {
		for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodHead, http.MethodDelete} {
			a := s.do(method, name, nil)
			require.Equal(t, http.StatusForbidden, a.status, "%s %s", method, name)
			require.NotContains(t, a.body, "secret reason")
			require.NotContains(t, a.body, "billing")
			require.Equal(t, policy, a.header.Get("Content-Security-Policy"))
		}
	}
	s.header.Set("X-User", "nameless")
	require.Equal(t, http.StatusForbidden, s.get("").status)
	s.header.Set("X-User", "ada")
	a := s.get("")
	require.Equal(t, http.StatusOK, a.status)
	require.Contains(t, a.body, "ada")
}

func TestAuth_Denied(t *testing.T) {
	h, err := NewHandler(Config{
		Auth: func(*http.Request) (string, error) { return "", errors.New("no session") }, Logger: slog.New(slog.DiscardHandler),
		Denied: func(w http.ResponseWriter, r *http.Request, err error) {
			http.Redirect(w, r, "/login?"+err.Error()[:2], http.StatusFound)
		},
	})
	require.NoError(t, err)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, local())
	require.Equal(t, http.StatusFound, w.Code)
	require.Equal(t, "/login?no", w.Header().Get("Location"))
	require.NoError(t, h.Close(t.Context()))
}

// With both, both must agree.
func TestAuth_AndLoopback(t *testing.T) {
	h, err := NewHandler(Config{Loopback: true, Prefix: "/admin/idem/", Auth: func(*http.Request) (string, error) { return "ada", nil }})
	require.NoError(t, err)
	r := local()
	r.Host = "evil.example"
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	require.Equal(t, http.StatusForbidden, w.Code)
	w = httptest.NewRecorder()
	h.ServeHTTP(w, local())
	require.Equal(t, http.StatusOK, w.Code)
	require.Contains(t, w.Body.String(), "ada")
	require.NoError(t, h.Close(t.Context()))
}

func TestHeaders(t *testing.T) {
	s, _ := fullSite(t)
	for _, name := range append([]string{"nothing-here"}, allPages...) {
		a := s.get(name)
		require.Equal(t, policy, a.header.Get("Content-Security-Policy"), name)
		require.Equal(t, "same-origin", a.header.Get("Referrer-Policy"), name)
		require.Equal(t, "nosniff", a.header.Get("X-Content-Type-Options"), name)
		require.Equal(t, "DENY", a.header.Get("X-Frame-Options"), name)
		require.Equal(t, "no-store", a.header.Get("Cache-Control"), name)
		require.Equal(t, "text/html; charset=utf-8", a.header.Get("Content-Type"), name)
	}
	for _, directive := range []string{"default-src 'none'", "frame-ancestors 'none'", "form-action 'self'", "base-uri 'none'", "script-src 'self'", "style-src 'self'"} {
		require.Contains(t, policy, directive)
	}
	require.NotContains(t, policy, "unsafe")
}
