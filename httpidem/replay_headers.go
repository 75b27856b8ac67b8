package httpidem

import (
	"maps"
	"net/textproto"
)

// DefaultReplayHeaders returns the names of the response headers and trailers that are always
// replayed; [Config].ReplayHeaders adds others. These headers describe the body, locate the result,
// or are required for the status. A 206 is replayed with its Content-Range too. Headers of one
// answer only, such as Date, Set-Cookie, trace IDs and hop-by-hop headers, are not replayed.
// Retry-After is not replayed either, because a stored answer does not change.
func DefaultReplayHeaders() []string {
	return []string{
		"Content-Type", "Content-Encoding", "Content-Language", "Content-Disposition",
		"Content-Location",
		"Content-Digest", "Repr-Digest", "Digest", "Etag", "Last-Modified",
		"Location", "Link", "Preference-Applied",
		"Cache-Control", "Vary", "X-Content-Type-Options", "Content-Security-Policy",
		"Www-Authenticate", "Allow", "Accept-Patch", "Accept-Post",
	}
}

// neverReplayed returns headers that would be wrong in a second answer, even if the Config names
// them. The exception is the Content-Range of a 206. Such headers frame the message, belong to the
// connection or to the moment, authenticate the client, or name the trace of another request.
func neverReplayed() []string {
	return []string{
		"Content-Length", "Transfer-Encoding", "Trailer", "Content-Range",
		"Connection", "Keep-Alive", "Proxy-Connection", "Proxy-Authenticate",
		"Proxy-Authentication-Info", "Te", "Upgrade", "Http2-Settings",
		"Date", "Age", "Via",
		"Set-Cookie", "Set-Cookie2", "Authentication-Info",
		"Traceparent", "Tracestate", "Traceresponse", "Baggage", "Server-Timing",
		DefaultReplayedHeader,
	}
}

// replayed returns the set of replayed response headers, by canonical name.
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
