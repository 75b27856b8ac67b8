package httpidem

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"runtime"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/dedup"
)

// H-03: every change of a request changes its fingerprint.
func TestFingerprint_Mutations_H03(t *testing.T) {
	type parts struct{ secret, tenant, method, url, contentType, body string }
	base := parts{"0123456789abcdef", "t", "POST", "/transfers/1?a=1&b=2", "application/json",
		`{"amount":1}`}
	print := func(p parts) dedup.Fingerprint {
		r := httptest.NewRequest(p.method, p.url, nil)
		if p.contentType != "" {
			r.Header["Content-Type"] = strings.Split(p.contentType, "|")
		}
		return payloadFingerprint([]byte(p.secret), p.tenant, newPayload(r, []byte(p.body)), "",
			false)
	}
	seen := map[dedup.Fingerprint]string{}
	for name, mutate := range map[string]func(*parts){
		"nothing":                   func(*parts) {},
		"secret":                    func(p *parts) { p.secret = "0123456789abcdeg" },
		"tenant":                    func(p *parts) { p.tenant = "u" },
		"no tenant":                 func(p *parts) { p.tenant = "" },
		"method":                    func(p *parts) { p.method = "PATCH" },
		"path":                      func(p *parts) { p.url = "/transfers/2?a=1&b=2" },
		"escaped slash":             func(p *parts) { p.url = "/transfers%2F1?a=1&b=2" },
		"slash at the end":          func(p *parts) { p.url = "/transfers/1/?a=1&b=2" },
		"case of the path":          func(p *parts) { p.url = "/Transfers/1?a=1&b=2" },
		"question mark in the path": func(p *parts) { p.url = "/transfers/1%3Fa=1&b=2" },
		"query":                     func(p *parts) { p.url = "/transfers/1?a=1&b=3" },
		"order of the query":        func(p *parts) { p.url = "/transfers/1?b=2&a=1" },
		"escape in the query":       func(p *parts) { p.url = "/transfers/1?%61=1&b=2" },
		"no query":                  func(p *parts) { p.url = "/transfers/1" },
		"content type":              func(p *parts) { p.contentType = "application/xml" },
		"parameter of it": func(p *parts) {
			p.contentType = "application/json; charset=utf-8"
		},
		"no content type": func(p *parts) { p.contentType = "" },
		"two content types": func(p *parts) {
			p.contentType = "application/json|application/json"
		},
		"body":                       func(p *parts) { p.body = `{"amount":2}` },
		"space in the body":          func(p *parts) { p.body = `{"amount": 1}` },
		"longer body":                func(p *parts) { p.body += "\n" },
		"no body":                    func(p *parts) { p.body = "" },
		"from the query to the path": func(p *parts) { p.url = "/transfers/1a=1&b=2" },
		"from the body to the type": func(p *parts) {
			p.contentType, p.body = p.contentType+`{`, `"amount":1}`
		},
		"from the method to the tenant": func(p *parts) { p.tenant, p.method = "tP", "OST" },
	} {
		p := base
		mutate(&p)
		f := print(p)
		require.NotZero(t, f)
		require.Equal(t, f, print(p), "the same request: the same fingerprint")
		require.NotContains(t, seen, f, "%s is as %s", name, seen[f])
		seen[f] = name
	}
	require.Greater(t, len(seen), 20)
}

// Golden: keys of an earlier release must have the same fingerprint, or each retry during an
// upgrade would be another request.
func TestFingerprint_StaysTheSame(t *testing.T) {
	print := func(kind, body string, form url.Values, more ...string) string {
		r := httptest.NewRequest(http.MethodPost, "/transfers/1?a=1", nil)
		r.Header.Set("Content-Type", kind)
		r.PostForm = form
		p := newPayload(r, []byte(body))
		p.More = more
		text, parsed := parsedForm(r, p.Body)
		return fmt.Sprintf("%x",
			payloadFingerprint([]byte("0123456789abcdef"), "t", p, text, parsed))
	}
	const form = "application/x-www-form-urlencoded"
	require.Equal(t, "009f823f595e5e39fe13dd2ba65296d0",
		print("application/json", `{"amount":1}`, nil))
	require.Equal(t, "af14647b1258de3456f1f15c69155d94", print(form, "", url.Values{"a": {"1"}}))
	seen := map[string]bool{}
	for _, f := range []string{
		print(form, "", nil), print(form, "", url.Values{"a": {"1"}}),
		print(form, "", url.Values{"a": {"1"}}, "x"), print(form, "", nil, "x"),
		print(form, "", nil, "x", ""), print(form, "", nil, "", "x"), print(form, "", nil, "a=1"),
	} {
		require.False(t, seen[f])
		seen[f] = true
	}
}

func TestFingerprint_NeverZero(t *testing.T) {
	require.NotZero(t, cut(make([]byte, 32)))
	require.Equal(t, dedup.Fingerprint{0, 1}, cut(append([]byte{0, 1}, make([]byte, 30)...)))
}

// H-15: a body with a larger announced length is not read; one without a length is not read to its
// end, nor kept.
func TestReadBody_TooLarge_H15(t *testing.T) {
	const large, limit = 100 << 20, 1 << 20
	for _, announced := range []bool{true, false} {
		src := &counted{rest: large}
		r := httptest.NewRequest(http.MethodPost, "/", src)
		r.ContentLength = -1
		if announced {
			r.ContentLength = large
		}
		before := allocated()
		body, err := readBody(httptest.NewRecorder(), r, limit)
		grown := allocated() - before
		tooLarge, ok := errors.AsType[*http.MaxBytesError](err)
		require.True(t, ok, "%v", err)
		require.EqualValues(t, limit, tooLarge.Limit)
		require.Nil(t, body)
		require.Less(t, grown, uint64(5<<20))
		if announced {
			require.Zero(t, src.read)
		} else {
			require.LessOrEqual(t, src.read, limit+1)
		}
	}
}

func allocated() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.TotalAlloc
}

type counted struct{ rest, read int }

func (c *counted) Read(p []byte) (int, error) {
	n := min(len(p), c.rest)
	if n == 0 {
		return 0, io.EOF
	}
	c.rest, c.read = c.rest-n, c.read+n
	return n, nil
}

func TestReadBody_Restores_H15(t *testing.T) {
	for _, n := range []int{0, 1, 1023, 1024, 100_000} {
		want := strings.Repeat("b", n)
		r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(want))
		got, err := readBody(httptest.NewRecorder(), r, 100_000)
		require.NoError(t, err)
		require.Equal(t, want, string(got))
		require.EqualValues(t, n, r.ContentLength)
		again, err := io.ReadAll(r.Body)
		require.NoError(t, err)
		require.Equal(t, want, string(again))
		require.NoError(t, r.Body.Close())
	}
	r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader("x"))
	_, err := readBody(httptest.NewRecorder(), r, 1)
	require.NoError(t, err)
	require.NoError(t, r.Body.Close())
	_, err = r.Body.Read(make([]byte, 1))
	require.ErrorIs(t, err, http.ErrBodyReadAfterClose)
	_, err = io.Copy(io.Discard, r.Body)
	require.ErrorIs(t, err, http.ErrBodyReadAfterClose)

	cut := errors.New("cut")
	r = httptest.NewRequest(http.MethodPost, "/", iotest.ErrReader(cut))
	_, err = readBody(httptest.NewRecorder(), r, 10)
	require.ErrorIs(t, err, cut)
}

// The trailers of a request are available before its handler runs.
func TestReadBody_Trailers_H15(t *testing.T) {
	text := "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n3\r\nabc\r\n0\r\nX-Sum: 7\r\n\r\n"
	r, err := http.ReadRequest(bufio.NewReader(strings.NewReader(text)))
	require.NoError(t, err)
	r = r.WithContext(t.Context())
	body, err := readBody(httptest.NewRecorder(), r, 10)
	require.NoError(t, err)
	require.Equal(t, "abc", string(body))
	require.Equal(t, "7", r.Trailer.Get("X-Sum"))
	require.EqualValues(t, -1, r.ContentLength)
}

func BenchmarkFingerprint(b *testing.B) {
	for _, n := range []int{0, 1 << 10, 1 << 20} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			r := httptest.NewRequest(http.MethodPost, "/transfers?a=1", nil)
			body := make([]byte, n)
			b.SetBytes(int64(n))
			b.ReportAllocs()
			for b.Loop() {
				payloadFingerprint(make([]byte, 32), "t", newPayload(r, body), "", false)
			}
		})
	}
}
