package httpidem

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"io"
	"net/http"

	"github.com/idem-go/idem/dedup"
)

// fingerprint is the HMAC of what must be equal in two requests with one key; never zero. Everything is taken byte for byte: whether
// a=1&b=2 and b=2&a=1 are the same request only the handler knows, and a client that retries sends what it sent (H-03).
func fingerprint(secret []byte, tenant string, r *http.Request, body []byte) dedup.Fingerprint {
	mac := hmac.New(sha256.New, secret)
	var length [8]byte
	// Each part goes with its length, so that no byte can move from one to the next.
	frame := func(n int) { mac.Write(binary.BigEndian.AppendUint64(length[:0], uint64(n))) }
	text := func(s string) {
		frame(len(s))
		_, _ = io.WriteString(mac, s)
	}
	text(tenant)
	text(r.Method)
	text(r.URL.EscapedPath())
	text(r.URL.RawQuery)
	frame(len(r.Header["Content-Type"]))
	for _, v := range r.Header["Content-Type"] {
		text(v)
	}
	frame(len(body))
	mac.Write(body)
	if len(body) == 0 && isForm(r) {
		text(r.PostForm.Encode())
	}
	return cut(mac.Sum(nil))
}

// isForm reports whether the body was read in front as a form, which has all that was in it. Of one with files that would not be so.
func isForm(r *http.Request) bool { return r.PostForm != nil && r.MultipartForm == nil }

// cut is the first half of an HMAC. A zero fingerprint would say that there is none.
func cut(sum []byte) (f dedup.Fingerprint) {
	copy(f[:], sum)
	if f == (dedup.Fingerprint{}) {
		f[0] = 1
	}
	return f
}

// readBody reads the body of a request and puts one in its place. err is an *http.MaxBytesError if it is larger than max; if that was
// announced, none of it is read (H-15).
func readBody(w http.ResponseWriter, r *http.Request, max int64) (body []byte, err error) {
	if r.Body == nil || r.Body == http.NoBody {
		return nil, nil
	}
	if r.ContentLength > max {
		return nil, &http.MaxBytesError{Limit: max}
	}
	// Closed it is not: the server does that, and this may be one of several copies of the request. Nor is room made for what was announced:
	// announcing costs nothing.
	body, err = io.ReadAll(http.MaxBytesReader(w, r.Body, max))
	if err != nil {
		return nil, err
	}
	r.Body = newBody(body)
	return body, nil
}

// body is the body of a request that was read before.
type body struct {
	bytes.Reader
	closed bool
}

func newBody(b []byte) *body {
	r := &body{}
	r.Reset(b)
	return r
}

// Read fails once the body is closed, as that of net/http does.
func (b *body) Read(p []byte) (int, error) {
	if b.closed {
		return 0, http.ErrBodyReadAfterClose
	}
	return b.Reader.Read(p)
}

// WriteTo is Read for io.Copy.
func (b *body) WriteTo(w io.Writer) (int64, error) {
	if b.closed {
		return 0, http.ErrBodyReadAfterClose
	}
	return b.Reader.WriteTo(w)
}

// Close ends it.
func (b *body) Close() error {
	b.closed = true
	return nil
}
