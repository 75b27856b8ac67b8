package httpidem_test

import (
	"bytes"
	"errors"
	"io"
	"log/slog"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/dedup/memstore"
	"github.com/idem-go/idem/httpidem"
)

// ReplayWith200 changes the status of replayed successes only.
func TestReplayWith200(t *testing.T) {
	for status, want := range map[int]int{
		201: 200, 202: 200, 204: 200, 200: 200, 206: 206, 303: 303, 402: 402, 500: 500,
	} {
		s := newService(t)
		s.work = func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Location", "/orders/1")
			w.WriteHeader(status)
		}
		server := httptest.NewServer(s.claimed(memstore.New(),
			func(c *httpidem.Config) { c.ReplayWith200 = true }))
		var first string
		for i, expected := range []int{status, want, want} {
			req := post(t.Context(), server.URL+"/orders", "a")
			client := &http.Client{
				CheckRedirect: func(*http.Request, []*http.Request) error {
					return http.ErrUseLastResponse
				},
			}
			resp, err := client.Do(req)
			require.NoError(t, err)
			body, err := io.ReadAll(resp.Body)
			require.NoError(t, err)
			require.NoError(t, resp.Body.Close())
			require.Equal(t, expected, resp.StatusCode)
			require.Equal(t, i > 0, httpidem.IsReplay(resp))
			require.Equal(t, "/orders/1", resp.Header.Get("Location"))
			if i == 0 {
				first = string(body)
			}
			require.Equal(t, first, string(body))
		}
		server.Close()
		require.Equal(t, want, s.seen[1].Status)
		require.Equal(t, 1, s.ran("a"))
	}
}

// H-19: PUT and DELETE may have a key, and do not need it.
func TestOptionalMethods_H19(t *testing.T) {
	s := newService(t)
	h := s.claimed(memstore.New(), func(c *httpidem.Config) {
		c.OptionalMethods = []string{http.MethodPut, http.MethodDelete}
	})
	ask := func(method, key string) *httptest.ResponseRecorder {
		r := httptest.NewRequest(method, "/orders/1", nil)
		if key != "" {
			r.Header.Set("Idempotency-Key", key)
		}
		rec := httptest.NewRecorder()
		h.ServeHTTP(rec, r)
		return rec
	}
	for _, method := range []string{http.MethodPut, http.MethodDelete} {
		for i := range 2 {
			require.Equal(t, http.StatusCreated, ask(method, "").Code)
			rec := ask(method, method)
			require.Equal(t, http.StatusCreated, rec.Code)
			require.Equal(t, i > 0, replayed(rec), method)
		}
		require.Equal(t, 1, s.ran(method))
	}
	require.Equal(t, 4, s.ran(""), "without a key they pass")
	require.Equal(t, "idempotency_key_missing", code(ask(http.MethodPost, "")),
		"Methods still need one")
	require.Equal(t, "request_signature_mismatch", code(ask(http.MethodPut, http.MethodDelete)))

	cfg := s.config(memstore.New())
	cfg.OptionalMethods = []string{http.MethodPost}
	_, err := httpidem.New(cfg)
	require.ErrorContains(t, err, "OptionalMethods")
}

// H-11: authentication behind the middleware answers 401. With a valid token the same key runs,
// with any payload.
func TestForgetStatusConfig_H11(t *testing.T) {
	s := newService(t)
	for _, status := range []int{200, 299, 500, 0} {
		cfg := s.config(memstore.New())
		cfg.ForgetStatus = []int{401, status}
		_, err := httpidem.New(cfg)
		require.ErrorContains(t, err, "ForgetStatus")
	}
	cfg := s.config(memstore.New())
	cfg.ForgetStatus = []int{300, 301, 499}
	require.NotNil(t, s.handler(httpidem.New(cfg)))
}

// H-13: CORS headers of a replay are those of the request that gets it.
func TestCORSOfReplays_H13(t *testing.T) {
	var log bytes.Buffer
	change := func(c *httpidem.Config) {
		c.ReplayHeaders = []string{"Access-Control-Allow-Origin", "access-control-expose-headers",
			"X-Kept"}
		c.Logger = slog.New(slog.NewTextHandler(&log, nil))
	}
	cors := func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Access-Control-Allow-Origin", r.Header.Get("Origin"))
			w.Header().Set("Vary", "Origin")
			next.ServeHTTP(w, r)
		})
	}
	ask := func(h http.Handler, origin string) http.Header {
		r := post(t.Context(), "/orders", "a")
		r.Header.Set("Origin", origin)
		rec := httptest.NewRecorder()
		h.ServeHTTP(rec, r)
		return rec.Result().Header
	}
	s := newService(t)
	s.work = func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("X-Kept", "yes") }
	h := cors(s.claimed(memstore.New(), change))
	for _, origin := range []string{"https://a.example", "https://b.example"} {
		got := ask(h, origin)
		require.Equal(t, origin, got.Get("Access-Control-Allow-Origin"))
		require.Equal(t, []string{"Origin"}, got["Vary"])
		require.Equal(t, "yes", got.Get("X-Kept"))
	}
	require.Equal(t, 1, s.ran("a"))
	require.Empty(t, log.String())

	s = newService(t)
	s.work = func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Access-Control-Allow-Origin", r.Header.Get("Origin"))
	}
	h = s.claimed(memstore.New(), change)
	require.Equal(t, "https://a.example",
		ask(h, "https://a.example").Get("Access-Control-Allow-Origin"))
	require.Empty(t, ask(h, "https://b.example")["Access-Control-Allow-Origin"],
		"none is better than that of another origin")
	require.Contains(t, log.String(), "set them in front of httpidem")
}

// H-03: Fingerprint may compare further parts of a request.
func TestFingerprintHook_H03(t *testing.T) {
	s := newService(t)
	s.work = func(w http.ResponseWriter, r *http.Request) {
		if b, err := io.ReadAll(r.Body); err != nil || string(b) != `{"amount":7}` {
			t.Errorf("the handler reads %q, %v", b, err)
		}
	}
	h := s.claimed(memstore.New(), func(c *httpidem.Config) {
		c.Fingerprint = func(r *http.Request, p *httpidem.Payload) error {
			if b, err := io.ReadAll(r.Body); err != nil || !bytes.Equal(b, p.Body) {
				t.Errorf("the hook reads %q, %v", b, err)
			}
			p.More = append(p.More, r.Host, r.Header.Get("Accept"), r.Header.Get("Api-Version"))
			p.Query = "" // not compared here
			return nil
		}
	})
	ask := func(key string, change func(*http.Request)) *httptest.ResponseRecorder {
		r := post(t.Context(), "http://api.example/orders", key)
		r.Header.Set("Api-Version", "1")
		change(r)
		rec := httptest.NewRecorder()
		h.ServeHTTP(rec, r)
		return rec
	}
	same := func(*http.Request) {}
	require.Equal(t, http.StatusCreated, ask("a", same).Code)
	require.True(t, replayed(ask("a", same)))
	require.True(t, replayed(ask("a", func(r *http.Request) { r.URL.RawQuery = "utm=1" })))
	for name, change := range map[string]func(*http.Request){
		"host":    func(r *http.Request) { r.Host = "other.example" },
		"accept":  func(r *http.Request) { r.Header.Set("Accept", "text/plain") },
		"version": func(r *http.Request) { r.Header.Set("Api-Version", "2") },
		"from one to the next": func(r *http.Request) {
			r.Header.Set("Accept", "1")
			r.Header.Set("Api-Version", "")
		},
		"path": func(r *http.Request) { r.URL.Path = "/refunds" },
	} {
		require.Equal(t, "request_signature_mismatch", code(ask("a", change)), name)
	}
	require.Equal(t, 1, s.ran("a"))

	for _, c := range []struct {
		err    error
		status int
		code   string
	}{{httpidem.Refuse(0, "No JSON."), 400, "payload_invalid"},
		{errors.New("secret"), 503, "check_failed"}} {
		s, h, _ := checked(t, func(cfg *httpidem.Config) {
			cfg.Fingerprint = func(*http.Request, *httpidem.Payload) error { return c.err }
		})
		rec := send(h, "a")
		require.Equal(t, c.status, rec.Code)
		require.Equal(t, c.code, code(rec))
		require.NotContains(t, rec.Body.String(), "secret")
		require.Zero(t, s.ran("a"))
	}
	cfg := s.config(memstore.New())
	cfg.AnyPayload, cfg.Fingerprint = true, httpidem.IgnoreBoundary
	_, err := httpidem.New(cfg)
	require.ErrorContains(t, err, "Fingerprint")
}

// upload is a multipart body, and its Content-Type.
func upload(t *testing.T, boundary string, parts ...string) (kind, body string) {
	t.Helper()
	var b bytes.Buffer
	w := multipart.NewWriter(&b)
	require.NoError(t, w.SetBoundary(boundary))
	for i := 0; i < len(parts); i += 2 {
		part, err := w.CreateFormFile(parts[i], "x.txt")
		require.NoError(t, err)
		_, err = io.WriteString(part, parts[i+1])
		require.NoError(t, err)
	}
	require.NoError(t, w.Close())
	return w.FormDataContentType(), b.String()
}

// H-03: a browser chooses a new boundary for each request, and its retry is the same request.
func TestIgnoreBoundary_H03(t *testing.T) {
	s := newService(t)
	ask := func(h http.Handler, kind, body string) *httptest.ResponseRecorder {
		r := httptest.NewRequest(http.MethodPost, "/uploads", strings.NewReader(body))
		r.Header.Set("Content-Type", kind)
		r.Header.Set("Idempotency-Key", "a")
		rec := httptest.NewRecorder()
		h.ServeHTTP(rec, r)
		return rec
	}
	h := s.claimed(memstore.New(),
		func(c *httpidem.Config) { c.Fingerprint = httpidem.IgnoreBoundary })
	send := func(boundary string, parts ...string) *httptest.ResponseRecorder {
		kind, body := upload(t, boundary, parts...)
		return ask(h, kind, body)
	}
	require.Equal(t, http.StatusCreated, send("one", "file", "10", "note", "x").Code)
	require.True(t, replayed(send("one", "file", "10", "note", "x")))
	require.True(t, replayed(send("another", "file", "10", "note", "x")))
	for name, parts := range map[string][]string{
		"content": {"file", "99999", "note", "x"}, "name": {"data", "10", "note", "x"},
		"order": {"note", "x", "file", "10"}, "fewer": {"file", "10"},
		"moved": {"file", "10\r\n", "note", "x"}, "more": {"file", "10", "note", "x", "note", "x"},
		"none": {},
	} {
		require.Equal(t, "request_signature_mismatch", code(send("another", parts...)), name)
	}
	kind, body := upload(t, "one", "file", "10", "note", "x")
	for name, broken := range map[string][2]string{
		"cut":              {kind, body[:len(body)-6]},
		"no boundary":      {"multipart/form-data", body},
		"another boundary": {"multipart/form-data; boundary=two", body},
		"another type":     {strings.Replace(kind, "form-data", "mixed", 1), body},
	} {
		require.Equal(t, "request_signature_mismatch", code(ask(h, broken[0], broken[1])), name)
	}
	require.Equal(t, 1, s.ran("a"))

	// A body that equals the parts without their boundary.
	p := &httpidem.Payload{ContentType: []string{kind}, Body: []byte(body)}
	require.NoError(t, httpidem.IgnoreBoundary(nil, p))
	require.Equal(t, "request_signature_mismatch", code(ask(h, p.ContentType[0], string(p.Body))))

	h = newService(t).claimed(memstore.New())
	require.Equal(t, http.StatusCreated, send("one", "file", "10").Code)
	require.Equal(t, "request_signature_mismatch", code(send("another", "file", "10")),
		"bytes are compared by default")
}
