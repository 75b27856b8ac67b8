package httpidem

import (
	"maps"
	"net/http"
	"net/textproto"
	"slices"
	"strconv"
	"strings"

	"github.com/idem-go/idem/dedup"
)

// maxHead is how many bytes status and headers of a kept answer take at most.
const maxHead = 16 << 10

// answer is what a handler answered.
type answer struct {
	status  int
	header  http.Header
	trailer http.Header
	body    []byte
	omitted bool // the body was too large to be kept: there is nothing to replay
}

// result is what is kept of it: status, those headers and trailers that keep says yes to, and the body if it has at most max bytes. Of
// an answer that is too large it is kept that it was given: its status, and its headers if these have room (H-06).
func (a *answer) result(keep func(name string) bool, max int) dedup.Result {
	kept := answer{status: a.status, header: filter(a.header, keep), trailer: filter(a.trailer, keep), body: a.body, omitted: a.omitted}
	if len(a.body) > max {
		kept.omitted = true
	}
	if kept.omitted {
		kept.body, kept.trailer = nil, nil
	}
	head := kept.appendHead(nil)
	if len(head) > maxHead {
		kept = answer{status: a.status, omitted: true}
		head = kept.appendHead(nil)
	}
	return dedup.Result{Schema: answerSchema, Data: slices.Concat(head, kept.body)}
}

func filter(h http.Header, keep func(name string) bool) http.Header {
	kept := http.Header{}
	for name, values := range h {
		if keep(textproto.CanonicalMIMEHeaderKey(name)) {
			kept[name] = values
		}
	}
	return kept
}

// replay sends a kept answer. Headers that are there already, from middleware in front, stay unless the answer has the same.
func (a *answer) replay(w http.ResponseWriter) {
	h := w.Header()
	for name, values := range a.header {
		switch canonical := textproto.CanonicalMIMEHeaderKey(name); {
		case canonical == "Vary":
			addMissing(h, values)
		case isCORS(canonical): // kept by an earlier release
		default:
			h[name] = values
		}
	}
	h.Del("Content-Length")
	prefix := ""
	switch {
	case noBody(a.status):
		prefix = http.TrailerPrefix // not declared: HTTP/2 sends them, HTTP/1.1 cannot
	case len(a.trailer) > 0: // declared, and without a length, or HTTP/1.1 does not send them
		for name := range a.trailer {
			h.Add("Trailer", name)
		}
	default:
		h.Set("Content-Length", strconv.Itoa(len(a.body)))
	}
	w.WriteHeader(a.status)
	if len(a.body) > 0 && !noBody(a.status) {
		_, _ = w.Write(a.body) // nobody is left to be told
	}
	for name, values := range a.trailer {
		h[prefix+name] = values
	}
}

// addMissing adds to Vary what is not in it: what the middleware in front varies by today is true as well.
func addMissing(h http.Header, values []string) {
	for _, v := range values {
		if !slices.ContainsFunc(h["Vary"], func(has string) bool { return strings.EqualFold(has, v) }) {
			h["Vary"] = append(h["Vary"], v)
		}
	}
}

// noBody reports whether an answer with that status has no body.
func noBody(status int) bool {
	return status < 200 || status == http.StatusNoContent || status == http.StatusNotModified
}

// DefaultReplayHeaders are the names of the response headers that are replayed, those of [Config].ReplayHeaders beside them, in headers
// and in trailers: what says how the body is to be read and used, where the result is, and what an answer of its status must have. What
// belongs to one answer only, such as Date, Set-Cookie, trace IDs and hop-by-hop headers, is not (H-13), nor is Retry-After: a kept answer
// does not change, however late it is asked for.
func DefaultReplayHeaders() []string {
	return []string{
		"Content-Type", "Content-Encoding", "Content-Language", "Content-Disposition", "Content-Location",
		"Content-Digest", "Repr-Digest", "Digest", "Etag", "Last-Modified",
		"Location", "Link", "Preference-Applied",
		"Cache-Control", "Vary", "X-Content-Type-Options", "Content-Security-Policy",
		"Www-Authenticate", "Allow", "Accept-Patch", "Accept-Post",
	}
}

// neverReplayed are headers that would be wrong in a second answer, whoever asks for them: they frame the message, belong to
// the connection or to the moment, log somebody in, or name the trace of another request.
func neverReplayed() []string {
	return []string{
		"Content-Length", "Transfer-Encoding", "Trailer", "Content-Range",
		"Connection", "Keep-Alive", "Proxy-Connection", "Proxy-Authenticate", "Proxy-Authentication-Info", "Te", "Upgrade", "Http2-Settings",
		"Date", "Age", "Via",
		"Set-Cookie", "Set-Cookie2", "Authentication-Info",
		"Traceparent", "Tracestate", "Traceresponse", "Baggage", "Server-Timing",
		DefaultReplayedHeader,
	}
}

// replayed is the set of response headers that are replayed, by canonical name.
func replayed(more []string) map[string]bool {
	set := make(map[string]bool)
	for _, name := range append(DefaultReplayHeaders(), more...) {
		set[textproto.CanonicalMIMEHeaderKey(name)] = true
	}
	for _, name := range neverReplayed() {
		delete(set, textproto.CanonicalMIMEHeaderKey(name))
	}
	maps.DeleteFunc(set, func(name string, _ bool) bool { return isCORS(name) })
	return set
}

// isCORS reports whether a header belongs to the origin that asks: the answer to one origin must not open itself to another one (H-13).
func isCORS(name string) bool { return strings.HasPrefix(name, "Access-Control-") }
