package httpidem

import (
	"net/http"
	"net/url"
	"strings"

	"github.com/idem-go/idem/dedup"
)

// elsewhere returns the host that a redirect leads to, if it differs from the host of the caller's
// request. A key belongs to one host. http.Client follows redirects with the context and most
// headers of the first request.
func elsewhere(r *http.Request) (host string, ok bool) {
	host = origin(r.URL)
	first := firstOf(r)
	if first == nil {
		return host, true
	}
	return host, host != origin(first.URL) && !upgraded(first.URL, r.URL)
}

// firstOf returns the caller's request that redirects have led from; nil: unknown.
func firstOf(r *http.Request) *http.Request {
	for hops := 0; r.Response != nil; hops++ {
		if r = r.Response.Request; r == nil || hops > 100 {
			return nil
		}
	}
	return r
}

// redirectedKey returns the key that the caller's request was sent with, if redirects have kept the
// method. http.Client does not pass on a key that the transport made.
func redirectedKey(r *http.Request) string {
	if first := firstOf(r); first != nil && first.Method == r.Method {
		return KeyOf(first)
	}
	return ""
}

// origin returns scheme, host and port of a URL.
func origin(u *url.URL) string {
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	return u.Scheme + "://" + strings.ToLower(u.Hostname()) + ":" + port
}

// upgraded reports whether a redirect leads from http to https of the same host, at the usual
// ports.
func upgraded(from, to *url.URL) bool {
	return origin(from) == "http://"+strings.ToLower(to.Hostname())+":80" &&
		origin(to) == "https://"+strings.ToLower(to.Hostname())+":443"
}

// foreign returns the key and the header for another host, from those for the host of the caller's
// request. Of several lines each is replaced, so that the server refuses them as the first one would.
func foreign(own contextKey, lines []string, host string) (contextKey, []string) {
	switch len(lines) {
	case 0:
		return contextKey{key: foreignKey(own.key, host)}, nil
	case 1:
		return contextKey{key: foreignKey(lines[0], host)}, nil
	}
	replaced := make([]string, len(lines))
	for i, line := range lines {
		replaced[i] = foreignKey(line, host)
	}
	return contextKey{key: replaced[0], fromHeader: true}, replaced
}

// foreignKey returns the key for another host: the same at each attempt, and not reversible.
func foreignKey(key, host string) string {
	if key == "" {
		return ""
	}
	return dedup.Key{Type: keyType, ID: dedup.Hash(key)}.UUID("redirect", host)
}
