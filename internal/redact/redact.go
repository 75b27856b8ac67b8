// Package redact removes passwords from texts of other programs, as the last line of defence
// (G-04).
package redact

import (
	"net/url"
	"regexp"
	"slices"
	"strings"
)

// Secrets is a set of texts that must never be shown. The zero value is ready to use and removes
// credentials from URLs and connection strings. It must not be changed during use; otherwise it is
// safe for concurrent use.
type Secrets struct{ all []string }

// minSecret is the shortest length of a secret that is searched for. Shorter secrets are ordinary
// words, such as "idem", and the libraries do not print passwords anyway.
const minSecret = 8

// Add adds passwords. It ignores those with fewer than 8 bytes.
func (s *Secrets) Add(passwords ...string) {
	for _, p := range passwords {
		if len(p) >= minSecret && !slices.Contains(s.all, p) {
			s.all = append(s.all, p)
		}
	}
	// longest first: one may begin with another
	slices.SortStableFunc(s.all, func(a, b string) int { return len(b) - len(a) })
}

// AddURL adds the passwords in a URL, percent-encoded and decoded.
func (s *Secrets) AddURL(text string) {
	_, rest, _ := strings.Cut(text, "://")
	if at := strings.LastIndex(rest, "@"); at >= 0 {
		if _, password, ok := strings.Cut(rest[:at], ":"); ok {
			s.Add(password)
			if plain, err := url.PathUnescape(password); err == nil {
				s.Add(plain)
			}
		}
	}
	if _, query, ok := strings.Cut(rest, "?"); ok {
		values, _ := url.ParseQuery(query) // a query that cannot be parsed has no password
		for _, name := range []string{"password", "sslpassword"} {
			s.Add(values[name]...)
		}
	}
}

// keywordPassword matches a password in a keyword/value connection string of Postgres.
var keywordPassword = regexp.MustCompile(`(?:^|\s)(?:ssl)?password\s*=\s*(?:'[^']|[^\s'])`)

// HasPassword reports whether a URL has a password, before its host or as a parameter of Postgres,
// or whether a keyword/value connection string has one.
func HasPassword(text string) bool {
	_, rest, ok := strings.Cut(text, "://")
	if !ok { // no URL, but text before an '@' is a password all the same
		rest = text
	}
	if keywordPassword.MatchString(text) {
		return true
	}
	if at := strings.LastIndex(rest, "@"); at >= 0 {
		if _, password, _ := strings.Cut(rest[:at], ":"); password != "" {
			return true
		}
	}
	_, query, _ := strings.Cut(rest, "?")
	values, _ := url.ParseQuery(query) // a query that cannot be parsed has no password
	return values.Get("password")+values.Get("sslpassword") != ""
}

// mask takes the place of a secret, as in the URLs of [net/url.URL.Redacted].
const mask = "xxxxx"

// credentials matches user and password before the host of a URL, and passwords in connection
// strings.
var credentials = []struct {
	find *regexp.Regexp
	put  string
}{
	{regexp.MustCompile(`://([^/\s"'@:]*):[^\s"']*@`), "://${1}:" + mask + "@"},
	{regexp.MustCompile(`(?i)((?:ssl)?password\s*=\s*)(?:'[^']*'|[^\s&"'\\]+)`), "${1}" + mask},
}

// Text returns text without the secrets.
func (s *Secrets) Text(text string) string {
	for _, secret := range s.all {
		text = strings.ReplaceAll(text, secret, mask)
	}
	for _, c := range credentials {
		text = c.find.ReplaceAllString(text, c.put)
	}
	return text
}

// withAt lists connection parameters with values that may contain an '@'.
var withAt = []string{
	"user", "username", "password", "sslpassword", "passfile", "host", "addr", "application_name",
	"client_name", "options", "sslrootcert",
	"sslcert", "sslkey", "service", "servicefile", "search_path",
}

// SplitsPassword reports whether the password of a URL seems to contain a '/', '?', '#' or, for
// Postgres, '@' that is not percent-encoded. A parser ends the password there, and takes the rest
// for a host, a port, a path or a parameter, which are shown. Refuse such a URL. The sign is an '@'
// after the host; in the name of a database it must be percent-encoded.
func SplitsPassword(text string) bool {
	scheme, rest, ok := strings.Cut(text, "://")
	if !ok {
		return false
	}
	end := strings.IndexAny(rest+"/", "/?#")
	if strings.HasPrefix(scheme, "postgres") && strings.Count(rest[:end], "@") > 1 {
		return true // pgx ends the password at the first one
	}
	if strings.LastIndex(rest, "@") < end {
		return false
	}
	path, query, _ := strings.Cut(rest[end:], "?")
	if strings.Contains(path, "@") {
		return true
	}
	for pair := range strings.SplitSeq(query, "&") {
		name, _, _ := strings.Cut(pair, "=")
		if strings.Contains(pair, "@") && !slices.Contains(withAt, name) {
			return true
		}
	}
	return false
}
