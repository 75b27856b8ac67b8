// Package redact takes passwords out of texts that somebody else made: the last line of defence (G-04).
package redact

import (
	"net/url"
	"regexp"
	"slices"
	"strings"
)

// Secrets are what must never be shown. The zero value is ready to use, and takes credentials out that stand where URLs and
// connection strings have them. It must not be changed while it is used.
type Secrets struct{ all []string }

// minSecret is how long a secret is at least to be looked for. Shorter ones are words of which every text is full, "idem" to
// begin with, and the libraries underneath do not print them in the first place.
const minSecret = 8

// Add notes passwords. Empty ones are none.
func (s *Secrets) Add(passwords ...string) {
	for _, p := range passwords {
		if len(p) >= minSecret && !slices.Contains(s.all, p) {
			s.all = append(s.all, p)
		}
	}
	slices.SortStableFunc(s.all, func(a, b string) int { return len(b) - len(a) }) // one may begin with another
}

// AddURL notes the passwords in a URL, as they are written and as they are meant.
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
		values, _ := url.ParseQuery(query) // what cannot be parsed is no password either
		for _, name := range []string{"password", "sslpassword"} {
			s.Add(values[name]...)
		}
	}
}

// keywordPassword is a password in a connection string of Postgres that is no URL.
var keywordPassword = regexp.MustCompile(`(?:^|\s)(?:ssl)?password\s*=\s*(?:'[^']|[^\s'])`)

// HasPassword reports whether a URL has a password: before its host, or as a parameter of Postgres. So may the keywords and values that
// Postgres takes in place of a URL.
func HasPassword(text string) bool {
	_, rest, ok := strings.Cut(text, "://")
	if !ok { // it is no URL, but what stands before an '@' is a password all the same
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
	values, _ := url.ParseQuery(query) // what cannot be parsed is no password either
	return values.Get("password")+values.Get("sslpassword") != ""
}

// credentials are what stands before the host of a URL, and passwords in connection strings.
var credentials = []struct {
	find *regexp.Regexp
	put  string
}{
	{regexp.MustCompile(`://[^/\s"'@]*:[^\s"']*@`), "://***@"},
	{regexp.MustCompile(`(?i)((?:ssl)?password\s*=\s*)(?:'[^']*'|[^\s&"'\\]+)`), "${1}***"},
}

// Text returns text without the secrets.
func (s *Secrets) Text(text string) string {
	for _, secret := range s.all {
		text = strings.ReplaceAll(text, secret, "***")
	}
	for _, c := range credentials {
		text = c.find.ReplaceAllString(text, c.put)
	}
	return text
}

// withAt are parameters of connections whose values may have an '@'.
var withAt = []string{
	"user", "username", "password", "sslpassword", "passfile", "host", "addr", "application_name", "client_name", "options", "sslrootcert",
	"sslcert", "sslkey", "service", "servicefile", "search_path",
}

// SplitsPassword reports whether a URL is one whose password seems to have a '/', '?', '#' or, for Postgres, '@' that is not
// percent-encoded: it ends there for whoever parses it, and what follows is taken for a host, a port, a path or a parameter,
// which are shown. Such a URL must be refused. An '@' behind the host is what tells it; in the name of a database it has to be
// percent-encoded.
func SplitsPassword(text string) bool {
	scheme, rest, ok := strings.Cut(text, "://")
	if !ok {
		return false
	}
	end := strings.IndexAny(rest+"/", "/?#")
	if strings.HasPrefix(scheme, "postgres") && strings.Count(rest[:end], "@") > 1 {
		return true // pgx takes the first for the end of the password
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
