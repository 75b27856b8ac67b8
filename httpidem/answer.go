package httpidem

import (
	"net/http"
	"net/textproto"
	"slices"
	"strconv"
	"strings"

	"github.com/idem-go/idem/dedup"
)

// maxHead bounds the stored status and headers of an answer, in bytes.
const maxHead = 16 << 10

// answer is the answer of a handler.
type answer struct {
	status  int
	header  http.Header
	trailer http.Header
	body    []byte
	omitted bool // the body was not kept, so the answer cannot be replayed
}

// result returns the stored form of the answer: the status, some headers and trailers, and the
// body up to max bytes. keep chooses the headers and trailers; a 206 keeps Content-Range, which
// tells the place of its body (RFC 9110, section 15.3.7). Of a larger answer only the
// status is stored, and the headers if they fit (H-06).
func (a *answer) result(keep func(name string) bool, max int) dedup.Result {
	keepHeader := keep
	if a.status == http.StatusPartialContent {
		keepHeader = func(name string) bool { return name == "Content-Range" || keep(name) }
	}
	kept := answer{
		status: a.status, header: filter(a.header, keepHeader), trailer: filter(a.trailer, keep),
		body: a.body, omitted: a.omitted,
	}
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

// replay sends a stored answer. Headers of middleware in front stay unless the answer has the same
// ones.
func (a *answer) replay(w http.ResponseWriter) {
	h := w.Header()
	for name, values := range a.header {
		switch canonical := textproto.CanonicalMIMEHeaderKey(name); {
		case canonical == "Vary":
			addMissing(h, values)
		case isCORS(canonical): // stored by an earlier release
		default:
			h[name] = values
		}
	}
	h.Del("Content-Length")
	prefix := ""
	switch {
	case noBody(a.status):
		prefix = http.TrailerPrefix // not declared: HTTP/2 sends such trailers, HTTP/1.1 cannot
	// HTTP/1.1 sends declared trailers only, and only without a length.
	case len(a.trailer) > 0:
		for name := range a.trailer {
			h.Add("Trailer", name)
		}
	default:
		h.Set("Content-Length", strconv.Itoa(len(a.body)))
	}
	w.WriteHeader(a.status)
	if len(a.body) > 0 && !noBody(a.status) {
		_, _ = w.Write(a.body) // the client has gone: no further error to report
	}
	for name, values := range a.trailer {
		h[prefix+name] = values
	}
}

// addMissing adds the missing values to Vary. The values of the middleware in front apply as well.
func addMissing(h http.Header, values []string) {
	for _, v := range values {
		if !slices.ContainsFunc(h["Vary"],
			func(has string) bool { return strings.EqualFold(has, v) }) {
			h["Vary"] = append(h["Vary"], v)
		}
	}
}

// noBody reports whether an answer with this status has no body.
func noBody(status int) bool {
	return status < 200 || status == http.StatusNoContent || status == http.StatusNotModified
}

// isCORS reports whether a header grants access to the origin of the request. A replay must not
// grant it to another origin (H-13).
func isCORS(name string) bool { return strings.HasPrefix(name, "Access-Control-") }
