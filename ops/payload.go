package ops

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// This file shows foreign bytes without interpreting them: JSON is indented and not decoded, and
// bytes that are no text are shown as hexadecimal.

// The limits of a shown value.
const (
	shownText = 64 << 10
	shownHex  = 4 << 10
	shownHead = 1 << 10 // of a header
)

// shownBytes are bytes as text.
type shownBytes struct {
	Kind string // null, empty, JSON, text or bytes
	Text string
	Size int
	Cut  bool // there is more
}

// showBytes shows b in the given form: json, text or hex. Without a form it chooses one.
func showBytes(b []byte, as string) shownBytes {
	s := shownBytes{Size: len(b)}
	switch {
	case b == nil:
		s.Kind = "null"
	case len(b) == 0:
		s.Kind = "empty"
	case as == "hex" || as != "text" && !isText(b):
		s.Kind, s.Cut = "bytes", len(b) > shownHex
		s.Text = hex.Dump(b[:min(len(b), shownHex)])
	case as != "text" && s.indent(b):
		s.Kind = "JSON"
	default:
		s.Kind, s.Cut = "text", len(b) > shownText
		s.Text = visible(strings.ToValidUTF8(string(b[:min(len(b), shownText)]), "\uFFFD"))
	}
	return s
}

// isText reports whether the beginning of b is UTF-8 without control characters but white space.
func isText(b []byte) bool {
	b = b[:min(len(b), shownText)]
	for len(b) > 0 {
		r, n := utf8.DecodeRune(b)
		if r == utf8.RuneError && n <= 1 && (utf8.FullRune(b) || n == 0) {
			return false
		}
		if r < ' ' && r != '\n' && r != '\t' && r != '\r' {
			return false
		}
		b = b[n:]
	}
	return true
}

// indent shows b as JSON if it is an object or an array of a size that can be shown whole.
func (s *shownBytes) indent(b []byte) bool {
	first := bytes.TrimLeft(b, " \t\r\n")
	if len(b) > shownText || len(first) == 0 || first[0] != '{' && first[0] != '[' {
		return false
	}
	if widens(b, 8*shownText) {
		return false
	}
	var out bytes.Buffer
	if json.Indent(&out, b, "", "  ") != nil {
		return false
	}
	s.Text = visible(out.String())
	return true
}

// widens reports whether b may be longer than limit when indented. Each level of nesting indents
// all of its lines, so 60 KB can become gigabytes. b need not be JSON.
func widens(b []byte, limit int) bool {
	n, depth, inString := len(b), 0, false
	for i := 0; i < len(b) && n <= limit; i++ {
		switch c := b[i]; {
		case inString && c == '\\':
			i++
		case c == '"':
			inString = !inString
		case inString:
		case c == '{' || c == '[':
			depth++
			n += 1 + 2*depth
		case c == '}' || c == ']':
			depth = max(depth-1, 0)
			n += 1 + 2*depth
		case c == ',':
			n += 1 + 2*depth
		case c == ':':
			n++
		}
	}
	return n > limit
}

// visible replaces invisible characters, and those that change the direction of text, by their
// numbers. A text must not look like another one.
func visible(s string) string {
	if strings.IndexFunc(s, hidden) < 0 {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		if hidden(r) {
			fmt.Fprintf(&b, "\\u{%X}", r)
		} else {
			b.WriteRune(r)
		}
	}
	return b.String()
}

func hidden(r rune) bool {
	switch r {
	case '\n', '\t':
		return false
	case utf8.RuneError:
		return false
	case '\u2028', '\u2029':
		return true
	}
	return unicode.IsControl(r) || unicode.Is(unicode.Cf, r)
}
