package httpidem

import (
	"bufio"
	"net"
	"net/http"
	"net/textproto"
	"slices"
	"strings"
)

// Hijack is refused: an answer that bypasses the recorder cannot be stored. The method exists so
// that http.ResponseController does not find that of the server (H-14).
func (rec *recorder) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	return nil, nil, http.ErrNotSupported
}

// Push is passed on at once: a pushed resource answers another request, a GET.
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

// trailers returns the trailers that net/http would send: names that were declared in time, and
// those with [http.TrailerPrefix]. A trailer without a sendable value is left out: as the only one,
// it would keep an HTTP/2 answer from ending.
func trailers(sent, final http.Header) http.Header {
	var t http.Header
	set := func(name string, values []string) {
		if len(values) == 0 || slices.ContainsFunc(values, unsendable) {
			return
		}
		if t == nil {
			t = http.Header{}
		}
		t[name] = values
	}
	for _, line := range sent["Trailer"] {
		for name := range strings.SplitSeq(line, ",") {
			name = textproto.CanonicalMIMEHeaderKey(textproto.TrimString(name))
			set(name, final[name])
		}
	}
	for name, values := range final {
		if name, ok := strings.CutPrefix(name, http.TrailerPrefix); ok {
			set(textproto.CanonicalMIMEHeaderKey(name), values)
		}
	}
	return t
}

// unsendable reports whether a value has control characters; HTTP/2 drops such a field.
func unsendable(value string) bool {
	return strings.ContainsFunc(value,
		func(c rune) bool { return c < ' ' && c != '\t' || c == 0x7f })
}

// guessed returns the header of an answer with the Content-Type that net/http adds. So a replay
// has the same one, independent of later releases and of the writes of the first answer. A nil
// Content-Type means that net/http adds no Content-Type.
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
