package httpidem

import (
	"net/http"
	"net/url"
	"strings"

	"github.com/idem-go/idem/dedup"
)

// elsewhere returns the host that a redirect leads to, if it is not the one that the caller sent the request to: a key is between the two
// of them. http.Client follows redirects with the context and most headers of the first request.
func elsewhere(r *http.Request) (host string, ok bool) {
	first := r
	for hops := 0; first.Response != nil; hops++ {
		if first = first.Response.Request; first == nil || hops > 100 {
			return origin(r.URL), true // unknown
		}
	}
	host = origin(r.URL)
	return host, host != origin(first.URL) && !upgraded(first.URL, r.URL)
}

// origin is scheme, host and port of a URL.
func origin(u *url.URL) string {
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	return u.Scheme + "://" + strings.ToLower(u.Hostname()) + ":" + port
}

// upgraded reports whether the same host is asked by TLS from now on, at the usual ports.
func upgraded(from, to *url.URL) bool {
	return origin(from) == "http://"+strings.ToLower(to.Hostname())+":80" && origin(to) == "https://"+strings.ToLower(to.Hostname())+":443"
}

// foreignKey is the key that another host gets in the place of one that is not for it: the same at each attempt, and no way back.
func foreignKey(key, host string) string {
	if key == "" {
		return ""
	}
	return dedup.Key{Type: keyType, ID: dedup.Hash(key)}.UUID("redirect", host)
}
