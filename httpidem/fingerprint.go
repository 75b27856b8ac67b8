package httpidem

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"strings"

	"github.com/idem-go/idem/dedup"
)

// Payload is what must be equal in two requests with one key. Everything is compared byte for byte.
type Payload struct {
	// Method, Path and Query are those of the request line, path and query with their escapes.
	Method, Path, Query string
	// ContentType has the values of the header.
	ContentType []string
	// Body has all of the body. It must not be changed, since the handler reads it: put another slice in its place. Empty if the body
	// was parsed as a form in front; the fields are compared in any case.
	Body []byte
	// More is what else must be equal, such as the host or the version of the API. Default: nothing.
	More []string
}

func newPayload(r *http.Request, body []byte) *Payload {
	return &Payload{Method: r.Method, Path: r.URL.EscapedPath(), Query: r.URL.RawQuery, ContentType: r.Header["Content-Type"], Body: body}
}

// parsedForm is what is compared in the place of a body that was parsed in front.
func parsedForm(r *http.Request, body []byte) (form string, ok bool) {
	if len(body) > 0 || !formParsed(r) {
		return "", false
	}
	return r.PostForm.Encode(), true
}

// moreMark stands before More, where no length can stand.
const moreMark = -1

// payloadFingerprint is the HMAC of a payload; never zero. Whether a=1&b=2 and b=2&a=1 are the same request only the handler knows, and
// a client that retries sends what it sent (H-03).
func payloadFingerprint(secret []byte, tenant string, p *Payload, form string, parsed bool) dedup.Fingerprint {
	mac := hmac.New(sha256.New, secret)
	var length [8]byte
	// Each part goes with its length, so that no byte can move from one to the next.
	frame := func(n int) { mac.Write(binary.BigEndian.AppendUint64(length[:0], uint64(n))) }
	text := func(s string) {
		frame(len(s))
		_, _ = io.WriteString(mac, s)
	}
	texts := func(list []string) {
		frame(len(list))
		for _, s := range list {
			text(s)
		}
	}
	text(tenant)
	text(p.Method)
	text(p.Path)
	text(p.Query)
	texts(p.ContentType)
	frame(len(p.Body))
	mac.Write(p.Body)
	if parsed {
		text(form)
	}
	if len(p.More) > 0 {
		frame(moreMark)
		texts(p.More)
	}
	return cut(mac.Sum(nil))
}

// IgnoreBoundary is a [Config].Fingerprint for uploads: multipart bodies are compared by their parts, and not by the boundary between them, which
// browsers draw anew for each request. What stands before the first boundary and behind the last one is not compared. A body that is not valid
// multipart is compared byte for byte.
func IgnoreBoundary(_ *http.Request, p *Payload) error {
	if len(p.ContentType) != 1 {
		return nil
	}
	kind, params, _ := mime.ParseMediaType(p.ContentType[0]) // no type if it is not valid
	if !strings.HasPrefix(kind, "multipart/") || params["boundary"] == "" {
		return nil
	}
	parts, ok := partsOf(p.Body, params["boundary"])
	if !ok {
		return nil
	}
	delete(params, "boundary")
	p.ContentType, p.Body = []string{mime.FormatMediaType(kind, params)}, parts
	p.More = append(p.More, "multipart without boundary")
	return nil
}

// partsOf is a multipart body without its boundaries: of each part the headers and the content, with their lengths in front.
func partsOf(body []byte, boundary string) (parts []byte, ok bool) {
	r := multipart.NewReader(bytes.NewReader(body), boundary)
	for {
		part, err := r.NextRawPart()
		switch {
		case errors.Is(err, io.EOF):
			return parts, true
		case err != nil:
			return nil, false
		}
		content, err := io.ReadAll(part)
		if err != nil {
			return nil, false
		}
		parts = appendHeader(parts, http.Header(part.Header))
		parts = appendText(parts, string(content))
	}
}

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
