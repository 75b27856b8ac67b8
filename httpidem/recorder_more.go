package httpidem

import (
	"bufio"
	"net"
	"net/http"
	"net/textproto"
	"strings"
)

// Hijack is refused: an answer that goes past the recorder cannot be kept. It stands here so that http.ResponseController does not
// find the one of the server (H-14).
func (rec *recorder) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	return nil, nil, http.ErrNotSupported
}

// Push goes out at once: what is pushed is an answer to another request, a GET.
func (rec *recorder) Push(target string, opts *http.PushOptions) error {
	rec.mu.Lock()
	defer rec.mu.Unlock()
	if p, ok := rec.w.(http.Pusher); ok && rec.final == nil {
		return p.Push(target, opts)
	}
	return http.ErrNotSupported
}

// Unwrap lets http.ResponseController set deadlines and full duplex.
func (rec *recorder) Unwrap() http.ResponseWriter { return rec.w }

// trailers are what net/http sends as such: names that were declared in time, and those with [http.TrailerPrefix]. One without a
// value is none: HTTP/2 would never end.
func trailers(sent, final http.Header) http.Header {
	var t http.Header
	set := func(name string, values []string) {
		if t == nil {
			t = http.Header{}
		}
		t[name] = values
	}
	for _, line := range sent["Trailer"] {
		for name := range strings.SplitSeq(line, ",") {
			name = textproto.CanonicalMIMEHeaderKey(textproto.TrimString(name))
			if values := final[name]; len(values) > 0 {
				set(name, values)
			}
		}
	}
	for name, values := range final {
		if name, ok := strings.CutPrefix(name, http.TrailerPrefix); ok && len(values) > 0 {
			set(textproto.CanonicalMIMEHeaderKey(name), values)
		}
	}
	return t
}

// guessed is the header of an answer with the Content-Type that net/http adds to it, so that a replay has the same, whatever later
// releases guess and however the first answer was cut. It is nil where there was none.
func (rec *recorder) guessed(a *answer) http.Header {
	_, typed := a.header["Content-Type"]
	if typed || noBody(a.status) || len(a.body) == 0 || a.header.Get("Content-Encoding") != "" {
		return a.header
	}
	h := a.header.Clone()
	first := a.body
	if rec.mark.kind == flushMark {
		first = first[:rec.mark.at]
	}
	h["Content-Type"] = nil
	if len(first) > 0 && (h.Get("Transfer-Encoding") == "" || rec.r.ProtoMajor > 1) {
		h["Content-Type"] = []string{http.DetectContentType(first)}
	}
	return h
}
