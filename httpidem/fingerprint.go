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

// Payload contains the parts of a request that must be equal in two requests with one key. The
// comparison is byte for byte.
type Payload struct {
	// Method, Path and Query are those of the request line, path and query with their escapes.
	Method, Path, Query string
	// ContentType has the values of the header.
	ContentType []string
	// Body is the whole body. Do not change the bytes, since the handler reads them: assign another
	// slice. Empty if the body was parsed as a form in front; the fields of the form are compared
	// in any case.
	Body []byte
	// More are further parts that must be equal, such as the host or the version of the API.
	// Default: no further part.
	More []string
}

func newPayload(r *http.Request, body []byte) *Payload {
	return &Payload{
		Method: r.Method, Path: r.URL.EscapedPath(), Query: r.URL.RawQuery,
		ContentType: r.Header["Content-Type"], Body: body,
	}
}

// parsedForm returns the fields of a body that was parsed in front, to compare instead of the body.
func parsedForm(r *http.Request, body []byte) (form string, ok bool) {
	if len(body) > 0 || !formParsed(r) {
		return "", false
	}
	return r.PostForm.Encode(), true
}

// moreMark precedes More. No length has this value.
const moreMark = -1

// payloadFingerprint returns the HMAC of a payload; never zero. The order of parameters counts:
// only the handler knows whether a=1&b=2 and b=2&a=1 are equal, and a retry repeats the same bytes
// (H-03).
func payloadFingerprint(
	secret []byte, tenant string, p *Payload, form string, parsed bool,
) dedup.Fingerprint {
	mac := hmac.New(sha256.New, secret)
	var length [8]byte
	// The length precedes each part, so that no byte can move between parts.
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

// IgnoreBoundary is a [Config].Fingerprint for uploads. The parts of multipart bodies are compared
// without the boundary, which browsers choose anew for each request. Text before the first boundary
// and after the last one is not compared. A body that is not valid multipart is compared byte for
// byte. IgnoreBoundary never returns an error.
func IgnoreBoundary(_ *http.Request, p *Payload) error {
	if len(p.ContentType) != 1 {
		return nil
	}
	kind, params, _ := mime.ParseMediaType(p.ContentType[0]) // empty if invalid
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

// partsOf returns a multipart body without its boundaries: headers and content of each part, with
// the lengths in front.
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

// cut returns the first half of an HMAC. A zero fingerprint would mean a missing fingerprint.
func cut(sum []byte) (f dedup.Fingerprint) {
	copy(f[:], sum)
	if f == (dedup.Fingerprint{}) {
		f[0] = 1
	}
	return f
}

// readBody reads the body of a request and leaves a copy in its place. err is an
// *http.MaxBytesError if the body is larger than max. A body with a larger announced length is not
// read (H-15).
func readBody(w http.ResponseWriter, r *http.Request, max int64) (body []byte, err error) {
	if r.Body == nil || r.Body == http.NoBody {
		return nil, nil
	}
	if r.ContentLength > max {
		return nil, &http.MaxBytesError{Limit: max}
	}
	// Do not close the body: the server does, and this may be one of several copies of the
	// request. Do not allocate the announced length either: announcing is free for the client.
	body, err = io.ReadAll(http.MaxBytesReader(w, r.Body, max))
	if err != nil {
		return nil, err
	}
	r.Body = newBody(body)
	return body, nil
}

// body is a request body that was read before.
type body struct {
	bytes.Reader
	closed bool
}

func newBody(b []byte) *body {
	r := &body{}
	r.Reset(b)
	return r
}

// Read fails after Close, like the body of net/http.
func (b *body) Read(p []byte) (int, error) {
	if b.closed {
		return 0, http.ErrBodyReadAfterClose
	}
	return b.Reader.Read(p)
}

// WriteTo implements [io.WriterTo].
func (b *body) WriteTo(w io.Writer) (int64, error) {
	if b.closed {
		return 0, http.ErrBodyReadAfterClose
	}
	return b.Reader.WriteTo(w)
}

// Close implements [io.Closer].
func (b *body) Close() error {
	b.closed = true
	return nil
}
