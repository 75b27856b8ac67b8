package safetext

import (
	"strings"
	"unicode/utf8"
)

// Cut shortens s to at most n bytes of valid UTF-8.
func Cut(s string, n int) string {
	if len(s) > n {
		s = s[:n]
		for len(s) > 0 && !utf8.RuneStart(s[len(s)-1]) {
			s = s[:len(s)-1]
		}
		if r, _ := utf8.DecodeLastRuneInString(s); r == utf8.RuneError && len(s) > 0 {
			s = s[:len(s)-1]
		}
	}
	return strings.ToValidUTF8(s, "\uFFFD")
}
