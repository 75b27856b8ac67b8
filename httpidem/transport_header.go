package httpidem

import (
	"net/http"
	"net/textproto"
	"slices"
)

// linesOf returns the lines of a header, in all spellings of its name. A spelling that was set
// without a method of [http.Header] reaches the server too, for which all are one name. name is in the
// form of [http.CanonicalHeaderKey].
func linesOf(h http.Header, name string) (lines []string) {
	for _, spelling := range spellings(h, name) {
		lines = append(lines, h[spelling]...)
	}
	return lines
}

// setLines replaces the lines of a header in all spellings of its name. Without lines, it removes the
// header.
func setLines(h http.Header, name string, lines []string) {
	for _, spelling := range spellings(h, name) {
		delete(h, spelling)
	}
	if len(lines) > 0 {
		h[name] = lines
	}
}

// spellings returns the names in h that are name but for upper and lower case, sorted.
func spellings(h http.Header, name string) (names []string) {
	for other := range h {
		if textproto.CanonicalMIMEHeaderKey(other) == name {
			names = append(names, other)
		}
	}
	slices.Sort(names)
	return names
}
