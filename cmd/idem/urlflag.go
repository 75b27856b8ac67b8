package main

import (
	"io"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/idem-go/idem/internal/redact"
)

// urlFlag is a flag for URLs that may have passwords. No help shows them (G-04). A URL with a
// password is refused on the command line, since every user of the host can read the arguments.
// "@FILE" reads the URL from a file.
type urlFlag struct {
	name, env string
	split     func(string) []string // nil: one URL
	use       func(urls []string)
	given     []string
}

// Set implements pflag.Value. resolve checks the value instead, because pflag would print an error
// of Set with the value.
func (f *urlFlag) Set(s string) error {
	if f.split == nil {
		f.given = []string{s}
		return nil
	}
	f.given = append(f.given, f.split(s)...)
	return nil
}

// String is empty: URLs may have passwords.
func (f *urlFlag) String() string { return "" }

// Type implements pflag.Value.
func (f *urlFlag) Type() string { return "url" }

// resolve takes over the URLs of the command line, in the place of those of the environment.
func (f *urlFlag) resolve() error {
	if f.given == nil {
		return nil
	}
	urls := make([]string, 0, len(f.given))
	for _, text := range f.given {
		path, isFile := strings.CutPrefix(text, "@")
		switch {
		case isFile:
			content, err := readURL(path)
			if err != nil {
				return usage("--%s: no URL can be read from the file: %v", f.name, err)
			}
			if f.split != nil {
				urls = append(urls, f.split(content)...)
				continue
			}
			text = content
		case !strings.HasPrefix(text, sqliteScheme) && redact.HasPassword(text):
			return usage(
				"--%s: the URL has a password, which every user of this host could see: set %s, "+
					"or write the URL into a file and give --%s @FILE",
				f.name,
				f.env,
				f.name,
			)
		}
		urls = append(urls, text)
	}
	f.use(urls)
	return nil
}

// maxURLFile bounds a file with a URL.
const maxURLFile = 64 << 10

func readURL(path string) (string, error) {
	file, err := os.Open(path) //nolint:gosec // the operator names it
	if err != nil {
		return "", err
	}
	defer file.Close()
	b, err := io.ReadAll(io.LimitReader(file, maxURLFile))
	return strings.TrimSpace(string(b)), err
}

var urlBegins = regexp.MustCompile(`(?:^|,)\s*(?:[a-z+]+://|sqlite:)`)

// splitStores splits at commas between URLs, not at those between the hosts of one.
func splitStores(s string) (urls []string) {
	begins := urlBegins.FindAllStringIndex(s, -1)
	if s != "" && (len(begins) == 0 || begins[0][0] > 0) {
		begins = slices.Insert(begins, 0, []int{0, 0}) // no URL: its opener reports the error
	}
	for i, at := range begins {
		end := len(s)
		if i+1 < len(begins) {
			end = begins[i+1][0]
		}
		urls = append(urls, strings.Trim(s[at[0]:end], ", "))
	}
	return urls
}
