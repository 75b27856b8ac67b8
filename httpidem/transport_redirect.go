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
	first := r
	for hops := 0; first.Response != nil; hops++ {
		if first = first.Response.Request; first == nil || hops > 100 {
			return origin(r.URL), true // the first request is unknown
		}
	}
	host = origin(r.URL)
	return host, host != origin(first.URL) && !upgraded(first.URL, r.URL)
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

// foreignKey returns the key for another host: the same at each attempt, and not reversible.
func foreignKey(key, host string) string {
	if key == "" {
		return ""
	}
	return dedup.Key{Type: keyType, ID: dedup.Hash(key)}.UUID("redirect", host)
}
