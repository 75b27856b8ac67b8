package httpidem_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
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

// wire is a way of sending a body to the server.
type wire struct {
	name   string
	http2  bool
	length bool // with an announced length
}

var wires = []wire{
	{name: "HTTP/1.1 with Content-Length", length: true}, {name: "HTTP/1.1 chunked"},
	{name: "HTTP/2 with content-length", http2: true, length: true},
	{name: "HTTP/2 without length", http2: true},
}

// payment is one body of a request, with its Content-Type.
type payment struct{ kind, body string }

func jsonPayment(amount string) payment {
	return payment{"application/json", `{"amount":` + amount + `}`}
}

func formPayment(amount string) payment {
	return payment{"application/x-www-form-urlencoded", "account=7&amount=" + amount}
}

func untypedPayment(amount string) payment { return payment{"", `{"amount":` + amount + `}`} }

func multipartPayment(amount string) payment {
	var b bytes.Buffer
	w := multipart.NewWriter(&b)
	err := errors.Join(w.SetBoundary("between"), w.WriteField("amount", amount), w.Close())
	if err != nil {
		panic(err) // a mistake in the test
	}
	return payment{w.FormDataContentType(), b.String()}
}

// pay sends a payment over a wire, always under one key.
func pay(t *testing.T, s *httptest.Server, wire wire, p payment) *httptest.ResponseRecorder {
	t.Helper()
	body := io.Reader(strings.NewReader(p.body))
	if !wire.length {
		body = struct{ io.Reader }{body}
	}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.URL+"/orders", body)
	require.NoError(t, err)
	r.Header.Set("Idempotency-Key", "a")
	if p.kind != "" {
		r.Header.Set("Content-Type", p.kind)
	}
	resp, err := s.Client().Do(r)
	require.NoError(t, err)
	defer resp.Body.Close()
	require.Equal(t, wire.http2, resp.ProtoMajor == 2)
	rec := httptest.NewRecorder()
	rec.Code = resp.StatusCode
	for name, values := range resp.Header {
		rec.Header()[name] = values
	}
	_, err = rec.Body.ReadFrom(resp.Body)
	require.NoError(t, err)
	return rec
}

// served is a handler on a server of its own.
func served(t *testing.T, wire wire, h http.Handler) *httptest.Server {
	t.Helper()
	s := httptest.NewUnstartedServer(h)
	s.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	if wire.http2 {
		s.EnableHTTP2 = true
		s.StartTLS()
	} else {
		s.Start()
	}
	t.Cleanup(s.Close)
	return s
}

func front(do func(*http.Request), next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		do(r)
		next.ServeHTTP(w, r)
	})
}

func readAll(r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) }

// H-03: a body that something in front has read and not put back cannot be compared. Such a request
// does not run, and does not get the answer to another one.
func TestConsumedBody_H03(t *testing.T) {
	for name, c := range map[string]struct {
		do      func(*http.Request)
		payment func(amount string) payment
		wires   func(wire) bool
		status  int
		code    string
	}{
		"read": {do: readAll, payment: jsonPayment},
		"read, no Content-Type": {
			do: readAll, payment: untypedPayment, wires: func(w wire) bool { return w.length },
		},
		"read, no Content-Type, no length": {
			do: readAll, payment: untypedPayment, wires: func(w wire) bool { return !w.length },
			status: http.StatusLengthRequired, code: "length_required",
		},
		"read in part": {
			do:      func(r *http.Request) { _, _ = io.ReadFull(r.Body, make([]byte, 12)) },
			payment: jsonPayment, wires: func(w wire) bool { return w.length },
		},
		"replaced by nothing": {
			do: func(r *http.Request) { r.Body = http.NoBody }, payment: jsonPayment,
		},
		"replaced by nothing, no Content-Type": {
			do: func(r *http.Request) { r.Body = http.NoBody }, payment: untypedPayment,
		},
		// read first: net/http resets the connection if it does not know that there is a body
		"replaced by nothing, length set": {
			do: func(r *http.Request) { readAll(r); r.Body, r.ContentLength = http.NoBody, 0 },
			// without a length HTTP/2 leaves no trace of a body
			payment: jsonPayment, wires: func(w wire) bool { return !w.http2 || w.length },
		},
		"no body at all": {do: func(r *http.Request) { r.Body = nil }, payment: jsonPayment},
		"read, then parsed as a form": {
			do:      func(r *http.Request) { readAll(r); _ = r.ParseForm() },
			payment: formPayment,
		},
		"read, and a form that is none": {
			do:      func(r *http.Request) { readAll(r); _ = r.ParseForm() },
			payment: jsonPayment,
		},
		"a form that cannot be parsed": {
			do: func(r *http.Request) { _ = r.ParseForm() },
			payment: func(amount string) payment {
				return payment{"application/x-www-form-urlencoded", "%zz=" + amount}
			},
		},
		"multipart, parsed": {
			do:      func(r *http.Request) { _ = r.ParseMultipartForm(1 << 20) },
			payment: multipartPayment,
		},
		"multipart, a part taken of many bytes": {
			do: func(r *http.Request) {
				if parts, err := r.MultipartReader(); err == nil {
					_, _ = parts.NextPart()
				}
			},
			payment: func(amount string) payment {
				p := multipartPayment(amount)
				return payment{p.kind, p.body + strings.Repeat("\r\n", 32<<10)}
			},
		},
		"multipart, parts taken": {
			do: func(r *http.Request) {
				if parts, err := r.MultipartReader(); err == nil {
					_, _ = parts.NextPart()
					_, _ = parts.NextPart()
				}
			},
			payment: multipartPayment,
		},
	} {
		for _, wire := range wires {
			if c.wires != nil && !c.wires(wire) {
				continue
			}
			t.Run(name+", "+wire.name, func(t *testing.T) {
				var log bytes.Buffer
				s := newService(t)
				h := s.claimed(memstore.New(), func(cfg *httpidem.Config) {
					cfg.Logger = slog.New(slog.NewTextHandler(&log, nil))
				})
				server := served(t, wire, front(c.do, h))
				status, want := http.StatusInternalServerError, "body_consumed"
				if c.status > 0 {
					status, want = c.status, c.code
				}
				for _, amount := range []string{"10", "99999"} {
					rec := pay(t, server, wire, c.payment(amount))
					require.Equal(t, want, code(rec), "%d %s", rec.Code, rec.Body)
					require.Equal(t, status, rec.Code)
					require.False(t, replayed(rec))
					require.Equal(t, httpidem.Refused, s.last())
				}
				require.Zero(t, s.ran("a"))
				require.Contains(t, log.String(), "in front of the middleware")
				require.Contains(t, log.String(), "put httpidem in front, or put the body back")
			})
		}
	}
}

// H-03: bodies that are compared although something in front has looked at them.
func TestBodySeenInFront_H03(t *testing.T) {
	for name, c := range map[string]struct {
		do      func(*http.Request)
		payment func(amount string) payment
	}{
		"not touched": {do: func(*http.Request) {}, payment: jsonPayment},
		"put back": {
			do: func(r *http.Request) {
				b, _ := io.ReadAll(r.Body)
				r.Body = io.NopCloser(bytes.NewReader(b))
			},
			payment: jsonPayment,
		},
		"a form, parsed": {do: func(r *http.Request) { _ = r.ParseForm() }, payment: formPayment},
		"a form, parsed and put back": {
			do: func(r *http.Request) {
				b, _ := io.ReadAll(r.Body)
				r.Body = io.NopCloser(bytes.NewReader(b))
				_ = r.ParseForm()
				r.Body = io.NopCloser(bytes.NewReader(b))
			},
			payment: formPayment,
		},
		"decoded, the length left as it was": {
			do: func(r *http.Request) {
				r.Header.Set("Content-Encoding", "rot13")
				b, _ := io.ReadAll(r.Body)
				r.Body = io.NopCloser(bytes.NewReader(b[2:]))
			},
			payment: jsonPayment,
		},
		"decoded, of unknown length": {
			do: func(r *http.Request) {
				b, _ := io.ReadAll(r.Body)
				r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(b[2:])), -1
			},
			payment: jsonPayment,
		},
	} {
		for _, wire := range wires {
			t.Run(name+", "+wire.name, func(t *testing.T) {
				s := newService(t)
				server := served(t, wire, front(c.do, s.claimed(memstore.New())))
				require.Equal(t, http.StatusCreated, pay(t, server, wire, c.payment("10")).Code)
				require.True(t, replayed(pay(t, server, wire, c.payment("10"))))
				require.Equal(t, "request_signature_mismatch",
					code(pay(t, server, wire, c.payment("99999"))))
				require.Equal(t, 1, s.ran("a"))
			})
		}
	}
}

// A request without a body is valid if it says so.
func TestNoBody_H03(t *testing.T) {
	for _, wire := range wires {
		if !wire.length {
			continue
		}
		for _, kind := range []string{"", "application/json"} {
			t.Run(fmt.Sprint(wire.name, kind), func(t *testing.T) {
				s := newService(t)
				server := served(t, wire, s.claimed(memstore.New()))
				for i := range 2 {
					rec := pay(t, server, wire, payment{kind: kind})
					require.Equal(t, http.StatusCreated, rec.Code)
					require.Equal(t, i > 0, replayed(rec))
				}
			})
		}
	}
}

// Rule 21: a body that is read between Lookup and Handler, in part or to its end, is compared as
// the client sent it. The handler reads it from its beginning.
func TestConsumedBehindLookup_Rule21(t *testing.T) {
	for name, do := range map[string]func(*http.Request){
		"read":         readAll,
		"read in part": func(r *http.Request) { _, _ = io.ReadFull(r.Body, make([]byte, 12)) },
	} {
		for _, wire := range wires {
			t.Run(name+", "+wire.name, func(t *testing.T) {
				s := newService(t)
				s.work = func(_ http.ResponseWriter, r *http.Request) {
					if b, err := io.ReadAll(r.Body); err != nil ||
						string(b) != jsonPayment("10").body {
						t.Errorf("the handler reads %q, %v", b, err)
					}
				}
				m, err := httpidem.New(s.config(memstore.New()))
				require.NoError(t, err)
				t.Cleanup(m.Close)
				server := served(t, wire, m.Lookup(front(do, m.Handler(s))))
				require.Equal(t, http.StatusCreated, pay(t, server, wire, jsonPayment("10")).Code)
				require.True(t, replayed(pay(t, server, wire, jsonPayment("10"))))
				require.Equal(t, "request_signature_mismatch",
					code(pay(t, server, wire, jsonPayment("99999"))))
				require.Equal(t, 1, s.ran("a"))
			})
		}
	}
}

// With AnyPayload bodies are not compared, so no body is refused.
func TestConsumedBodyOfAnyPayload(t *testing.T) {
	s := newService(t)
	h := front(readAll,
		s.claimed(memstore.New(), func(c *httpidem.Config) { c.Secret, c.AnyPayload = nil, true }))
	require.Equal(t, http.StatusCreated, send(h, "a").Code)
	require.True(t, replayed(send(h, "a")))
}

// A request made in this process may have no length: 0 with a body, as http.NewRequest leaves it.
func TestBodyWithoutLength(t *testing.T) {
	s := newService(t)
	h := s.claimed(memstore.New())
	for i, want := range []int{http.StatusCreated, http.StatusCreated,
		http.StatusUnprocessableEntity} {
		body := jsonPayment([]string{"10", "10", "99999"}[i]).body
		r, err := http.NewRequestWithContext(context.Background(), http.MethodPost, "/orders",
			struct{ io.Reader }{strings.NewReader(body)})
		require.NoError(t, err)
		r.Header.Set("Idempotency-Key", "a")
		rec := httptest.NewRecorder()
		h.ServeHTTP(rec, r)
		require.Equal(t, want, rec.Code)
	}
}
